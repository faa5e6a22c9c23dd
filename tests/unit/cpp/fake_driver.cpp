// As much of libcuda.so.1 as tells the module and the name of a kernel.
#include "fake_driver.h"

#include "doors/export.h"

namespace {

constexpr int kSuccess = 0, kInvalidHandle = 400;

const fake::KernelHandle& kernel_of(uintptr_t function) {
  return *reinterpret_cast<const fake::KernelHandle*>(function - 1);
}

}  // namespace

PASTA_EXPORT int cuFuncGetModule(uintptr_t* module, uintptr_t function) {
  if (function % 2 == 0) return kInvalidHandle;
  *module = kernel_of(function).module;
  return kSuccess;
}

PASTA_EXPORT int cuFuncGetName(const char** name, uintptr_t function) {
  *name = kernel_of(function).name;
  return *name != nullptr ? kSuccess : kInvalidHandle;
}

PASTA_EXPORT int cuKernelGetFunction(uintptr_t* function, uintptr_t kernel) {
  *function = kernel + 1;
  return kSuccess;
}
