#include "backends/sanitizer/trace_rows.h"

#include <algorithm>

#include "device/nvidia/trace_writer.h"

namespace pasta::sanitizer {
namespace {

// The lanes of one record that are evenly spaced.
struct Run {
  uint32_t lanes;
  uint64_t address, stride;
};

AccessRow to_row(const nvidia::TraceRecord& record, const Run& run, int64_t launch_id, int64_t execution) {
  AccessRow access{nvidia::traced_pc(record.what), {}};
  access.row.launch_id = launch_id;
  access.row.execution = execution;
  access.row.kind = to_site_kind(static_cast<uint32_t>(nvidia::traced_kind(record.what)));
  access.row.space = to_space(nvidia::traced_space(record.what));
  access.row.lanes = run.lanes;
  access.row.address = static_cast<int64_t>(run.address);
  access.row.stride = static_cast<int64_t>(run.stride);
  access.row.bytes = record.bytes;
  return access;
}

// Takes the longest run that the first of `addresses` begins, and its lanes from `lanes`.
Run take_run(const uint64_t* addresses, uint32_t& lanes) {
  const uint32_t count = nvidia::lanes::count(lanes);
  const auto take_lane = [&lanes] {
    const uint32_t lane = lanes & -lanes;
    lanes ^= lane;
    return lane;
  };
  Run run{take_lane(), addresses[0], count > 1 ? addresses[1] - addresses[0] : 0};
  for (uint32_t i = 1; i < count && addresses[i] - addresses[i - 1] == run.stride; ++i) run.lanes |= take_lane();
  return run;
}

}  // namespace

AccessSiteKind to_site_kind(uint32_t kind) {
  switch (static_cast<nvidia::AccessKind>(kind)) {
    case nvidia::AccessKind::load: return AccessSiteKind::load;
    case nvidia::AccessKind::store: return AccessSiteKind::store;
    case nvidia::AccessKind::atomic: return AccessSiteKind::atomic;
  }
  return AccessSiteKind::unknown;
}

Space to_space(nvidia::MemorySpace space) {
  switch (space) {
    case nvidia::MemorySpace::global: return Space::global;
    case nvidia::MemorySpace::shared: return Space::shared;
    case nvidia::MemorySpace::local: return Space::local;
  }
  return Space::unknown;
}

std::vector<AccessRow> trace_rows(const nvidia::SlotHeader& slot, int64_t launch_id) {
  std::vector<AccessRow> rows;
  const uint64_t end = std::min<uint64_t>(slot.totals->trace_wanted, slot.trace_capacity);
  int64_t execution = 0;
  for (uint64_t at = 0; at < end && slot.trace[at].lanes != 0; ++execution) {
    const nvidia::TraceRecord& record = slot.trace[at++];
    if (!nvidia::traced_scattered(record.what)) {
      const Run run{record.lanes, record.address, static_cast<uint64_t>(record.stride)};
      rows.push_back(to_row(record, run, launch_id, execution));
      continue;
    }
    const uint64_t* addresses = reinterpret_cast<const uint64_t*>(slot.trace + at);
    for (uint32_t lanes = record.lanes; lanes != 0;) {
      const Run run = take_run(addresses, lanes);
      rows.push_back(to_row(record, run, launch_id, execution));
      addresses += nvidia::lanes::count(run.lanes);
    }
    at += (nvidia::lanes::count(record.lanes) + nvidia::kLanesOfRecord - 1) / nvidia::kLanesOfRecord;
  }
  return rows;
}

}  // namespace pasta::sanitizer
