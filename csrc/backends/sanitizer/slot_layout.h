// Where the parts of a launch slot lie: device/nvidia/layout.h draws them, this computes their offsets.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/sanitizer/objects.h"
#include "device/nvidia/layout.h"

namespace pasta::sanitizer {

// Entries of the hash tables of a slot.
inline constexpr uint32_t kSiteCapacity = 1024, kTensorMapCapacity = 64;

struct SlotLayout {
  // Offsets in the body of the slot, which is zero when a launch begins; the header lies elsewhere.
  size_t totals = 0, objects = 0, pages = 0, blocks = 0, tensor_maps = 0, sites = 0;
  size_t bytes = 0;
  uint32_t range_count = 0, tensor_map_capacity = 0, site_capacity = 0, features = 0;

  static SlotLayout of(const Snapshot& snapshot, uint32_t features);
  // `body` and `ranges` are device addresses.
  nvidia::SlotHeader header(void* body, const nvidia::Range* ranges) const;
};

}  // namespace pasta::sanitizer
