// The torch door: two functions of libc10 that torch calls through the dynamic linker, and what the
// import hook (pasta/inject/torch_hooks.py) calls.
#include "backends/torch/backend.h"
#include "backends/torch/operators.h"
#include "backends/torch/tensors.h"
#include "doors/export.h"
#include "session/session.h"

// Declared as in libc10, so that the compiler gives them the names under which torch looks them up.
namespace c10 {

struct Device {
  int8_t type;
  int8_t index;
};

__attribute__((visibility("default"))) bool memoryProfilingEnabled() {
  return pasta::torch::memory_profiling_enabled();
}

__attribute__((visibility("default"))) void reportMemoryUsageToProfiler(
    void* address, int64_t bytes, size_t allocated, size_t reserved, Device device) {
  pasta::torch::report_memory_usage(address, bytes, allocated, reserved,
                                    {device.type, device.index});
}

}  // namespace c10

PASTA_EXPORT void pasta_torch_importing() { pasta::torch::importing(); }

// `version` is torch.__version__; empty when the import failed.
PASTA_EXPORT void pasta_torch_imported(const char* version) {
  pasta::torch::imported(version == nullptr ? "" : version);
}

PASTA_EXPORT void pasta_torch_module_entered(const char* path) {
  if (path != nullptr) pasta::torch::module_entered(path);
}

PASTA_EXPORT void pasta_torch_module_left() { pasta::torch::module_left(); }

PASTA_EXPORT void pasta_torch_modules_missing() {
  pasta::report_loss("torch", "op", pasta::kNullI64,
                     "module paths: this torch has no hooks for them", "use torch 2.1 or later");
}
