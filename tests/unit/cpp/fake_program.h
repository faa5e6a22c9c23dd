// CUDA programs over the fake Sanitizer: what they do to memory and streams, as callbacks, and the recording of one in
// a process of its own.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "backends/sanitizer/collector.h"
#include "check.h"
#include "fake_sanitizer.h"
#include "session/session.h"

namespace fake {

inline constexpr uint64_t kMiB = 1 << 20;
inline const CUcontext kContext = reinterpret_cast<CUcontext>(0xc0);

// Of a recording; it goes with the object.
class Directory {
 public:
  Directory() : path_(std::filesystem::temp_directory_path() / "pasta-test-XXXXXX") {
    CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string output() const { return path_ + "/t.pasta"; }

 private:
  std::string path_;
};

inline void callback(Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id, const void* data) {
  t_loads = domain == SANITIZER_CB_DOMAIN_RESOURCE && id == SANITIZER_CBID_RESOURCE_MODULE_LOADED;
  t_code_is_locked = domain != SANITIZER_CB_DOMAIN_DRIVER_API && !t_loads;
  pasta::sanitizer::Collector::instance().on_callback(domain, id, data);
  t_loads = t_code_is_locked = false;
}

inline Stream stream(int number) { return reinterpret_cast<Stream>(0x500 + number); }

template <class Data>
Data zeroed() {
  Data data;
  std::memset(&data, 0, sizeof(data));
  return data;
}

inline void memory(Sanitizer_CallbackIdResource id, uint64_t address, uint64_t bytes) {
  auto data = zeroed<Sanitizer_ResourceMemoryData>();
  data.address = address, data.size = bytes, data.context = kContext;
  callback(SANITIZER_CB_DOMAIN_RESOURCE, id, &data);
}
inline void allocate(uint64_t address, uint64_t bytes) {
  memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, address, bytes);
}
inline void release(uint64_t address) { memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_FREE, address, 0); }

inline Sanitizer_LaunchData launch_data(Stream in, const char* name) {
  static std::atomic<uintptr_t> launches{1};
  auto data = zeroed<Sanitizer_LaunchData>();
  data.context = kContext, data.hStream = data.hApiStream = in, data.functionName = name;
  data.gridDim_x = data.gridDim_y = data.gridDim_z = 1, data.blockDim_x = 32;
  data.hLaunch = reinterpret_cast<Sanitizer_LaunchHandle>(launches.fetch_add(1));
  return data;
}

// What a kernel's patches do, when its stream has come to it; only for a launch that has a slot.
using Kernel = std::function<void(const pasta::nvidia::SlotHeader&)>;

inline void enqueue(Stream in, void* slot, const Kernel& kernel) {
  std::lock_guard lock(g_gpu.mutex);
  g_gpu.streams[in].push_back([=] {
    if (slot != nullptr) kernel(*static_cast<const pasta::nvidia::SlotHeader*>(slot));
  });
}

inline void launch(Stream in, const Kernel& kernel, const char* name = "_Z4loadPf") {
  const Sanitizer_LaunchData data = launch_data(in, name);
  callback(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN, &data);
  enqueue(in, slot_of(data.hLaunch), kernel);
  callback(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_END, &data);
}

inline void synchronized(Stream of) {
  auto data = zeroed<Sanitizer_SynchronizeData>();
  data.context = kContext, data.hStream = of;
  callback(SANITIZER_CB_DOMAIN_SYNCHRONIZE, SANITIZER_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED, &data);
}
inline void wait_for(Stream of) {
  run(of);
  synchronized(of);
}

// Runs `program` in a process of its own and records it to `output`.
template <class Program>
void record(const std::string& output, const char* memory, const char* buffer, Program program) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("PASTA_OUTPUT", output.c_str(), 1);
    setenv("PASTA_MEMORY", memory, 1);
    setenv("PASTA_MEMORY_BUFFER", buffer, 1);
    setenv("PASTA_SANITIZER_PATH", "/nonexistent", 1);
    install();
    CHECK(pasta::sanitizer::Collector::instance().start());
    program();
    pasta::flush(20'000'000'000);
    _exit(g_failures == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace fake
