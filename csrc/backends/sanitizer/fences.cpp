#include "backends/sanitizer/fences.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <thread>

#include "backends/sanitizer/library.h"

namespace pasta::sanitizer {
namespace {

constexpr size_t kBytes = 4096;
constexpr std::chrono::microseconds kMostAsleep{100};

bool is_filled(const uint8_t* byte) { return __atomic_load_n(byte, __ATOMIC_ACQUIRE) != 0; }

}  // namespace

void Fences::prepare(CUcontext context) {
  void* memory = nullptr;
  if (library().call.sanitizerAllocHost(context, &memory, kBytes) != SANITIZER_SUCCESS) return;
  std::lock_guard lock(mutex_);
  std::vector<uint8_t*>& free = bytes_[context].free;
  for (size_t at = 0; at < kBytes; ++at) free.push_back(static_cast<uint8_t*>(memory) + at);
}

bool Fences::put(CUcontext context, Sanitizer_StreamHandle stream) {
  uint8_t* byte = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto known = bytes_.find(context);
    if (known == bytes_.end() || known->second.free.empty()) return false;
    byte = known->second.free.back();
    known->second.free.pop_back();
  }
  __atomic_store_n(byte, 0, __ATOMIC_RELEASE);
  const bool put = library().call.sanitizerMemset(byte, 1, 1, stream) == SANITIZER_SUCCESS;
  std::lock_guard lock(mutex_);
  Bytes& bytes = bytes_[context];
  (put ? bytes.left : bytes.free).push_back(byte);
  return put;
}

bool Fences::passed(CUcontext context) {
  std::lock_guard lock(mutex_);
  Bytes& bytes = bytes_[context];
  const auto filled = std::partition(bytes.left.begin(), bytes.left.end(), std::not_fn(is_filled));
  std::move(filled, bytes.left.end(), std::back_inserter(bytes.free));
  bytes.left.erase(filled, bytes.left.end());
  return bytes.left.empty();
}

bool Fences::wait(CUcontext context, const std::vector<Sanitizer_StreamHandle>& streams,
                  std::chrono::nanoseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (const Sanitizer_StreamHandle stream : streams) {
    if (!put(context, stream)) return false;
  }
  for (std::chrono::microseconds asleep{1}; !passed(context); asleep = std::min(asleep * 2, kMostAsleep)) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(asleep);
  }
  return true;
}

// Its memory goes with it.
void Fences::forget(CUcontext context) {
  std::lock_guard lock(mutex_);
  bytes_.erase(context);
}

}  // namespace pasta::sanitizer
