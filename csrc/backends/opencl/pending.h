// Commands that were enqueued and have not been seen to end.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "backends/opencl/cl_api.h"
#include "schema/tables.h"

namespace pasta::opencl {

using CommandRecord = std::variant<KernelRecord, MemcpyRecord, MemsetRecord>;

struct PendingCommand {
  template <class Record>
  PendingCommand(cl_event its_event, int64_t before, int64_t after, const Record& row)
      : event(its_event), before_ns(before), after_ns(after), record(row) {}

  cl_event event;  // holds a reference of ours
  // The session's clock before and after the enqueue call. The device's QUEUED reading lies between
  // them.
  int64_t before_ns, after_ns;
  CommandRecord record;  // complete but for its times
};

// Commands in the order of their enqueue calls; those in front end first.
class CommandList {
 public:
  size_t size() const { return commands_.size() - first_; }
  bool empty() const { return size() == 0; }
  PendingCommand& operator[](size_t i) { return commands_[first_ + i]; }
  const PendingCommand& operator[](size_t i) const { return commands_[first_ + i]; }

  template <class... Arguments>
  void emplace_back(Arguments&&... arguments) {
    commands_.emplace_back(std::forward<Arguments>(arguments)...);
  }
  void append(const CommandList& more) {
    commands_.insert(commands_.end(), more.commands_.begin() + static_cast<ptrdiff_t>(more.first_),
                     more.commands_.end());
  }
  // What is removed in front costs nothing until it is half of the memory.
  void remove_front(size_t count) {
    first_ += count;
    if (2 * first_ < commands_.size()) return;
    commands_.erase(commands_.begin(), commands_.begin() + static_cast<ptrdiff_t>(first_));
    first_ = 0;
  }
  void swap(CommandList& other) {
    commands_.swap(other.commands_);
    std::swap(first_, other.first_);
  }

 private:
  std::vector<PendingCommand> commands_;
  size_t first_ = 0;
};

// The pending commands of one queue. A harvest takes them all, and puts back those that still run:
// no lock is held while the runtime is asked.
class PendingCommands {
 public:
  // Commands that wait at most: a program that never synchronises costs memory for these and no
  // more.
  static constexpr size_t kMost = size_t{1} << 17;
  // A look at what has ended is worth it after so many commands (few enough to be still in the
  // cache), or so much time.
  static constexpr size_t kBatch = 64;
  static constexpr int64_t kIntervalNs = 250'000'000;

  bool has_room() const { return size_.load(std::memory_order_relaxed) < kMost; }

  // True when it is time for a harvest.
  template <class Record>
  bool add(cl_event event, int64_t before_ns, int64_t after_ns, const Record& record) {
    std::lock_guard lock(mutex_);
    if (commands_.empty()) look_at_ns_ = after_ns + kIntervalNs;
    commands_.emplace_back(event, before_ns, after_ns, record);
    size_.store(commands_.size(), std::memory_order_relaxed);
    return commands_.size() >= look_at_count_ || after_ns >= look_at_ns_;
  }

  // Everything that is pending. Each take() is followed by a put_back().
  CommandList take() {
    std::lock_guard lock(mutex_);
    ++harvests_;
    CommandList taken;
    taken.swap(commands_);
    return taken;
  }

  // `rest` goes in front of what was added meanwhile.
  void put_back(CommandList&& rest, int64_t now) {
    std::lock_guard lock(mutex_);
    --harvests_;
    rest.append(commands_);
    commands_.swap(rest);
    size_.store(commands_.size(), std::memory_order_relaxed);
    look_at_count_ = commands_.size() + kBatch;
    look_at_ns_ = now + kIntervalNs;
  }

  // Nothing pends, and no other thread is harvesting.
  bool idle() {
    std::lock_guard lock(mutex_);
    return commands_.empty() && harvests_ == 0;
  }

 private:
  std::mutex mutex_;
  CommandList commands_;
  std::atomic<size_t> size_{0};
  int harvests_ = 0;
  size_t look_at_count_ = kBatch;
  int64_t look_at_ns_ = 0;
};

}  // namespace pasta::opencl
