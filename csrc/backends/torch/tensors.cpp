#include "backends/torch/tensors.h"

#include <atomic>
#include <mutex>
#include <new>
#include <optional>
#include <unordered_map>

#include "backends/torch/backend.h"
#include "backends/torch/libtorch.h"
#include "session/memory_parts.h"
#include "session/session.h"

namespace pasta::torch {
namespace {

constexpr int8_t kCpu = 0, kCuda = 1, kHip = 6;

// -- torch's own functions
// -------------------------------------------------------------------------

using Enabled = bool();
using Report = void(void*, int64_t, size_t, size_t, Device);

// Found once torch is loaded, and then kept. Null: not loaded, or not exported.
template <class Function>
Function* real(std::atomic<Function*>& found, const char* name) {
  Function* function = found.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = find_function<Function>(Library::c10, name);
    found.store(function, std::memory_order_release);
  }
  return function;
}

bool users_profiler_is_on() {
  static std::atomic<Enabled*> found{nullptr};
  Enabled* enabled = real(found, "_ZN3c1022memoryProfilingEnabledEv");
  return enabled != nullptr && enabled();
}

void report_to_user(void* address, int64_t bytes, size_t allocated, size_t reserved,
                    Device device) {
  static std::atomic<Report*> found{nullptr};
  Report* report = real(found, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
  if (report != nullptr) report(address, bytes, allocated, reserved, device);
}

// -- What the user's profiler would have been told
// ---------------------------------------------------

// The books of the CPU allocator as they would be without pasta: kept only while the user's
// profiler is on. A block from before is then unknown when it is freed, and one from then stays in
// the total when it is freed after.
class UserBooks {
 public:
  // The total to report; nothing when the allocator would not have reported.
  std::optional<size_t> account(const void* address, int64_t bytes) {
    std::lock_guard lock(mutex_);
    if (bytes >= 0) {
      sizes_[address] = static_cast<size_t>(bytes);
      return total_ += static_cast<size_t>(bytes);
    }
    const auto block = sizes_.find(address);
    if (block == sizes_.end()) return std::nullopt;
    total_ -= block->second;
    sizes_.erase(block);
    return total_;
  }

  // A thread that the child of a fork does not have may hold the lock.
  void unlock_in_child() { new (&mutex_) std::mutex; }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, size_t> sizes_;
  size_t total_ = 0;
};

// Never destroyed: tensors are still freed by the destructors of the program's statics.
UserBooks& user_books() {
  static UserBooks& books = *new UserBooks;
  return books;
}

// What the allocator of this thread was about to do when it asked whether to report.
enum class Asked : uint8_t {
  no,           // whoever reports does so without asking
  only_for_us,  // without pasta it would not report
  for_both,
};
thread_local Asked t_asked = Asked::no;

std::atomic<bool> g_saw_tensors{false};

// Accesses to the memory of a GPU may be attributed to the tensors in it.
int64_t tell_of_tensor(const TensorRecord& row, int8_t device_type) {
  const MemoryParts* parts = memory_parts.load(std::memory_order_acquire);
  if (parts == nullptr || (device_type != kCuda && device_type != kHip)) return kNullI64;
  const uint64_t address = static_cast<uint64_t>(row.address);
  return row.action == AllocAction::alloc ? parts->made(address, static_cast<uint64_t>(row.bytes))
                                          : parts->gone(address);
}

bool wanted() { return ensure_session() && traces(TableId::tensor); }

}  // namespace

bool memory_profiling_enabled() {
  const bool theirs = users_profiler_is_on();
  install_on_first_use();
  if (!wanted()) {
    t_asked = Asked::no;
    return theirs;
  }
  g_saw_tensors.store(true, std::memory_order_relaxed);
  t_asked = theirs ? Asked::for_both : Asked::only_for_us;
  return true;
}

void report_memory_usage(void* address, int64_t bytes, size_t allocated, size_t reserved,
                         Device device) {
  const Asked asked = t_asked;
  t_asked = Asked::no;
  install_on_first_use();
  if (wanted()) {
    g_saw_tensors.store(true, std::memory_order_relaxed);
    TensorRecord row =
        tensor_record(address, bytes, allocated, reserved, device, asked != Asked::no);
    row.device_type = intern(device_type_name(device.type));
    row.start_ns = now_ns();
    row.thread_id = thread_id();
    row.op_id = current_op();
    row.tensor_id = tell_of_tensor(row, device.type);
    emit(row);
  }
  if (asked == Asked::only_for_us) return;
  if (asked == Asked::for_both && device.type == kCpu) {
    const std::optional<size_t> total = user_books().account(address, bytes);
    if (!total) return;
    allocated = *total;
  }
  report_to_user(address, bytes, allocated, reserved, device);
}

TensorRecord tensor_record(const void* address, int64_t bytes, size_t allocated, size_t reserved,
                           Device device, bool keeps_total) {
  TensorRecord row;
  row.action = bytes < 0 ? AllocAction::free : AllocAction::alloc;
  row.address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address));
  row.bytes = bytes < 0 ? -bytes : bytes;
  if (device.type != kCpu) {
    row.allocated_bytes = static_cast<int64_t>(allocated);
    row.reserved_bytes = static_cast<int64_t>(reserved);
  } else if (keeps_total) {
    row.allocated_bytes = static_cast<int64_t>(allocated);  // the CPU allocator reserves nothing
  }
  if (device.index >= 0) row.device_index = device.index;
  return row;
}

const char* device_type_name(int8_t type) {
  // c10/core/DeviceType.h; a ROCm build calls its devices cuda.
  static constexpr const char* kNames[] = {"cpu", "cuda", "mkldnn",     "opengl", "opencl", "ideep",
                                           "hip", "fpga", "maia",       "xla",    "vulkan", "metal",
                                           "xpu", "mps",  "meta",       "hpu",    "ve",     "lazy",
                                           "ipu", "mtia", "privateuse1"};
  constexpr int kCount = sizeof(kNames) / sizeof(*kNames);
  return type >= 0 && type < kCount ? kNames[type] : "other";
}

void forget_tensors() { user_books().unlock_in_child(); }

bool saw_tensors() { return g_saw_tensors.load(std::memory_order_relaxed); }

}  // namespace pasta::torch
