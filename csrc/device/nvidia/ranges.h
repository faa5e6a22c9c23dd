// Which memory object holds an address: a search in the sorted range table, the end of the range checked.
#pragma once

#include "device/nvidia/lanes.h"
#include "device/nvidia/layout.h"

namespace pasta::nvidia {

struct Found {
  uint32_t index;       // of the range, or of the counters of unknown addresses when there is none
  uint64_t begin, end;  // of the range, or of the gap between two ranges: what is in it has the same answer
};

// The last range that begins at or below `address`; range_count when there is none.
PASTA_DEVICE uint32_t last_beginning_below(const Range* ranges, uint32_t range_count, uint64_t address) {
  uint32_t low = 0, high = range_count;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (ranges[middle].begin <= address) low = middle + 1;
    else high = middle;
  }
  return low == 0 ? range_count : low - 1;
}

PASTA_DEVICE Found find_range(const Range* ranges, uint32_t range_count, uint64_t address) {
  const uint32_t below = last_beginning_below(ranges, range_count, address);
  if (below == range_count) return {range_count, 0, range_count == 0 ? UINT64_MAX : ranges[0].begin};
  const Range range = ranges[below];
  if (address < range.end) return {below, range.begin, range.end};
  return {range_count, range.end, below + 1 == range_count ? UINT64_MAX : ranges[below + 1].begin};
}

// The same, trying first a range that may be the one.
PASTA_DEVICE Found find_range(const SlotHeader& slot, uint32_t guess, uint64_t address) {
  if (guess < slot.range_count) {
    const Range range = slot.ranges[guess];
    if (address >= range.begin && address < range.end) return {guess, range.begin, range.end};
  }
  return find_range(slot.ranges, slot.range_count, address);
}

// Below or above all ranges: so are most addresses of no object, as of copies that only write zeros.
PASTA_DEVICE bool is_outside(const SlotHeader& slot, uint64_t address) {
  return address < slot.begin || address >= slot.end;
}

}  // namespace pasta::nvidia
