// Objects, blocks and sites of one access together.
#pragma once

#include "device/nvidia/object_reducer.h"
#include "device/nvidia/site_reducer.h"

namespace pasta::nvidia {

// An access that has a quick counter (`where` is the hint's), by fewer lanes than a warp has or across blocks.
PASTA_DEVICE_APART void count_part(const SlotHeader& slot, uint32_t active, uint32_t where, uint64_t address) {
  // A range with pages lies between two multiples of 4 GiB.
  const uint32_t sectors = count_distinct(active, static_cast<uint32_t>(address) >> kSectorShift);
  count_blocks(slot, active, where >> 16, address);
  const uint32_t place = where & 0xffff, count = lanes::count(active);
  if (lanes::rank(active) != 0 || add_hot(slot, HotKind::part, part_name(place, count, sectors), 1)) return;
  const uint64_t key = lanes::peek(quick_keys<true>(slot) + place);
  const uint32_t counter = quick_object_counter(key);
  count_lanes(slot, quick_range(key), counter, count);
  const auto kind = static_cast<AccessKind>(counter / kSizeClasses);
  count_shape(slot, {quick_pc(key), kind, counter % kSizeClasses, count, sectors});
}

// Objects, blocks and sites, of the warp's lanes in `active`. False: nothing was counted, for any of them. `kAgain`:
// the hint was just left, for which they have met.
template <bool kAgain = false>
PASTA_DEVICE bool count_all_quickly(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address,
                                    uint32_t shape) {
  constexpr uint32_t kAll = 0xffffffff;
  const Hint* const hint = hint_of(slot, static_cast<uint32_t>(pc));
  const lanes::Four what = kAgain ? lanes::peek_four(hint) : lanes::glance_four(hint);
  const lanes::Four range = kAgain ? lanes::peek_four(&hint->begin) : lanes::glance_four(&hint->begin);
  const bool known = (what.x == full_shape(shape, pc)) & (what.z == static_cast<uint32_t>(pc >> 4)) &
                     is_in(range, what.y, address);
  if (!(kAgain ? lanes::ballot(active, known) == active : lanes::all(active, known))) return false;
  const uint32_t low = static_cast<uint32_t>(address), index = what.y >> 16;
  const uint32_t first_block = lanes::glance(&slot.ranges[index].first_block);
  const bool in_blocks = first_block != kUntracked;
  const uint32_t block = (low - range.x) >> kBlockShift;
  const bool whole = active == kAll &&
                     (!in_blocks || lanes::ballot(kAll, block != lanes::broadcast(kAll, block, 0)) == 0);
  if (whole) {
    const uint32_t peers = lanes::match(kAll, low >> kSectorShift);
    const uint32_t sectors = lanes::count(lanes::ballot(kAll, lanes::rank(peers) == 0));
    const uint32_t lane = lanes::index();
    if (lane == 0) lanes::add(quick_counter<true>(slot, what.y & 0xffff, sectors - 1), 1);
    if (lane == 1 && in_blocks) lanes::add(slot.blocks + first_block + block, 32);
  }
  const uint32_t page = static_cast<uint32_t>(address >> kPageShift) + range.z;
  touch<true>(slot, index, page, low, low + bytes_of_shape(shape) - 1, known_of<true>(slot, index, page));
  if (!whole) count_part(slot, active, what.y, address);
  return true;
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
