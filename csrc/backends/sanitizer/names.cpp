#include "backends/sanitizer/names.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "session/session.h"

namespace pasta::sanitizer {
namespace {

std::string demangle(const std::string& mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? text.get() : mangled;
}

// The few driver calls that describe a device.
struct Driver {
  decltype(&cuDeviceGetName) name;
  decltype(&cuDeviceGetAttribute) attribute;
  CUresult (*memory)(size_t*, CUdevice);
  CUresult (*version)(int*);

  static Driver find() {
    // The program has it mapped: it is what called us.
    void* const handle = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    const auto symbol = [handle](const char* text) { return handle == nullptr ? nullptr : dlsym(handle, text); };
    return {reinterpret_cast<decltype(&cuDeviceGetName)>(symbol("cuDeviceGetName")),
            reinterpret_cast<decltype(&cuDeviceGetAttribute)>(symbol("cuDeviceGetAttribute")),
            reinterpret_cast<CUresult (*)(size_t*, CUdevice)>(symbol("cuDeviceTotalMem_v2")),
            reinterpret_cast<CUresult (*)(int*)>(symbol("cuDriverGetVersion"))};
  }
};

int32_t attribute(const Driver& driver, CUdevice_attribute which, int32_t device) {
  int value = 0;
  if (driver.attribute == nullptr || driver.attribute(&value, which, device) != CUDA_SUCCESS) return kNullI32;
  return value;
}

}  // namespace

const KernelName& Names::kernel(const char* mangled) {
  std::lock_guard lock(mutex_);
  const auto [at, fresh] = kernels_.try_emplace(mangled == nullptr ? "" : mangled);
  Entry& entry = at->second;
  if (fresh) {
    entry.readable = demangle(at->first);
    entry.name.readable = entry.readable;
    entry.name.readable_id = intern(entry.readable);
    if (entry.readable != at->first) entry.name.mangled_id = intern(at->first);
  }
  return entry.name;
}

int32_t Names::number(std::unordered_map<const void*, int32_t>& numbers, const void* handle, bool& fresh) {
  const auto [at, inserted] = numbers.try_emplace(handle, static_cast<int32_t>(numbers.size()) + 1);
  fresh = inserted;
  return at->second;
}

void Names::see_device(int32_t device) {
  if (!devices_.insert(device).second) return;
  DeviceRecord row;
  row.device_id = device;
  row.vendor = intern("NVIDIA");
  row.kind = DeviceKind::gpu;
  row.warp_size = 32;
  row.timestamps = Bool::no;  // none are taken in this pass
  emit(row);
}

int32_t Names::context(CUcontext context, int32_t device) {
  if (context == nullptr) return kNullI32;
  std::lock_guard lock(mutex_);
  see_device(device);
  bool fresh = false;
  const int32_t id = number(contexts_, context, fresh);
  if (!fresh) return id;
  ContextRecord row;
  row.context_id = id;
  row.device_id = device;
  row.api = Api::cuda_driver;
  row.start_ns = now_ns();
  emit(row);
  return id;
}

int32_t Names::stream(Sanitizer_StreamHandle stream, int32_t context_id, int32_t device) {
  if (stream == nullptr) return kNullI32;
  std::lock_guard lock(mutex_);
  bool fresh = false;
  const int32_t id = number(streams_, stream, fresh);
  if (!fresh) return id;
  StreamRecord row;
  row.stream_id = id;
  row.context_id = context_id;
  row.device_id = device;
  row.out_of_order = Bool::no;
  emit(row);
  return id;
}

GraphNode Names::node(CUgraphExec graph, CUgraphNode node) {
  std::lock_guard lock(mutex_);
  bool fresh = false;
  return {number(graphs_, graph, fresh), number(nodes_, node, fresh)};
}

void Names::describe_devices() {
  std::vector<int32_t> devices;
  {
    std::lock_guard lock(mutex_);
    for (const int32_t device : devices_) {
      if (described_.insert(device).second) devices.push_back(device);
    }
  }
  if (devices.empty()) return;
  const Driver driver = Driver::find();
  for (const int32_t device : devices) {
    DeviceRecord row;
    row.device_id = device;
    char name[256] = "";
    if (driver.name != nullptr && driver.name(name, sizeof(name), device) == CUDA_SUCCESS) row.name = intern(name);
    size_t bytes = 0;
    if (driver.memory != nullptr && driver.memory(&bytes, device) == CUDA_SUCCESS) {
      row.memory_bytes = static_cast<int64_t>(bytes);
    }
    row.multiprocessors = attribute(driver, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    row.clock_khz = attribute(driver, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device);
    const int32_t shared = attribute(driver, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, device);
    const int32_t cache = attribute(driver, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, device);
    if (shared != kNullI32) row.shared_bytes = shared;
    if (cache != kNullI32) row.cache_bytes = cache;
    const int32_t major = attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
    const int32_t minor = attribute(driver, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
    if (major != kNullI32 && minor != kNullI32) {
      row.architecture = intern(std::to_string(major) + "." + std::to_string(minor));
    }
    int version = 0;
    if (driver.version != nullptr && driver.version(&version) == CUDA_SUCCESS) {
      row.driver = intern("CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10));
    }
    emit(row);
  }
}

}  // namespace pasta::sanitizer
