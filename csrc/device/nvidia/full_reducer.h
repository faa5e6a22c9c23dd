// Objects, blocks and sites of one access together.
#pragma once

#include "device/nvidia/object_reducer.h"
#include "device/nvidia/site_reducer.h"

namespace pasta::nvidia {

// What count_part() counts, by one lane for its warp, where there is no room for a counter of its own.
PASTA_DEVICE_APART void count_part_apart(const SlotHeader& slot, uint32_t place, uint32_t count, uint32_t sectors) {
  const uint64_t key = lanes::peek(quick_keys<true>(slot) + place);
  const uint32_t counter = quick_object_counter(key);
  count_lanes(slot, quick_range(key), counter, count);
  const auto kind = static_cast<AccessKind>(counter / kSizeClasses);
  count_shape(slot, {quick_pc(key), kind, counter % kSizeClasses, count, sectors});
}

// An access that has a quick counter (`where` is the hint's), by any of a warp's lanes, in one block or several.
PASTA_DEVICE void count_part(const SlotHeader& slot, uint32_t active, uint32_t where, uint64_t address) {
  // A range with pages lies between two multiples of 4 GiB.
  const uint32_t sectors = count_distinct(active, static_cast<uint32_t>(address) >> kSectorShift);
  count_blocks(slot, active, where >> 16, address);
  const uint32_t place = where & 0xffff, count = lanes::count(active);
  if (lanes::rank(active) != 0 || add_hot(slot, HotKind::part, part_name(place, count, sectors), 1)) return;
  count_part_apart(slot, place, count, sectors);
}

// What a hint of an instruction's tells.
template <bool kAgain>
struct Hinted {
  PASTA_DEVICE explicit Hinted(const Hint* hint) {
    what = kAgain ? lanes::peek_four(hint) : lanes::glance_four(hint);
    range = kAgain ? lanes::peek_four(&hint->begin) : lanes::glance_four(&hint->begin);
  }
  PASTA_DEVICE bool is_of(uint64_t pc, uint64_t address, uint32_t shape) const {
    return (what.x == full_shape(shape, pc)) & (what.z == static_cast<uint32_t>(pc >> 4)) &
           is_in(range, what.y, address);
  }
  PASTA_DEVICE uint32_t index() const { return what.y >> 16; }
  PASTA_DEVICE uint32_t page(uint64_t address) const {
    return static_cast<uint32_t>(address >> kPageShift) + range.z;
  }

  lanes::Four what, range;  // the halves of a Hint
};

inline constexpr uint32_t kWarp = 0xffffffff;  // all its lanes

// An access that has a quick counter (`where` is the hint's), by a whole warp at addresses with these low halves.
PASTA_DEVICE_ASIDE void pasta_count_scattered(const SlotHeader& slot, uint32_t where, uint32_t low, uint32_t bytes) {
  const uint32_t sectors = count_distinct(kWarp, low >> kSectorShift), index = where >> 16;
  if (lanes::index() == 0) lanes::add(quick_counter<true>(slot, where & 0xffff, sectors - 1), 1);
  // A range with pages lies between two multiples of 4 GiB.
  const uint64_t address = (slot.ranges[index].begin >> 32 << 32) | low;
  count_blocks(slot, kWarp, index, address);
  touch<true>(slot, kWarp, index, address, bytes);
}

// Objects, blocks and sites, of a whole warp, whose lanes all look at one hint. False: nothing was counted, for any
// lane. `kAgain`: the hint was just left.
template <bool kAgain = false>
PASTA_DEVICE bool count_whole_quickly(const SlotHeader& slot, const Hint* at, uint64_t pc, uint64_t address,
                                      uint32_t bytes, uint32_t shape) {
  const Hinted<kAgain> hint(at);
  if (!lanes::all(kWarp, hint.is_of(pc, address, shape))) return false;
  const uint32_t low = static_cast<uint32_t>(address), page = hint.page(address);
  const uint32_t below = lanes::below(kWarp, low), begin = hint.range.x;
  // Mostly addresses rise from lane to lane: then the sectors that differ from the one before are all there are.
  const uint32_t sector = low >> kSectorShift, before = below >> kSectorShift;
  const bool in_one = hint.what.w == 0 || ((low - begin) ^ (below - begin)) >> kBlockShift == 0;
  if (!lanes::all(kWarp, (sector >= before) & in_one)) {
    pasta_count_scattered(slot, hint.what.y, low, bytes);
    return true;
  }
  const Known known = known_of<true>(slot, hint.index(), page);
  const uint32_t steps = lanes::ballot(kWarp, sector != before);
  if (lanes::index() == 0) {
    lanes::add(quick_counter<true>(slot, hint.what.y & 0xffff, lanes::count(steps)), 1);
    const uint32_t block = hint.what.w + ((low - begin) >> kBlockShift);
    if (hint.what.w != 0) lanes::add(reinterpret_cast<uint64_t*>(bytes_of(slot)) + block, 32);
  }
  touch<true>(slot, hint.index(), page, low, low + bytes - 1, known);
  return true;
}

// Likewise, of the lanes in `active`.
template <bool kAgain = false>
PASTA_DEVICE bool count_part_quickly(const SlotHeader& slot, uint32_t active, const Hint* at, uint64_t pc,
                                     uint64_t address, uint32_t bytes, uint32_t shape) {
  const Hinted<kAgain> hint(at);
  if (lanes::ballot(active, hint.is_of(pc, address, shape)) != active) return false;
  const uint32_t low = static_cast<uint32_t>(address), page = hint.page(address);
  touch<true>(slot, hint.index(), page, low, low + bytes - 1, known_of<true>(slot, hint.index(), page));
  count_part(slot, active, hint.what.y, address);
  return true;
}

// Likewise; a whole warp whose lanes have parted is counted as a part.
template <bool kAgain = false>
PASTA_DEVICE bool count_all_quickly(const SlotHeader& slot, uint32_t active, const Hint* at, uint64_t pc,
                                    uint64_t address, uint32_t bytes, uint32_t shape) {
  if (active == kWarp && count_whole_quickly<kAgain>(slot, at, pc, address, bytes, shape)) return true;
  return count_part_quickly<kAgain>(slot, active, at, pc, address, bytes, shape);
}

// Whatever they are. Each lane of `active` accesses `bytes` (a size class) at its own `address`.
PASTA_DEVICE void reduce_all_slowly(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address,
                                    uint32_t bytes, AccessKind kind) {
  const uint32_t sectors = count_distinct(active, address >> kSectorShift);
  const uint32_t guess = hinted_range(slot, static_cast<uint32_t>(pc));
  const uint32_t outside = lanes::ballot(active, is_outside(slot, address));
  if (outside != 0 && is_outside(slot, address)) count_outside(slot, outside, bytes, kind);
  for (uint32_t pending = active & ~outside; pending != 0;) {
    const Found found = find_range(slot, guess, lanes::broadcast(active, address, lanes::first(pending)));
    const bool member = address >= found.begin && address < found.end;
    const uint32_t group = lanes::ballot(active, member) & ~outside;
    pending &= (pending - 1) & ~group;
    if (!member || is_outside(slot, address)) continue;
    if (found.index != slot.range_count) {
      touch<true>(slot, group, found.index, address, bytes);
      count_blocks(slot, group, found.index, address);
    }
    if (lanes::rank(group) == 0) count_lanes(slot, found.index, counter_of(kind, bytes), lanes::count(group));
  }
  if (lanes::rank(active) == 0) count_shape(slot, {pc, kind, size_class(bytes), lanes::count(active), sectors});
}

}  // namespace pasta::nvidia
