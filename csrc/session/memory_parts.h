// What a framework's allocator gives out of the memory of a device (tensors), for the backend that attributes accesses
// to memory objects: it is told at once, on the thread of the framework, so that a launch finds what is in use then.
#pragma once

#include <atomic>
#include <cstdint>

#include "schema/types.h"

namespace pasta {

// Both return the part's id, kNullI64 when the backend does not know of it.
struct MemoryParts {
  int64_t (*made)(uint64_t address, uint64_t bytes);
  int64_t (*gone)(uint64_t address);
};

// Of the one backend that wants to know; null when there is none.
inline std::atomic<const MemoryParts*> memory_parts{nullptr};

}  // namespace pasta
