// Waits for what is in streams, for a limited time. The library's own wait has no limit, and a launch may only wait for
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
  // Leaves a fence in the stream, for example as it is about to go: what is in it goes on. False: there is none.
  bool put(CUcontext context, Sanitizer_StreamHandle stream);
  // Whether all that was in these streams of the context has run, and before fences left in others. A stream says so
  // itself: it fills a byte of host memory.
  bool wait(CUcontext context, const std::vector<Sanitizer_StreamHandle>& streams, std::chrono::nanoseconds patience);
  void forget(CUcontext context);

 private:
  struct Bytes {
    std::vector<uint8_t*> free, left;  // these still to be filled, by a stream that was not waited for
  };

  bool passed(CUcontext context);

  std::mutex mutex_;  // never held during a call to the library
  std::unordered_map<CUcontext, Bytes> bytes_;
};

}  // namespace pasta::sanitizer
