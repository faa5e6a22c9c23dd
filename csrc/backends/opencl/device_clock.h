// Places a device's profiling clock on the session's clock, from the launches themselves.
//
// The runtime reads the device clock (CL_PROFILING_COMMAND_QUEUED) inside the enqueue call, so that
// reading lies between the host's readings before and after the call: a command bounds the offset
// between the clocks to a window of a microsecond or so. The offset is moved into each new window
// only as far as it must: it converges on a constant offset, follows drift, and survives a clock
// that jumps. Nothing is assumed about which clock the device uses.
#pragma once

#include <cstdint>

namespace pasta::opencl {

class DeviceClock {
 public:
  // True when a command whose enqueue call began and returned at these times is worth a reading:
  // nothing is known, its window is narrower than the last one, or so much time has passed that the
  // clocks may have drifted (by 50 ns, at 50 parts in a million). So a command is placed wrong by
  // less than its own call took, and by the drift.
  bool wants(int64_t before_ns, int64_t after_ns) const {
    return !known_ || after_ns - before_ns < error_ns_ || before_ns - last_ns_ >= kIntervalNs ||
           before_ns < last_ns_;
  }

  // `device_ns` was read between `before_ns` and `after_ns` of the session's clock.
  void observe(int64_t device_ns, int64_t before_ns, int64_t after_ns) {
    const int64_t least = before_ns - device_ns;
    const int64_t most = after_ns - device_ns;
    if (!known_) {
      offset_ns_ = least + (most - least) / 2;
      known_ = true;
    } else if (offset_ns_ < least) {
      offset_ns_ = least;
    } else if (offset_ns_ > most) {
      offset_ns_ = most;
    }
    error_ns_ = most - least;
    last_ns_ = before_ns;
  }

  bool known() const { return known_; }
  int64_t to_session(int64_t device_ns) const { return device_ns + offset_ns_; }
  // Bound of the error of to_session() at the last observation: the width of its window.
  int64_t error_ns() const { return error_ns_; }

 private:
  static constexpr int64_t kIntervalNs = 1'000'000;

  bool known_ = false;
  int64_t offset_ns_ = 0;  // session clock - device clock
  int64_t error_ns_ = 0;
  int64_t last_ns_ = 0;  // `before_ns` of the last observation
};

}  // namespace pasta::opencl
