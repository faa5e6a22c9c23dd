// Counters that warps on all multiprocessors add to at once and that are no quick ones, spread over replicas: additions
// to one address are done one after the other.
//
// Which counter an addition is for is its key, so that one small table serves objects and sites. Where the
// table has no room near a key's place, the caller adds to the counter that all share.
#pragma once

#include "device/nvidia/lanes.h"
#include "device/nvidia/layout.h"

namespace pasta::nvidia {

PASTA_DEVICE uint32_t hash_slot(uint64_t key, uint32_t capacity) {
  return static_cast<uint32_t>((key * 0x9E3779B97F4A7C15ull) >> 32) & (capacity - 1);
}

// The place of `key` among these keys, claimed if need be; all bits when there is no room near its own.
PASTA_DEVICE uint32_t find_key(uint64_t* keys, uint32_t capacity, uint64_t key, uint32_t probes) {
  uint32_t at = hash_slot(key, capacity);
  for (uint32_t probe = 0; probe < probes; ++probe) {
    uint64_t present = lanes::glance(keys + at);  // a key, once there, stays
    if (present == 0) present = lanes::claim(keys + at, key);
    if (present == key || present == 0) return at;
    at = (at + 1) & (capacity - 1);
  }
  return UINT32_MAX;
}

// The entry of `key` in an open hash table among the slot's tables, likewise; null when there is no room.
template <class Entry>
PASTA_DEVICE Entry* find_entry(const SlotHeader& slot, Entry* entries, uint32_t capacity, uint64_t key,
                               uint32_t probes = kMaxProbes) {
  if (capacity == 0) return nullptr;
  if (lanes::glance(&slot.totals->tables_used) == 0) slot.totals->tables_used = 1;
  uint32_t at = hash_slot(key, capacity);
  for (uint32_t probe = 0; probe < probes && probe < capacity; ++probe) {
    uint64_t present = lanes::glance(&entries[at].key);  // a key, once there, stays
    if (present == 0) present = lanes::claim(&entries[at].key, key);
    if (present == key || present == 0) return entries + at;
    at = (at + 1) & (capacity - 1);
  }
  return nullptr;
}

inline constexpr uint32_t kHotReplicas = 8;

// What a hot counter counts. A name has 59 bits.
enum class HotKind : uint32_t {
  part = 0,    // executions by some lanes of a warp; named by part_name()
  object = 1,  // lanes; named by object_name()
  site = 2,    // executions; named by SiteShape::name()
};

PASTA_DEVICE uint64_t hot_key(HotKind kind, uint64_t name, uint32_t replica) {
  return name << 5 | replica << 2 | static_cast<uint32_t>(kind);
}
PASTA_DEVICE HotKind hot_kind(uint64_t key) { return static_cast<HotKind>(key & 3); }
PASTA_DEVICE uint64_t hot_name(uint64_t key) { return key >> 5; }

inline constexpr uint32_t kCountersOfObject = kAccessKinds * kSizeClasses;  // those that count lanes
PASTA_DEVICE uint64_t object_name(uint32_t index, uint32_t counter) {
  return uint64_t{index} * kCountersOfObject + counter;
}

// What a quick counter of full patches would count, were it of a full warp. Never 0: else a key might be.
PASTA_DEVICE uint64_t part_name(uint32_t place, uint32_t lanes, uint32_t sectors) {
  return (uint64_t{place} << 10 | (lanes - 1) << 5 | (sectors - 1)) + 1;
}
struct Part {
  uint32_t place, lanes, sectors;
};
PASTA_DEVICE Part part_of(uint64_t name) {
  const uint64_t bits = name - 1;
  return {static_cast<uint32_t>(bits >> 10), (static_cast<uint32_t>(bits) >> 5 & 31) + 1,
          (static_cast<uint32_t>(bits) & 31) + 1};
}

// By one lane for its warp. False: there is no room.
PASTA_DEVICE bool add_hot(const SlotHeader& slot, HotKind kind, uint64_t name, uint64_t value) {
  const uint64_t key = hot_key(kind, name, lanes::multiprocessor() % kHotReplicas);
  HotCounter* const counter = find_entry(slot, slot.hot, slot.hot_capacity, key, kHotProbes);
  if (counter == nullptr) return false;
  lanes::add(&counter->count, value);
  return true;
}

}  // namespace pasta::nvidia
