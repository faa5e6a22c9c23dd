// The trace of a launch, read back, to rows of `access`; and what patches call kinds and spaces in the schema's words.
#pragma once

#include <cstdint>
#include <vector>

#include "device/nvidia/layout.h"
#include "schema/tables.h"

namespace pasta::sanitizer {

AccessSiteKind to_site_kind(uint32_t kind);
Space to_space(nvidia::MemorySpace space);

struct AccessRow {
  uint64_t pc;
  AccessRecord row;  // without its site_id
};

// `slot` is in host memory.
std::vector<AccessRow> trace_rows(const nvidia::SlotHeader& slot, int64_t launch_id);

}  // namespace pasta::sanitizer
