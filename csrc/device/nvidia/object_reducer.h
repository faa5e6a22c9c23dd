// Per memory object: accesses and bytes by kind, pages and blocks touched, first and last byte.
#pragma once

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

// The lanes of `group` access one object, or nobody's memory.
template <bool kWithBlocks>
PASTA_DEVICE void reduce_object(const SlotHeader& slot, uint32_t group, uint32_t index, uint64_t address,
                                uint32_t bytes, uint32_t counter) {
  ObjectCounters& counters = slot.objects[index];
  if (lanes::index() == lanes::first(group)) lanes::add(&counters.lanes[0][0] + counter, lanes::count(group));
  if (index == slot.range_count) return;
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
  if (kWithBlocks && (slot.features & kBlocks) != 0 && range.first_block != kUntracked) {
    const uint32_t block = static_cast<uint32_t>(offset >> kBlockShift);
    const uint32_t peers = lanes::match(group, block);
    if (lanes::index() == lanes::first(peers)) {
      lanes::add(slot.blocks + range.first_block + block, lanes::count(peers));
    }
  }
}

// Each active lane accesses `bytes` (a size class) at its own `address`.
template <bool kWithBlocks>
PASTA_DEVICE void reduce_objects(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address,
                                 uint32_t bytes, AccessKind kind) {
  const uint32_t counter = static_cast<uint32_t>(kind) * kSizeClasses + size_class(bytes);
  // One round for each object, or gap between objects, that the warp touches: nearly always one round.
  for (uint32_t pending = active; pending != 0;) {
    const Found found = find_range(slot, pc, lanes::broadcast(active, address, lanes::first(pending)));
    const bool member = address >= found.begin && address < found.end;
    const uint32_t group = lanes::ballot(active, member);
    pending &= (pending - 1) & ~group;  // without the leader whatever the table says: a patch must end
    if (member) reduce_object<kWithBlocks>(slot, group, found.index, address, bytes, counter);
  }
}

// One access to `bytes` consecutive bytes, of any size: by one lane, for itself or for its warp. No collectives.
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
  if ((slot.features & kBlocks) != 0 && range.first_block != kUntracked) {
    lanes::add(slot.blocks + range.first_block + (offset >> kBlockShift), 1);
  }
}

}  // namespace pasta::nvidia
