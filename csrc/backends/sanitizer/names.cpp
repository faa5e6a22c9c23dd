#include "backends/sanitizer/names.h"


#include <cstdlib>
#include <memory>
#include <vector>

#include "backends/sanitizer/driver.h"
#include "session/demangle.h"
#include "session/session.h"

namespace pasta::sanitizer {
namespace {

}  // namespace

const KernelName& Names::kernel(const char* mangled) {
  std::lock_guard lock(mutex_);
  const auto [at, fresh] = kernels_.try_emplace(mangled == nullptr ? "" : mangled);
  Entry& entry = at->second;
  if (fresh) {
    entry.readable = demangle(at->first.c_str());
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
  for (const int32_t device : devices) {
    const DeviceFacts facts = describe_device(device);
    const auto text = [](const std::string& value) { return value.empty() ? StringId{} : intern(value); };
    DeviceRecord row;
    row.device_id = device;
    row.name = text(facts.name);
    row.driver = text(facts.driver);
    row.architecture = text(facts.architecture);
    row.memory_bytes = facts.memory_bytes;
    row.shared_bytes = facts.shared_bytes;
    row.cache_bytes = facts.cache_bytes;
    row.multiprocessors = facts.multiprocessors;
    row.clock_khz = facts.clock_khz;
    emit(row);
  }
}

}  // namespace pasta::sanitizer
