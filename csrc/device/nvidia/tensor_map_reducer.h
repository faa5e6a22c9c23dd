// TMA accesses by tensor map: how often, and between which coordinates. The map is opaque on the device: the host,
// which may have seen it being encoded, tells its address, box and strides from its bytes.
#pragma once

#include "device/nvidia/lanes.h"
#include "device/nvidia/layout.h"
#include "device/nvidia/site_reducer.h"

namespace pasta::nvidia {

PASTA_DEVICE uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0xFF51AFD7ED558CCDull;
  return hash ^ (hash >> 32);
}

PASTA_DEVICE uint64_t tensor_map_hash(const uint64_t* words) {
  uint64_t hash = 0x2545F4914F6CDD1Dull;
  for (uint32_t i = 0; i < kTensorMapWords; ++i) hash = mix(hash, words[i]);
  return hash;
}

// Unsigned numbers in the order of the signed coordinates.
PASTA_DEVICE uint32_t ordered(int32_t coordinate) { return static_cast<uint32_t>(coordinate) ^ 0x80000000u; }
PASTA_DEVICE int32_t coordinate_of(uint32_t ordered_value) {
  return static_cast<int32_t>(ordered_value ^ 0x80000000u);
}

// One execution, by one lane for its warp.
PASTA_DEVICE void reduce_tensor_load(const SlotHeader& slot, uint64_t pc, const uint64_t* map,
                                     const int32_t (&coordinates)[kTensorRank], uint32_t mode) {
  const uint64_t key = mix(tensor_map_hash(map), pc) | 1;
  TensorMapEntry* const entry = find_entry(slot, slot.tensor_maps, slot.tensor_map_capacity, key);
  if (entry == nullptr) {
    lanes::add(&slot.totals->lost_tensor_maps, 1);
    return;
  }
  if (lanes::glance(&entry->executions) == 0) {  // else they were written: all that come here write the same
    for (uint32_t i = 0; i < kTensorMapWords; ++i) entry->map[i] = map[i];
    entry->pc = pc;
    entry->mode = mode;
  }
  lanes::add(&entry->executions, 1);
  for (uint32_t i = 0; i < kTensorRank; ++i) {
    const uint32_t place = ordered(coordinates[i]);
    if (place > lanes::peek(&entry->highest[i])) lanes::raise(&entry->highest[i], place);
    if (~place > lanes::peek(&entry->inverted_lowest[i])) lanes::raise(&entry->inverted_lowest[i], ~place);
  }
}

}  // namespace pasta::nvidia
