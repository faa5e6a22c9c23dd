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
  uint64_t damaged = 0;              // counters that are none: something else wrote there
};

// `start_ns` is when the launch was queued. The marks are changed: what TMA loads read is marked there. Tables, objects
// and trace may be null when nothing in them was used.
DecodedSlot decode_slot(const SlotParts& slot, SlotLayout layout, const Snapshot& snapshot, const TensorMaps& maps,
                        int64_t launch_id, int64_t start_ns);

}  // namespace pasta::sanitizer
