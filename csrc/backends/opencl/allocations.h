// Memory objects as they come and go: their rows of `alloc`.
#pragma once

#include <cstdint>

#include "backends/opencl/api_call.h"
#include "backends/opencl/cl_api.h"
#include "backends/opencl/entry.h"
#include "backends/opencl/objects.h"

namespace pasta::opencl {

// A buffer, image or pipe that the program has just made. Its free is written when the driver
// destroys it.
void add_memory(Entry allocator, const ApiCall& call, cl_context context, cl_mem object);

// An SVM or USM allocation of `bytes` at `pointer`; `device` may be null (any of the context).
void add_pointer(Entry allocator, const ApiCall& call, cl_context context, cl_device_id device,
                 MemoryKind kind, const void* pointer, size_t bytes);

// The allocation at `pointer` is freed by this call. No row for a pointer that is not known.
void free_pointer(const ApiCall& call, const void* pointer);

}  // namespace pasta::opencl
