// As much of libcuda.so.1 as tells the module of a kernel, of the handles in test_sanitizer_sampling.cpp: functions are
// odd, kernels of libraries even, and both have the module's number in their upper half.
#include <cstdint>

#include "doors/export.h"

namespace {
constexpr int kSuccess = 0, kInvalidHandle = 400;
}

PASTA_EXPORT int cuFuncGetModule(uintptr_t* module, uintptr_t function) {
  if (function % 2 == 0) return kInvalidHandle;
  *module = function >> 32;
  return kSuccess;
}

PASTA_EXPORT int cuKernelGetFunction(uintptr_t* function, uintptr_t kernel) {
  *function = kernel | 1;
  return kSuccess;
}
