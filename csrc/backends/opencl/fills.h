// Rows of `memset`.
#pragma once

#include <cstdint>

#include "backends/opencl/objects.h"

namespace pasta::opencl {

inline MemsetRecord fill_record(const MemoryObject& object, int64_t bytes, int64_t value) {
  MemsetRecord row;
  row.bytes = bytes;
  row.value = value;
  row.object_id = object.object_id;
  row.memory_kind = object.kind;
  return row;
}

}  // namespace pasta::opencl
