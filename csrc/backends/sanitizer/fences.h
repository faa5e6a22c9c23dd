// Waits for what is in a stream, for a limited time. The library's own wait has no limit, and a launch may only wait for
// ever where it does without pasta: a kernel before it may wait for what its thread does next.
#pragma once

#include <sanitizer.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace pasta::sanitizer {

class Fences {
 public:
  // Allocates what waiting takes: later, an allocation might itself wait for the device.
  void prepare(CUcontext context);
  // Whether all that was in the stream has run. The stream itself says so: it fills a byte of host memory.
  bool wait(CUcontext context, Sanitizer_StreamHandle stream, std::chrono::nanoseconds patience);
  void forget(CUcontext context);

 private:
  uint8_t* take(CUcontext context);

  std::mutex mutex_;  // never held during a call to the library
  std::unordered_map<CUcontext, std::vector<uint8_t*>> free_;
};

}  // namespace pasta::sanitizer
