// The Sanitizer backend: what it subscribes to, and what it does with each callback.
#pragma once

#include <sanitizer.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "backends/sanitizer/cubins.h"
#include "backends/sanitizer/driver.h"
#include "backends/sanitizer/instrument.h"
#include "backends/sanitizer/launch_calls.h"
#include "backends/sanitizer/launches.h"
#include "backends/sanitizer/names.h"
#include "backends/sanitizer/objects.h"
#include "backends/sanitizer/sampling.h"
#include "backends/sanitizer/selection.h"
#include "backends/sanitizer/tensor_maps.h"

namespace pasta::sanitizer {

// Whether a launch is recorded, and then measured: decided once.
struct LaunchChoice {
  bool recorded, measured;
};

class Collector {
 public:
  static Collector& instance();

  bool start();
  void harvest(int64_t deadline_ns);
  void forget();  // in a fork's child, where CUDA does not work

  void on_callback(Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id, const void* data);
  int64_t on_tensor_made(uint64_t address, uint64_t bytes);
  int64_t on_tensor_gone(uint64_t address) { return objects_.take_tensor(address); }

 private:
  explicit Collector(const Selection& selection);

  void fail(const std::string& why, const char* remedy);
  bool subscribe();

  void on_resource(Sanitizer_CallbackId id, const void* data);
  void on_stream_destroyed(const void* data);
  void on_alloc(const Sanitizer_ResourceMemoryData& data, const char* allocator);
  void on_free(uint64_t address, bool reservation = false);
  void on_reserve(const Sanitizer_ResourceVirtualRange& data);
  void on_array(const Sanitizer_ResourceArrayData& data, AllocAction action);
  void on_synchronize(Sanitizer_CallbackId id, const Sanitizer_SynchronizeData& data);
  void on_graph(Sanitizer_CallbackId id, const void* data);
  void on_graph_node(const Sanitizer_GraphNodeLaunchData& data);
  void on_driver_call(Sanitizer_CallbackId id, const Sanitizer_CallbackData& data);
  void on_launch_call(Sanitizer_CallbackId id, const Sanitizer_CallbackData& data);

  void on_launch(const Sanitizer_LaunchData& data, Sanitizer_StreamHandle stream, const GraphNode& node);
  void on_memcpy(const Sanitizer_MemcpyData& data, const GraphNode& node);
  void on_memset(const Sanitizer_MemsetData& data, const GraphNode& node);
  LaunchChoice choose(const KernelName& name, const std::array<uint32_t, 3>& grid);
  struct Launched {
    CUmodule module;
    const KernelName* name;  // null: it cannot be told
  };
  Launched about_to_launch(const Sanitizer_CallbackData& data, const LaunchOperands& launch);
  static KernelFacts load(CUfunction kernel);
  void set_slot(const Sanitizer_LaunchData& data, Sanitizer_StreamHandle stream, void* slot);
  KernelCode kernel_code(const Sanitizer_LaunchData& data, const KernelName& name, int patchings);

  std::shared_ptr<Launches> launches(CUcontext context);
  std::shared_ptr<Launches> known_launches(CUcontext context);
  void finish_all();

  const Selection selection_;
  uint32_t features_ = 0;
  std::atomic<bool> active_{false};
  Sanitizer_SubscriberHandle subscriber_ = nullptr;

  MemoryObjects objects_;
  TensorMaps tensor_maps_;
  Sampler sampler_;
  Names names_;
  Cubins cubins_;
  std::unique_ptr<Instrumenter> instrumenter_;

  std::mutex mutex_;
  std::unordered_map<CUcontext, std::shared_ptr<Launches>> launches_;
  struct Code {
    KernelCode kernel;
    int patchings;  // of its module
  };
  std::unordered_map<CUfunction, Code> code_;
  std::map<std::pair<CUcontext, CUfunction>, Launched> kernels_;  // while code may change
  std::unordered_map<CUarray, int64_t> arrays_;  // their object ids

  std::mutex finish_mutex_;
  std::condition_variable finished_;
  bool finishing_ = false;
};

}  // namespace pasta::sanitizer
