// Per memory object: accesses and bytes by kind, pages and blocks touched, first and last byte.
#pragma once

#include "device/nvidia/hot_counters.h"
#include "device/nvidia/lanes.h"
#include "device/nvidia/layout.h"
#include "device/nvidia/ranges.h"

namespace pasta::nvidia {

PASTA_DEVICE uint32_t size_class(uint32_t bytes) { return lanes::last(bytes); }

PASTA_DEVICE bool has_size_class(uint32_t bytes) {
  return bytes != 0 && (bytes & (bytes - 1)) == 0 && bytes < 1u << kSizeClasses;
}

PASTA_DEVICE void mark_page(uint32_t* bitmap, uint32_t page) {
  uint32_t* const word = bitmap + page / 32;
  const uint32_t bit = 1u << (page % 32);
  if ((lanes::peek(word) & bit) == 0) lanes::set_bits(word, bit);
}

// Pages are those of the address space, numbered from the one that holds the range's first byte. The bound on bitmaps
// keeps the number small.
PASTA_DEVICE uint32_t page_of(uint64_t begin, uint64_t address) {
  return static_cast<uint32_t>(address >> kPageShift) - static_cast<uint32_t>(begin >> kPageShift);
}

// Raises `at` to the largest value of the lanes in `group`, looking at lane `start` first: patches may not use redux,
// and addresses mostly rise or fall with the lane, so that the first look settles it.
PASTA_DEVICE void raise_to_largest(uint32_t group, uint32_t start, uint64_t* at, uint64_t value) {
  uint64_t largest = lanes::broadcast(group, value, start);
  while (const uint32_t above = lanes::ballot(group, value > largest)) {
    largest = lanes::broadcast(group, value, lanes::last(above));
  }
  if (lanes::index() == lanes::first(group)) lanes::raise(at, largest);
}

// By one lane for those that access one object.
PASTA_DEVICE void count_lanes(const SlotHeader& slot, uint32_t index, uint32_t counter, uint32_t count) {
  if (add_hot(slot, HotKind::object, object_name(index, counter), count)) return;
  lanes::add(&slot.objects[index].lanes[0][0] + counter, count);
}

// Likewise for one block.
PASTA_DEVICE void count_block(const SlotHeader& slot, uint32_t block, uint32_t count) {
  if (!add_hot(slot, HotKind::block, block, count)) lanes::add(slot.blocks + block, count);
}

// What nearly all accesses are, settled: in the object that the instruction hit last, on a page that is marked, between
// the first and the last byte so far. Then there is only to count.
//
// Every load is made at once, from L1 and without a branch: for a warp, waiting for one after the other is most of what
// a patch costs. What L1 remembers is at worst too little, and then the slow path looks again.
struct Settled {
  bool settled;
  uint32_t index;        // of the range
  uint32_t first_block;  // kUntracked where blocks have no counters
  uint64_t offset;       // in it
};

template <bool kWithBlocks>
PASTA_DEVICE Settled look(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes) {
  const uint32_t hint = *hint_of(slot, pc);
  const uint32_t index = hint < slot.range_count ? hint : 0;
  const Range& range = slot.ranges[index];
  const uint64_t begin = range.begin;
  const uint32_t page_word = range.page_word;
  uint64_t end, inverted_first;
  lanes::glance(&slot.objects[index].end, end, inverted_first);
  const uint64_t offset = address - begin;
  bool settled = (offset < end) & (offset + bytes <= end) & (~offset <= inverted_first);
  const uint32_t page = page_of(begin, address);
  const bool tracked = page_word != kUntracked;
  const uint32_t marks = lanes::glance(slot.pages + (settled & tracked ? page_word + page / 32 : 0));
  settled &= !tracked | ((marks >> (page % 32) & 1) != 0);
  return {settled, index, kWithBlocks ? range.first_block : kUntracked, offset};
}

// False: nothing was counted.
PASTA_DEVICE bool reduce_settled(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address,
                                 uint32_t bytes, uint32_t counter) {
  const Settled here = look<false>(slot, pc, address, bytes);
  if (!lanes::agree(active, here.settled ? here.index : kUntracked) || !here.settled) return false;
  if (lanes::index() == lanes::first(active)) count_lanes(slot, here.index, counter, lanes::count(active));
  return true;
}

// The lanes of `group` access one object, or nobody's memory.
template <bool kWithBlocks>
PASTA_DEVICE void reduce_object(const SlotHeader& slot, uint32_t group, uint32_t index, uint64_t address,
                                uint32_t bytes, uint32_t counter) {
  if (lanes::index() == lanes::first(group)) count_lanes(slot, index, counter, lanes::count(group));
  if (index == slot.range_count) return;
  ObjectCounters& counters = slot.objects[index];
  const Range& range = slot.ranges[index];
  const uint64_t begin = range.begin;
  if (range.page_word != kUntracked) mark_page(slot.pages + range.page_word, page_of(begin, address));
  const uint64_t offset = address - begin;
  if (lanes::ballot(group, offset + bytes > lanes::peek(&counters.end)) != 0) {
    raise_to_largest(group, lanes::last(group), &counters.end, offset + bytes);
  }
  if (lanes::ballot(group, ~offset > lanes::peek(&counters.inverted_first)) != 0) {
    raise_to_largest(group, lanes::first(group), &counters.inverted_first, ~offset);
  }
  if (kWithBlocks && range.first_block != kUntracked) {
    const uint32_t block = static_cast<uint32_t>(offset >> kBlockShift);
    const uint32_t peers = lanes::match(group, block);
    if (lanes::index() == lanes::first(peers)) count_block(slot, range.first_block + block, lanes::count(peers));
  }
}

PASTA_DEVICE uint32_t counter_of(AccessKind kind, uint32_t bytes) {
  return static_cast<uint32_t>(kind) * kSizeClasses + size_class(bytes);
}

// What is not settled, whatever it is.
template <bool kWithBlocks>
PASTA_DEVICE void reduce_unsettled(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address,
                                   uint32_t bytes, uint32_t counter) {
  // One round for each object, or gap between objects, that the warp touches: nearly always one round.
  for (uint32_t pending = active; pending != 0;) {
    const Found found = find_range(slot, pc, lanes::broadcast(active, address, lanes::first(pending)));
    const bool member = address >= found.begin && address < found.end;
    const uint32_t group = lanes::ballot(active, member);
    pending &= (pending - 1) & ~group;  // without the leader whatever the table says: a patch must end
    if (member) reduce_object<kWithBlocks>(slot, group, found.index, address, bytes, counter);
  }
}

// Each active lane accesses `bytes` (a size class) at its own `address`: the objects alone.
PASTA_DEVICE void reduce_objects(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address,
                                 uint32_t bytes, AccessKind kind) {
  const uint32_t counter = counter_of(kind, bytes);
  if (reduce_settled(slot, active, pc, address, bytes, counter)) return;
  reduce_unsettled<false>(slot, active, pc, address, bytes, counter);
}

// One access to `bytes` consecutive bytes, of any size: by one lane, for itself or for its warp. No collectives.
template <bool kWithBlocks>
PASTA_DEVICE void reduce_span(const SlotHeader& slot, uint64_t pc, uint64_t address, uint64_t bytes,
                              AccessKind kind) {
  const Found found = find_range(slot, pc, address);
  ObjectCounters& counters = slot.objects[found.index];
  lanes::add(&counters.odd_count[static_cast<uint32_t>(kind)], 1);
  lanes::add(&counters.odd_bytes[static_cast<uint32_t>(kind)], bytes);
  if (found.index == slot.range_count || bytes == 0) return;
  const Range range = slot.ranges[found.index];
  const uint64_t offset = address - range.begin;
  const uint64_t end = address + bytes < range.end ? address + bytes : range.end;
  lanes::raise(&counters.end, end - range.begin);
  lanes::raise(&counters.inverted_first, ~offset);
  if (range.page_word != kUntracked) {
    const uint32_t last = page_of(range.begin, end - 1);
    for (uint32_t page = page_of(range.begin, address); page <= last; ++page) {
      mark_page(slot.pages + range.page_word, page);
    }
  }
  if (kWithBlocks && range.first_block != kUntracked) {
    count_block(slot, range.first_block + static_cast<uint32_t>(offset >> kBlockShift), 1);
  }
}

}  // namespace pasta::nvidia
