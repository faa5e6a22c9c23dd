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

// Pages that were touched, counted over bitmaps in the order of their addresses: where one range ends within a page and
// the next begins there, the page is one.
class PageCounts {
 public:
  // A bitmap whose first bit is the 4 KiB page of `begin`.
  void add(const uint32_t* bitmap, uint64_t begin, uint64_t end);

  int64_t small = 0, medium = 0, large = 0;  // 4 KiB, 64 KiB, 2 MiB

 private:
  uint64_t next_small_ = 0;  // 4 KiB pages below are counted, as far as they are touched
  uint64_t next_medium_ = 0, next_large_ = 0;  // likewise
};

}  // namespace pasta::sanitizer
