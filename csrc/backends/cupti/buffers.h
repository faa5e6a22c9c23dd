// Activity buffers: CUPTI fills them on the program's threads, one thread of ours decodes them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include <cupti.h>

namespace pasta::cupti {

struct FilledBuffer {
  uint8_t* data;
  size_t valid_bytes;
  CUcontext context;
  uint32_t stream;
};

class ActivityBuffers {
 public:
  static constexpr size_t kBufferBytes = 1 << 20;

  explicit ActivityBuffers(size_t max_bytes) : max_buffers_(max_bytes / kBufferBytes + 1) {}

  // Null when the bound is reached: CUPTI then drops records and counts them.
  uint8_t* take();

  void push(FilledBuffer buffer);
  // The next filled buffer. Waits for one, at most so long: then, or when push() gave none, `data` is null.
  FilledBuffer pop(std::chrono::milliseconds at_most);
  // The buffer of the last pop() is done with.
  void decoded(FilledBuffer buffer);
  // True while CUPTI holds a buffer, which it asks for when it has a record.
  bool lent();
  // Until every buffer pushed so far is decoded, at most to `deadline_ns` on the session's clock.
  void wait_decoded(int64_t deadline_ns);

 private:
  const size_t max_buffers_;
  std::mutex mutex_;
  std::condition_variable filled_, idle_;
  std::vector<uint8_t*> free_;
  std::deque<FilledBuffer> queue_;
  size_t allocated_ = 0, lent_ = 0;
  uint64_t pushed_ = 0, popped_ = 0, decoded_ = 0;
};

}  // namespace pasta::cupti
