// The few calls of the CUDA driver that pasta makes itself: never from a callback, where the driver may hold its locks,
// but for that of a call of the program that is about to begin.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "backends/sanitizer/tensor_map_decoder.h"

namespace pasta::sanitizer {

// Makes the context current on this thread, where the driver is found.
void make_current(CUcontext context);

Encoders driver_encoders();

// A kernel in the current context, which is loaded if it was not; nulls for what is not known.
struct KernelFacts {
  CUmodule module;
  const char* name;  // mangled; since CUDA 12.3
};
KernelFacts describe_kernel(CUfunction kernel);

// What the driver tells about a device; nulls (schema/types.h) and empty texts for what it does not.
struct DeviceFacts {
  std::string name, architecture, driver;
  int64_t memory_bytes, shared_bytes, cache_bytes;
  int32_t multiprocessors, clock_khz;
};
DeviceFacts describe_device(int32_t device);

}  // namespace pasta::sanitizer
