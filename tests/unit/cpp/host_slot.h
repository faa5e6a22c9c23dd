// A memory object, and a launch slot with its range table in host memory, for patches and decoding that run there.
#pragma once

#include <vector>

#include "backends/sanitizer/decode.h"
#include "backends/sanitizer/objects.h"
#include "backends/sanitizer/slot_layout.h"

// Device memory.
inline pasta::sanitizer::MemoryObject object(int64_t id, uint64_t begin, uint64_t bytes) {
  return {id, begin, begin + bytes, pasta::MemoryKind::device, 0};
}

class HostSlot {
 public:
  HostSlot() = default;
  HostSlot(const pasta::sanitizer::Cuts& cuts, const pasta::sanitizer::SlotLayout& of)
      : layout(of), ranges_(cuts.ranges), memory_(of.bytes.all() / sizeof(Line)) {
    ranges_.resize(of.range_count, pasta::sanitizer::kNoRange);
    header() = layout.header(parts(), ranges_.data());
  }

  pasta::nvidia::SlotHeader& header() { return *reinterpret_cast<pasta::nvidia::SlotHeader*>(memory_.data()); }

  uint64_t* quick_keys() { return reinterpret_cast<uint64_t*>(parts().front + layout.quick().keys_at); }

  pasta::sanitizer::SlotParts parts() {
    pasta::sanitizer::SlotParts parts;
    auto* at = reinterpret_cast<uint8_t*>(memory_.data());
    parts.front = at;
    parts.marks = at += layout.bytes.front;
    parts.tables = at += layout.bytes.marks;
    parts.objects = at += layout.bytes.tables;
    parts.trace = at += layout.bytes.objects;
    return parts;
  }
  // Of a copy, without the parts that the launch says it has not used when `used_alone`.
  pasta::sanitizer::DecodedSlot decode(const pasta::sanitizer::Snapshot& snapshot,
                                       const pasta::sanitizer::TensorMaps& maps, bool used_alone = false) {
    const pasta::nvidia::Totals& totals = *header().totals;
    HostSlot copy = *this;
    pasta::sanitizer::SlotParts parts = copy.parts();
    if (used_alone && totals.tables_used == 0) parts.tables = nullptr;
    if (used_alone && totals.objects_used == 0) parts.objects = nullptr;
    return pasta::sanitizer::decode_slot(parts, layout, snapshot, maps, 77, 1234);
  }

  pasta::sanitizer::SlotLayout layout;

 private:
  struct alignas(128) Line {
    uint8_t bytes[128];
  };
  std::vector<pasta::nvidia::Range> ranges_;
  std::vector<Line> memory_;
};
