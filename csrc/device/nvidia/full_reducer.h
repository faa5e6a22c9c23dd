// Objects, blocks and sites of one access together.
#pragma once

#include "device/nvidia/object_reducer.h"
#include "device/nvidia/site_reducer.h"

namespace pasta::nvidia {

// The rest of an access that the quick way does not count, all in range `index`, whose touches it has said.
PASTA_DEVICE void reduce_touched(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address,
                                 uint32_t bytes, AccessKind kind, uint32_t index) {
  // A range with pages lies between two multiples of 4 GiB.
  const uint32_t sectors = count_distinct(active, static_cast<uint32_t>(address) >> kSectorShift);
  count_blocks(slot, active, index, address);
  if (lanes::rank(active) != 0) return;
  count_lanes(slot, index, counter_of(kind, bytes), lanes::count(active));
  count_shape(slot, {pc, kind, size_class(bytes), lanes::count(active), sectors});
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
