// Objects, blocks and sites of one access together: what they share is looked up once.
#pragma once

#include "device/nvidia/object_reducer.h"
#include "device/nvidia/site_reducer.h"

namespace pasta::nvidia {

// A settled access has up to three hot counters, of its object, its site and its block. As many lanes add to one each,
// at the same time.
PASTA_DEVICE void count_settled(const SlotHeader& slot, uint32_t active, uint64_t pc, uint32_t bytes, AccessKind kind,
                                uint32_t index, uint32_t block, uint32_t sectors) {
  const uint32_t count = lanes::count(active);
  for (uint32_t part = lanes::rank(active); part < 3; part += count) {
    if (part == 0) {
      count_lanes(slot, index, counter_of(kind, bytes), count);
    } else if (part == 1) {
      count_shape(slot, {pc, kind, size_class(bytes), count, sectors});
    } else if (block != kUntracked) {
      count_block(slot, block, count);
    }
  }
}

// Each active lane accesses `bytes` (a size class) at its own `address`.
PASTA_DEVICE void reduce_all(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address, uint32_t bytes,
                             AccessKind kind) {
  const Settled here = look<true>(slot, pc, address, bytes);
  const uint32_t of_range = static_cast<uint32_t>(here.offset >> kBlockShift);
  const uint32_t block = here.first_block == kUntracked ? kUntracked : here.first_block + of_range;
  const uint64_t where = uint64_t{block} << 32 | (here.settled ? here.index : kUntracked);
  if (lanes::agree(active, where) && here.settled) {
    // Sectors of one object have different low halves, up to 128 GiB.
    const uint32_t sectors = count_distinct(active, static_cast<uint32_t>(address >> kSectorShift));
    count_settled(slot, active, pc, bytes, kind, here.index, block, sectors);
    return;
  }
  reduce_unsettled<true>(slot, active, pc, address, bytes, counter_of(kind, bytes));
  reduce_global_site(slot, active, pc, address, bytes, kind);
}

}  // namespace pasta::nvidia
