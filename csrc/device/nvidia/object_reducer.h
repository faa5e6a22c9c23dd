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

PASTA_DEVICE void mark_page(uint32_t* bitmap, uint64_t page) {
  uint32_t* const word = bitmap + page / 32;
  const uint32_t bit = 1u << (page % 32);
  if ((lanes::peek(word) & bit) == 0) lanes::set_bits(word, bit);
}

// Pages are those of the address space, numbered from the one that holds the range's first byte.
PASTA_DEVICE uint64_t page_of(uint64_t begin, uint64_t address) {
  return (address >> kPageShift) - (begin >> kPageShift);
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

// Each active lane accesses `bytes` (a size class) at its own `address`.
template <bool kWithBlocks>
PASTA_DEVICE void reduce_objects(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address,
                                 uint32_t bytes, AccessKind kind) {
  const uint32_t lane = lanes::index();
  // One round for each object, or gap between objects, that the warp touches: nearly always one round.
  for (uint32_t pending = active; pending != 0;) {
    const uint64_t leading = lanes::broadcast(active, address, lanes::first(pending));
    const Found found = find_range(slot, pc, leading);
    const bool member = address >= found.begin && address < found.end;
    const uint32_t group = lanes::ballot(active, member);
    pending &= ~group;
    if (!member) continue;
    ObjectCounters& counters = slot.objects[found.index];
    const bool leader = lane == lanes::first(group);
    if (leader) lanes::add(&counters.lanes[static_cast<uint32_t>(kind)][size_class(bytes)], lanes::count(group));
    if (found.index == slot.range_count) continue;

    const Range range = slot.ranges[found.index];
    const uint64_t offset = address - range.begin;
    const uint64_t end = lanes::peek(&counters.end), inverted_first = lanes::peek(&counters.inverted_first);
    if (range.page_word != kUntracked) mark_page(slot.pages + range.page_word, page_of(range.begin, address));
    if (lanes::ballot(group, offset + bytes > end) != 0) {
      raise_to_largest(group, lanes::last(group), &counters.end, offset + bytes);
    }
    if (lanes::ballot(group, ~offset > inverted_first) != 0) {
      raise_to_largest(group, lanes::first(group), &counters.inverted_first, ~offset);
    }
    if (kWithBlocks && range.first_block != kUntracked) {
      const uint64_t block = offset >> kBlockShift;
      const uint32_t peers = lanes::match(group, block);
      if (lane == lanes::first(peers)) lanes::add(slot.blocks + range.first_block + block, lanes::count(peers));
    }
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
    const uint64_t last = page_of(range.begin, end - 1);
    for (uint64_t page = page_of(range.begin, address); page <= last; ++page) {
      mark_page(slot.pages + range.page_word, page);
    }
  }
  if ((slot.features & kBlocks) != 0 && range.first_block != kUntracked) {
    lanes::add(slot.blocks + range.first_block + (offset >> kBlockShift), 1);
  }
}

}  // namespace pasta::nvidia
