// Per instruction: executions, lanes, bytes, the sectors that its accesses need, and shared memory's extra passes.
#pragma once

#include "device/nvidia/hot_counters.h"
#include "device/nvidia/lanes.h"
#include "device/nvidia/layout.h"

namespace pasta::nvidia {

inline constexpr uint32_t kBankBytes = 4;
inline constexpr uint32_t kPassBytes = 128;  // 32 banks: what shared memory gives in one pass

// An instruction that takes generic addresses has a site in each space that it reaches. Never 0.
PASTA_DEVICE uint64_t site_key(uint64_t pc, MemorySpace space) {
  return (pc << 2 | static_cast<uint64_t>(space)) + 1;
}
PASTA_DEVICE uint64_t site_pc(uint64_t key) { return (key - 1) >> 2; }
PASTA_DEVICE MemorySpace site_space(uint64_t key) { return static_cast<MemorySpace>((key - 1) & 3); }

// All that an execution of an access to device memory adds to its site, in the name of a hot counter: how often each
// shape was seen is one addition an execution, where the sums would be five.
struct SiteShape {
  uint64_t pc;
  AccessKind kind;
  uint32_t size_class, lanes, sectors;  // bytes of a lane as a power of two; 1..32; 1..32

  PASTA_DEVICE uint64_t name() const {
    return (pc >> 4) << 15 | static_cast<uint64_t>(kind) << 13 | size_class << 10 | (lanes - 1) << 5 | (sectors - 1);
  }
  PASTA_DEVICE static bool fits(uint64_t pc) { return pc >> 48 == 0 && (pc & 15) == 0; }
  PASTA_DEVICE static SiteShape of(uint64_t name) {
    const uint32_t low = static_cast<uint32_t>(name);
    return {(name >> 15) << 4, static_cast<AccessKind>(low >> 13 & 3), low >> 10 & 7, (low >> 5 & 31) + 1,
            (low & 31) + 1};
  }
  PASTA_DEVICE uint32_t bytes() const { return lanes << size_class; }
  // Accesses are aligned to their size, at most 32 bytes: each lies in one sector. A broadcast needs no more than it
  // takes, so the ideal is at most what was needed.
  PASTA_DEVICE uint32_t ideal_sectors() const {
    const uint32_t packed = (bytes() + (1u << kSectorShift) - 1) >> kSectorShift;
    return packed < sectors ? packed : sectors;
  }
};

struct SiteCounts {
  uint32_t lanes;
  uint64_t bytes, sectors, ideal_sectors, bank_conflicts;
};

// One execution, by one lane for its warp.
PASTA_DEVICE void count_site(const SlotHeader& slot, uint64_t pc, MemorySpace space, AccessKind kind,
                             const SiteCounts& counts) {
  SiteEntry* const entry = find_entry(slot, slot.sites, slot.site_capacity, site_key(pc, space));
  if (entry == nullptr) {
    lanes::add(&slot.totals->lost_sites, 1);
    return;
  }
  entry->kind = static_cast<uint32_t>(kind);
  const uint32_t seen = 1u << (counts.lanes - 1);
  if ((lanes::glance(&entry->lane_counts) & seen) == 0) lanes::set_bits(&entry->lane_counts, seen);
  lanes::add(&entry->executions, 1);
  lanes::add(&entry->lanes, counts.lanes);
  lanes::add(&entry->bytes, counts.bytes);
  if (counts.sectors != 0) lanes::add(&entry->sectors, counts.sectors);
  if (counts.ideal_sectors != 0) lanes::add(&entry->ideal_sectors, counts.ideal_sectors);
  if (counts.bank_conflicts != 0) lanes::add(&entry->bank_conflicts, counts.bank_conflicts);
}

// The number of different values among the active lanes.
template <class Value>
PASTA_DEVICE uint32_t count_distinct(uint32_t active, Value value) {
  const uint32_t peers = lanes::match(active, value);
  return lanes::count(lanes::ballot(active, lanes::index() == lanes::first(peers)));
}

// By one lane for its warp.
PASTA_DEVICE void count_shape(const SlotHeader& slot, const SiteShape& shape) {
  if (SiteShape::fits(shape.pc) && add_hot(slot, HotKind::site, shape.name(), 1)) return;
  count_site(slot, shape.pc, MemorySpace::global, shape.kind,
             {shape.lanes, shape.bytes(), shape.sectors, shape.ideal_sectors(), 0});
}

// Each active lane accesses `bytes` (a size class) at its own `address`.
PASTA_DEVICE void reduce_global_site(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address,
                                     uint32_t bytes, AccessKind kind) {
  const uint32_t sectors = count_distinct(active, address >> kSectorShift);
  if (lanes::index() != lanes::first(active)) return;
  count_shape(slot, {pc, kind, lanes::last(bytes), lanes::count(active), sectors});
}

// Passes that shared memory needs for one warp's access: lanes are served in groups that fill 128 bytes (half a
// warp at 8 bytes a lane, a quarter at 16); within a group, each bank gives one word a pass.
PASTA_DEVICE uint32_t shared_passes(uint32_t active, uint32_t address, uint32_t bytes) {
  const uint32_t width = bytes < kBankBytes ? kBankBytes : bytes;
  const uint32_t lanes_a_group = kPassBytes / width < 32 ? kPassBytes / width : 32;
  const uint32_t group = lanes::index() / lanes_a_group;
  const uint32_t word = address / width, banks = kPassBytes / width;
  const uint64_t place = static_cast<uint64_t>(group) << 32;
  const uint32_t peers = lanes::match(active, place | word);
  const bool leads = lanes::index() == lanes::first(peers);
  const uint32_t words = lanes::ballot(active, leads);
  const uint32_t of_bank = lanes::match(active, place | (word % banks));
  const uint32_t degree = leads ? lanes::count(of_bank & words) : 0;
  uint32_t passes = 0;
  for (uint32_t g = 0; g < 32 / lanes_a_group; ++g) {
    // The largest degree of the group, found from its highest bit down.
    uint32_t candidates = lanes::ballot(active, leads && group == g), largest = 0;
    for (int bit = 5; bit >= 0; --bit) {
      const uint32_t with = lanes::ballot(active, ((degree >> bit) & 1) != 0) & candidates;
      if (with != 0) {
        candidates = with;
        largest |= 1u << bit;
      }
    }
    passes += largest;
  }
  return passes;
}

PASTA_DEVICE void reduce_shared_site(const SlotHeader& slot, uint32_t active, uint64_t pc, uint32_t address,
                                     uint32_t bytes, AccessKind kind) {
  const uint32_t passes = shared_passes(active, address, bytes);
  if (lanes::index() != lanes::first(active)) return;
  const uint32_t total = lanes::count(active) * bytes;
  const uint32_t ideal = (total + kPassBytes - 1) / kPassBytes;
  count_site(slot, pc, MemorySpace::shared, kind,
             {lanes::count(active), total, 0, 0, passes > ideal ? passes - ideal : 0u});
}

// Accesses of which only the size is known: local memory, whose addresses are interleaved by the hardware, and
// other blocks' shared memory.
PASTA_DEVICE void reduce_plain_site(const SlotHeader& slot, uint32_t active, uint64_t pc, MemorySpace space,
                                    uint32_t bytes, AccessKind kind) {
  if (lanes::index() != lanes::first(active)) return;
  const uint32_t total = lanes::count(active) * bytes;
  count_site(slot, pc, space, kind, {lanes::count(active), total, 0, 0, 0});
}

// One execution for a whole warp, of consecutive bytes.
PASTA_DEVICE void reduce_span_site(const SlotHeader& slot, uint64_t pc, uint64_t address, uint64_t bytes,
                                   AccessKind kind) {
  const uint64_t sectors =
      bytes == 0 ? 0 : ((address + bytes - 1) >> kSectorShift) - (address >> kSectorShift) + 1;
  count_site(slot, pc, MemorySpace::global, kind, {1, bytes, sectors, sectors, 0});
}

}  // namespace pasta::nvidia
