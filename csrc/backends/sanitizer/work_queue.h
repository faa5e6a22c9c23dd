// Work that need not be done where it is found, which is in the program's own calls: a thread of pasta's does it, in the
// order in which it came. It must not call the library.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace pasta::sanitizer {

class WorkQueue {
 public:
  // What waits to be done holds at most so much memory, or is alone.
  explicit WorkQueue(size_t max_bytes);
  ~WorkQueue();  // all has been done before: see finish()
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // `work` holds `bytes` of memory until it is done. Waits for room; does it at once where no thread can be started.
  void add(size_t bytes, std::function<void()> work);
  // Waits until all of it is done.
  void finish();

 private:
  struct State;
  std::shared_ptr<State> state_;  // with the thread
};

}  // namespace pasta::sanitizer
