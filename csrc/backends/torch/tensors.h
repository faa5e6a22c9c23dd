// Tensor allocations: rows of `tensor` from the two functions through which torch's allocators
// report to a profiler, with the program's own torch.profiler left as it would be without pasta.
//
// The CPU allocator asks c10::memoryProfilingEnabled() first, keeps its books (size of each block,
// total) only while that is true, and then calls c10::reportMemoryUsageToProfiler(). Every other
// allocator, and memory-mapped storage, reports without asking and keeps its own totals.
#pragma once

#include <cstddef>
#include <cstdint>

#include "schema/tables.h"

namespace pasta::torch {

// c10::Device.
struct Device {
  int8_t type;
  int8_t index;  // -1: the current one
};

// Bodies of the functions that the door puts in front of torch's.
bool memory_profiling_enabled();
void report_memory_usage(void* address, int64_t bytes, size_t allocated, size_t reserved,
                         Device device);

// The row for one report, but for its time, thread and operator. `bytes` is negative for a free.
// `keeps_total`: the allocator asked first, so that its total holds (on a CPU; elsewhere it always
// does).
TensorRecord tensor_record(const void* address, int64_t bytes, size_t allocated, size_t reserved,
                           Device device, bool keeps_total);
// Name of a c10::DeviceType ("cpu", "cuda", ...); "other" for one that is newer than this list.
const char* device_type_name(int8_t type);

// In the child of a fork.
void forget_tensors();

// torch has asked or reported at least once: its calls do come through our functions.
bool saw_tensors();

}  // namespace pasta::torch
