// Per memory object: accesses and bytes by kind, pages and blocks touched, first and last byte.
#pragma once

#include "device/nvidia/hot_counters.h"
#include "device/nvidia/lanes.h"
#include "device/nvidia/layout.h"
#include "device/nvidia/quick.h"
#include "device/nvidia/ranges.h"

namespace pasta::nvidia {

PASTA_DEVICE uint32_t size_class(uint32_t bytes) { return lanes::last(bytes); }

PASTA_DEVICE bool has_size_class(uint32_t bytes) {
  return bytes != 0 && (bytes & (bytes - 1)) == 0 && bytes < 1u << kSizeClasses;
}

PASTA_DEVICE uint32_t counter_of(AccessKind kind, uint32_t bytes) {
  return static_cast<uint32_t>(kind) * kSizeClasses + size_class(bytes);
}

// The counters that all share.
PASTA_DEVICE ObjectCounters& counters_of(const SlotHeader& slot, uint32_t index) {
  if (lanes::glance(&slot.totals->objects_used) == 0) slot.totals->objects_used = 1;
  return slot.objects[index];
}

// The page of an address of a range with pages: its bit, counted from the header's first.
PASTA_DEVICE uint32_t page_bias(const SlotHeader& slot, const Range& range) {
  const auto pages_at = static_cast<uint32_t>(reinterpret_cast<uint8_t*>(slot.pages) - bytes_of(slot));
  return (pages_at / sizeof(uint32_t) + range.page_word) * 32 - static_cast<uint32_t>(range.begin >> kPageShift);
}

// The counter of a range's first block, in u64s from the header; 0: it has none.
PASTA_DEVICE uint32_t first_block_at(const SlotHeader& slot, const Range& range) {
  if (range.first_block == kUntracked) return 0;
  const auto blocks_at = static_cast<uint64_t>(reinterpret_cast<uint8_t*>(slot.blocks) - bytes_of(slot));
  return static_cast<uint32_t>(blocks_at / sizeof(uint64_t)) + range.first_block;
}

// The lanes of `group` touch `bytes` at their addresses, all in one range.
template <bool kFull>
PASTA_DEVICE void touch(const SlotHeader& slot, uint32_t group, uint32_t index, uint64_t address, uint32_t bytes) {
  const Range& range = slot.ranges[index];
  if (range.page_word == kUntracked) {
    ObjectCounters& counters = counters_of(slot, index);
    const uint64_t offset = address - range.begin;
    raise_together(group, lanes::last(group), &counters.end, offset + bytes);
    raise_together(group, lanes::first(group), &counters.inverted_first, ~offset);
    return;
  }
  const uint32_t low = static_cast<uint32_t>(address);
  const uint32_t page = static_cast<uint32_t>(address >> kPageShift) + page_bias(slot, range);
  touch<kFull>(slot, index, page, low, low + bytes - 1, known_of<kFull>(slot, index, page));
}

// By one lane for those that access one object.
PASTA_DEVICE void count_lanes(const SlotHeader& slot, uint32_t index, uint32_t counter, uint32_t count) {
  if (add_hot(slot, HotKind::object, object_name(index, counter), count)) return;
  ObjectCounters& counters = counters_of(slot, index);
  lanes::add(&counters.count[counter / kSizeClasses], count);
  lanes::add(&counters.bytes[counter / kSizeClasses], uint64_t{count} << counter % kSizeClasses);
}

PASTA_DEVICE void count_blocks(const SlotHeader& slot, uint32_t group, uint32_t index, uint64_t address) {
  const Range& range = slot.ranges[index];
  if (range.first_block == kUntracked) return;
  const uint32_t block = range.first_block + static_cast<uint32_t>((address - range.begin) >> kBlockShift);
  const uint32_t peers = lanes::match(group, block);
  if (lanes::rank(peers) == 0) lanes::add(slot.blocks + block, lanes::count(peers));
}

// By one lane for its warp: what the instruction's next execution, or this one again, needs to be counted quickly, if
// the quick way counts it and there is room: as the instruction's hint, and as its hint in the area of `address`.
// `shape` and `counter` are of the access. Where patches are not full the pc is its low half.
template <bool kFull>
PASTA_DEVICE void leave_hint(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t shape, uint32_t counter) {
  const uint32_t index = last_beginning_below(slot.ranges, slot.range_count, address);
  if (index == slot.range_count || !has_quick_key(pc, index, address)) return;
  const Range range = slot.ranges[index];
  if (address >= range.end || range.page_word == kUntracked) return;
  const uint64_t key = quick_key(kFull ? pc : 0, index, counter);
  const uint32_t place = find_key(quick_keys<kFull>(slot), At<kFull>::kQuick.keys, key, kHotProbes);
  if (place == UINT32_MAX) return;
  const lanes::Four what = {kFull ? full_shape(shape, pc) : shape, index << 16 | place,
                            static_cast<uint32_t>(pc >> 4), kFull ? first_block_at(slot, range) : 0};
  const lanes::Four where = {static_cast<uint32_t>(range.begin), static_cast<uint32_t>(range.end - range.begin - 1),
                             page_bias(slot, range), place_of(index, range.begin)};
  write_hint(hint_of(slot, static_cast<uint32_t>(pc)), what, where);
  write_hint(area_hint_of(slot, static_cast<uint32_t>(pc), address), what, where);
}

// Of the lanes of `group` none accesses an object.
PASTA_DEVICE void count_outside(const SlotHeader& slot, uint32_t group, uint32_t bytes, AccessKind kind) {
  if (lanes::rank(group) == 0) count_lanes(slot, slot.range_count, counter_of(kind, bytes), lanes::count(group));
}

// Objects alone, whatever they are. Each lane of `active` accesses `bytes` (a size class) at its own `address`.
PASTA_DEVICE void reduce_objects_slowly(const SlotHeader& slot, uint32_t active, uint64_t address, uint32_t bytes,
                                        AccessKind kind) {
  // One round for each object, or gap between objects, that the warp touches: nearly always one round.
  for (uint32_t pending = active; pending != 0;) {
    const uint64_t first = lanes::broadcast(active, address, lanes::first(pending));
    const Found found = find_range(slot.ranges, slot.range_count, first);
    const bool member = address >= found.begin && address < found.end;
    const uint32_t group = lanes::ballot(active, member);
    pending &= (pending - 1) & ~group;  // without the leader whatever the table says: a patch must end
    if (!member) continue;
    if (found.index != slot.range_count) touch<false>(slot, group, found.index, address, bytes);
    if (lanes::rank(group) == 0) count_lanes(slot, found.index, counter_of(kind, bytes), lanes::count(group));
  }
}

// By one lane: the bytes from `address` to `end`, all in one range.
template <bool kFull>
PASTA_DEVICE void touch_span(const SlotHeader& slot, uint32_t index, uint64_t address, uint64_t end) {
  const uint32_t self = 1u << lanes::index();
  touch<kFull>(slot, self, index, address, 1);
  touch<kFull>(slot, self, index, end - 1, 1);
  const Range& range = slot.ranges[index];
  if (range.page_word == kUntracked) return;
  const uint32_t bias = page_bias(slot, range), last = static_cast<uint32_t>((end - 1) >> kPageShift) + bias;
  uint32_t* const words = words_of(slot);
  for (uint32_t page = static_cast<uint32_t>(address >> kPageShift) + bias + 1; page < last; ++page) {
    if ((lanes::glance(words + page / 32) >> (page % 32) & 1) == 0) mark_page(words, page);
  }
}

// One access to `bytes` consecutive bytes, of any number: by one lane, for itself or for its warp. No collectives but
// of that lane.
template <bool kFull>
PASTA_DEVICE void reduce_span(const SlotHeader& slot, uint64_t address, uint64_t bytes, AccessKind kind) {
  const Found found = find_range(slot.ranges, slot.range_count, address);
  ObjectCounters& counters = counters_of(slot, found.index);
  lanes::add(&counters.count[static_cast<uint32_t>(kind)], 1);
  lanes::add(&counters.bytes[static_cast<uint32_t>(kind)], bytes);
  if (found.index == slot.range_count || bytes == 0) return;
  if (kFull) count_blocks(slot, 1u << lanes::index(), found.index, address);
  const uint64_t end = address + bytes;
  uint32_t index = found.index;
  while (true) {  // a tensor may be several ranges
    const uint64_t next = slot.ranges[index].end;
    touch_span<kFull>(slot, index, address, end < next ? end : next);
    if (end <= next || ++index >= slot.range_count || slot.ranges[index].begin != next) return;
    address = next;
  }
}

}  // namespace pasta::nvidia
