// Where the parts of a launch slot lie: device/nvidia/layout.h draws them, this computes their offsets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/sanitizer/objects.h"
#include "device/nvidia/layout.h"

namespace pasta::sanitizer {

// Entries of the hash tables of a slot.
inline constexpr uint32_t kSiteCapacity = 1024, kTensorMapCapacity = 64;
inline constexpr uint32_t kHotCapacity = 128, kFullHotCapacity = 4096;

struct SlotLayout {
  // Offsets in the front of the slot, which begins with the header.
  size_t live = 0, quick_counters = 0, quick_keys = 0, totals = 0, objects = 0, pages = 0, blocks = 0;
  size_t bytes = 0;
  // Offsets in its back, which begins with the trace; the same for all launches of a context.
  size_t hot = 0, tensor_maps = 0, sites = 0;
  size_t back_bytes = 0;
  uint32_t range_count = 0, hot_capacity = 0, tensor_map_capacity = 0, site_capacity = 0, trace_capacity = 0;
  uint32_t features = 0;
  bool full = false;  // which patches: full ones, or those for objects alone

  // Zero when a launch begins: the front from here on, and the back from there on.
  static constexpr size_t kCleared = nvidia::kSlotHeaderBytes;
  size_t back_cleared() const { return hot; }
  const nvidia::Quick& quick() const { return full ? nvidia::kQuickFull : nvidia::kQuickObjects; }

  // `trace_bytes` of a slot are for the trace.
  static SlotLayout of(const Snapshot& snapshot, uint32_t features, size_t trace_bytes = 0);
  // The arguments are device addresses.
  nvidia::SlotHeader header(void* front, void* back, const nvidia::Range* ranges) const;
};

}  // namespace pasta::sanitizer
