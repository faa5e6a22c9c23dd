#include "backends/sanitizer/work_queue.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "session/background_thread.h"

namespace pasta::sanitizer {

struct WorkQueue::State {
  struct Item {
    size_t bytes;
    std::function<void()> work;
  };

  explicit State(size_t bytes) : max_bytes(bytes) {}
  void run();

  const size_t max_bytes;
  std::mutex mutex;
  std::condition_variable added, done;
  std::deque<Item> items;
  size_t unfinished = 0, held = 0;  // items, with the one that is being done, and their bytes
  bool started = false, ends = false;
};

void WorkQueue::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    added.wait(lock, [this] { return !items.empty() || ends; });
    if (items.empty()) return;
    Item item = std::move(items.front());
    items.pop_front();
    lock.unlock();
    item.work();
    item.work = nullptr;  // and what it held
    lock.lock();
    --unfinished;
    held -= item.bytes;
    done.notify_all();
  }
}

WorkQueue::WorkQueue(size_t max_bytes) : state_(std::make_shared<State>(max_bytes)) {}

WorkQueue::~WorkQueue() {
  std::lock_guard lock(state_->mutex);
  state_->ends = true;
  state_->added.notify_all();
}

void WorkQueue::add(size_t bytes, std::function<void()> work) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (!state.started) {
    state.started = start_background_thread("pasta-decoder", [kept = state_] { kept->run(); }).empty();
    if (!state.started) {
      lock.unlock();
      return work();
    }
  }
  state.done.wait(lock, [&] { return state.unfinished == 0 || state.held + bytes <= state.max_bytes; });
  state.items.push_back({bytes, std::move(work)});
  ++state.unfinished;
  state.held += bytes;
  state.added.notify_one();
}

void WorkQueue::finish() {
  std::unique_lock lock(state_->mutex);
  state_->done.wait(lock, [this] { return state_->unfinished == 0; });
}

}  // namespace pasta::sanitizer
