#include "backends/cupti/buffers.h"

#include <chrono>
#include <cstdlib>

#include "session/clock.h"

namespace pasta::cupti {

uint8_t* ActivityBuffers::take() {
  std::lock_guard lock(mutex_);
  uint8_t* buffer = nullptr;
  if (!free_.empty()) {
    buffer = free_.back();
    free_.pop_back();
  } else if (allocated_ < max_buffers_) {
    buffer = static_cast<uint8_t*>(std::aligned_alloc(ACTIVITY_RECORD_ALIGNMENT, kBufferBytes));
    if (buffer != nullptr) ++allocated_;
  }
  if (buffer != nullptr) ++lent_;
  return buffer;
}

bool ActivityBuffers::lent() {
  std::lock_guard lock(mutex_);
  return lent_ > 0;
}

void ActivityBuffers::push(FilledBuffer buffer) {
  std::lock_guard lock(mutex_);
  queue_.push_back(buffer);
  if (buffer.data != nullptr) --lent_;
  ++pushed_;
  filled_.notify_one();
}

FilledBuffer ActivityBuffers::pop(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  if (!filled_.wait_for(lock, at_most, [&] { return !queue_.empty(); })) return {};
  const FilledBuffer buffer = queue_.front();
  queue_.pop_front();
  ++popped_;
  return buffer;
}

void ActivityBuffers::decoded(FilledBuffer buffer) {
  std::lock_guard lock(mutex_);
  if (buffer.data != nullptr) free_.push_back(buffer.data);
  decoded_ = popped_;
  idle_.notify_all();
}

void ActivityBuffers::wait_decoded(int64_t deadline_ns) {
  std::unique_lock lock(mutex_);
  const uint64_t target = pushed_;
  const int64_t left = deadline_ns - now_ns();
  idle_.wait_for(lock, std::chrono::nanoseconds(left > 0 ? left : 0), [&] { return decoded_ >= target; });
}

}  // namespace pasta::cupti
