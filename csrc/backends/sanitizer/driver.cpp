#include "backends/sanitizer/driver.h"

#include <dlfcn.h>

#include <type_traits>

#include "schema/types.h"

namespace pasta::sanitizer {
namespace {

// Null when the program has no driver mapped, or it lacks the function.
template <class Function>
Function* find(const char* name) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(driver, name));
}

int32_t attribute(CUdevice_attribute which, int32_t device) {
  static const auto call = find<CUresult(int*, CUdevice_attribute, CUdevice)>("cuDeviceGetAttribute");
  int value = 0;
  return call != nullptr && call(&value, which, device) == CUDA_SUCCESS ? value : kNullI32;
}

int64_t size_attribute(CUdevice_attribute which, int32_t device) {
  const int32_t value = attribute(which, device);
  return value == kNullI32 ? kNullI64 : value;
}

}  // namespace

void make_current(CUcontext context) {
  static const auto call = find<CUresult(CUcontext)>("cuCtxSetCurrent");
  if (call != nullptr) call(context);
}

Encoders driver_encoders() {
  return {find<std::remove_pointer_t<decltype(Encoders::tiled)>>("cuTensorMapEncodeTiled"),
          find<std::remove_pointer_t<decltype(Encoders::im2col)>>("cuTensorMapEncodeIm2col")};
}

// What is launched may be a kernel of a library (CUkernel), of which there is a function in each context.
KernelFacts describe_kernel(CUfunction kernel) {
  static const auto get_module = find<CUresult(CUmodule*, CUfunction)>("cuFuncGetModule");
  static const auto get_function = find<CUresult(CUfunction*, CUkernel)>("cuKernelGetFunction");
  static const auto get_name = find<CUresult(const char**, CUfunction)>("cuFuncGetName");
  KernelFacts facts{};
  if (kernel == nullptr || get_module == nullptr) return facts;
  CUfunction function = kernel;
  if (get_module(&facts.module, function) != CUDA_SUCCESS) {
    const bool found = get_function != nullptr &&
                       get_function(&function, reinterpret_cast<CUkernel>(kernel)) == CUDA_SUCCESS &&
                       get_module(&facts.module, function) == CUDA_SUCCESS;
    if (!found) return {};
  }
  if (get_name == nullptr || get_name(&facts.name, function) != CUDA_SUCCESS) facts.name = nullptr;
  return facts;
}

DeviceFacts describe_device(int32_t device) {
  DeviceFacts facts{};
  char name[256] = "";
  const auto get_name = find<CUresult(char*, int, CUdevice)>("cuDeviceGetName");
  if (get_name != nullptr && get_name(name, sizeof(name), device) == CUDA_SUCCESS) facts.name = name;
  size_t bytes = 0;
  const auto get_memory = find<CUresult(size_t*, CUdevice)>("cuDeviceTotalMem_v2");
  const bool has_memory = get_memory != nullptr && get_memory(&bytes, device) == CUDA_SUCCESS;
  facts.memory_bytes = has_memory ? static_cast<int64_t>(bytes) : kNullI64;
  facts.multiprocessors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  facts.clock_khz = attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device);
  facts.shared_bytes = size_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device);
  facts.cache_bytes = size_attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
  const int32_t major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  const int32_t minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (major != kNullI32 && minor != kNullI32) facts.architecture = std::to_string(major) + "." + std::to_string(minor);
  int version = 0;
  const auto get_version = find<CUresult(int*)>("cuDriverGetVersion");
  if (get_version != nullptr && get_version(&version) == CUDA_SUCCESS) {
    facts.driver = "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
  return facts;
}

}  // namespace pasta::sanitizer
