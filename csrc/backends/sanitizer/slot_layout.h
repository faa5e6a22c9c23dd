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

// The parts of a slot: device addresses, or those of a copy.
struct SlotParts {
  uint8_t *front = nullptr, *marks = nullptr, *tables = nullptr, *objects = nullptr, *trace = nullptr;
};

struct SlotSizes {
  size_t front = 0, marks = 0, tables = 0, objects = 0, trace = 0;

  size_t all() const { return front + marks + tables + objects + trace; }
  bool fit(const SlotSizes& room) const {
    return front <= room.front && marks <= room.marks && tables <= room.tables && objects <= room.objects &&
           trace <= room.trace;
  }
};

inline constexpr nvidia::Range kNoRange{UINT64_MAX, UINT64_MAX, nvidia::kUntracked, nvidia::kUntracked};
// At least `count`, in steps of a quarter of a power of two.
size_t stepped(size_t count, size_t least);

struct SlotLayout {
  SlotSizes bytes;
  // Offsets in the front, which begins with the header, in the marks and in the tables.
  size_t live = 0, totals = 0;
  size_t pages = 0, blocks = 0;
  size_t hot = 0, tensor_maps = 0, sites = 0;
  uint64_t begin = 0, end = 0;  // of all ranges together
  uint32_t range_count = 0, hot_capacity = 0, tensor_map_capacity = 0, site_capacity = 0, trace_capacity = 0;
  uint32_t features = 0;
  bool full = false;  // which patches: full ones, or those for objects alone

  // When a launch begins the front is zero from `cleared()` on, and so is all else but the trace; before it are the
  // header, and from kHintsAt on the hints and quick keys that earlier launches left, or zeros.
  static constexpr size_t kHintsAt = nvidia::kSlotHeaderBytes;
  size_t cleared() const { return quick().counters_at; }
  const nvidia::Quick& quick() const { return full ? nvidia::kQuickFull : nvidia::kQuickObjects; }

  // `trace_bytes` of a slot are for the trace. There is room for some more ranges than there are now, so that the
  // layout mostly stays when there are more; from the last one to range_count there are none (kNoRange).
  static SlotLayout of(const Cuts& cuts, uint32_t features, size_t trace_bytes = 0);
  // Of a slot at device addresses.
  nvidia::SlotHeader header(const SlotParts& slot, const nvidia::Range* ranges) const;
};

}  // namespace pasta::sanitizer
