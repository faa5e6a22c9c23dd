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

// Each lane of `active` accesses `bytes` (a size class) at its own `address`.
PASTA_DEVICE void reduce_all_slowly(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address,
                                    uint32_t bytes, uint32_t shape, AccessKind kind) {
  const uint32_t counter = counter_of(kind, bytes), sectors = count_distinct(active, address >> kSectorShift);
  const uint32_t guess = hinted_range(slot, static_cast<uint32_t>(pc));
  bool counted = false;  // with the site
  for (uint32_t pending = active; pending != 0;) {
    const Found found = find_range(slot, guess, lanes::broadcast(active, address, lanes::first(pending)));
    const bool member = address >= found.begin && address < found.end;
    const uint32_t group = lanes::ballot(active, member);
    pending &= (pending - 1) & ~group;
    if (!member) continue;
    const bool known = found.index != slot.range_count;
    if (known) {
      touch<true>(slot, group, found.index, address, bytes);
      count_blocks(slot, group, found.index, address);
    }
    if (lanes::rank(group) != 0) continue;
    const uint32_t place = known ? quick_place<true>(slot, pc, shape, found.index, counter) : kNone;
    counted = place != kNone && group == 0xffffffff;
    if (counted) lanes::add(quick_counter<true>(slot, place, sectors - 1), 1);
    else count_lanes(slot, found.index, counter, lanes::count(group));
  }
  if (lanes::rank(active) != 0 || counted) return;
  count_shape(slot, {pc, kind, size_class(bytes), lanes::count(active), sectors});
}

}  // namespace pasta::nvidia
