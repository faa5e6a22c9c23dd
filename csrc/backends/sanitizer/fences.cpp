#include "backends/sanitizer/fences.h"

#include <algorithm>
#include <thread>

#include "backends/sanitizer/library.h"

namespace pasta::sanitizer {
namespace {

constexpr size_t kBytes = 4096, kApart = 64;  // each in a cache line of its own
constexpr std::chrono::microseconds kMostAsleep{100};

}  // namespace

void Fences::prepare(CUcontext context) {
  void* memory = nullptr;
  if (library().call.sanitizerAllocHost(context, &memory, kBytes) != SANITIZER_SUCCESS) return;
  std::lock_guard lock(mutex_);
  std::vector<uint8_t*>& free = free_[context];
  for (size_t at = 0; at < kBytes; at += kApart) free.push_back(static_cast<uint8_t*>(memory) + at);
}

uint8_t* Fences::take(CUcontext context) {
  std::lock_guard lock(mutex_);
  const auto free = free_.find(context);
  if (free == free_.end() || free->second.empty()) return nullptr;
  uint8_t* const byte = free->second.back();
  free->second.pop_back();
  return byte;
}

bool Fences::wait(CUcontext context, Sanitizer_StreamHandle stream, std::chrono::nanoseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  uint8_t* const byte = take(context);
  if (byte == nullptr) return false;
  __atomic_store_n(byte, 0, __ATOMIC_RELEASE);
  if (library().call.sanitizerMemset(byte, 1, 1, stream) != SANITIZER_SUCCESS) return false;
  std::chrono::microseconds asleep{1};
  while (__atomic_load_n(byte, __ATOMIC_ACQUIRE) == 0) {
    // Given up, it is not used again: the stream may fill it at any time.
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(asleep);
    asleep = std::min(asleep * 2, kMostAsleep);
  }
  std::lock_guard lock(mutex_);
  free_[context].push_back(byte);
  return true;
}

// Its memory goes with it.
void Fences::forget(CUcontext context) {
  std::lock_guard lock(mutex_);
  free_.erase(context);
}

}  // namespace pasta::sanitizer
