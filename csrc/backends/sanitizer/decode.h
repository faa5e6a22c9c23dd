// A slot, read back, to rows: pure functions, tested without a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/sanitizer/slot_layout.h"
#include "backends/sanitizer/tensor_maps.h"
#include "backends/sanitizer/trace_rows.h"
#include "schema/tables.h"

namespace pasta::sanitizer {

struct SiteRow {
  uint64_t pc;
  AccessSiteRecord row;  // without its site_id
};

struct DecodedSlot {
  std::vector<AccessObjectRecord> objects;
  std::vector<SiteRow> sites;
  std::vector<AccessBlockRecord> blocks;
  std::vector<AccessRow> accesses;
  // What is not in the rows.
  uint64_t lost_sites = 0;           // executions at instructions that found no room
  uint64_t lost_tensor_maps = 0;     // TMA loads that found no room
  uint64_t unknown_tensor_maps = 0;  // TMA loads whose map could not be read
  uint64_t coarse_tensor_maps = 0;   // TMA loads whose pages are not exact: im2col, very many rows
  uint64_t lost_accesses = 0;        // executions that found no room in the trace
  uint64_t untraced_tensors = 0;     // TMA loads, which have no rows in it
};

// `front` is changed: TMA loads are added to the objects that they read. `start_ns` is when the launch was queued.
// `back` may be null when nothing in it was used.
DecodedSlot decode_slot(uint8_t* front, uint8_t* back, SlotLayout layout, const Snapshot& snapshot, const TensorMaps& maps,
                        int64_t launch_id, int64_t start_ns);

struct PageCounts {
  int64_t small, medium, large;  // 4 KiB, 64 KiB, 2 MiB
};
// Of a bitmap whose first bit is the 4 KiB page of `begin`.
PageCounts count_pages(const uint32_t* bitmap, uint64_t begin, uint64_t end);

}  // namespace pasta::sanitizer
