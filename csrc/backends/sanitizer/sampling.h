// --sample: the first launches of each kernel and grid, then every k-th.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "session/options.h"

namespace pasta::sanitizer {

class Sampler {
 public:
  explicit Sampler(const Sampling& sampling) : sampling_(sampling) {}

  // Decides once for each launch. `kernel` names it, whatever number the caller gives it.
  bool take(uint32_t kernel, const std::array<uint32_t, 3>& grid) {
    if (!sampling_.leaves_out()) return true;
    std::lock_guard lock(mutex_);
    return sampling_.takes(launches_[{kernel, grid}]++);
  }

 private:
  const Sampling sampling_;
  std::mutex mutex_;
  std::map<std::pair<uint32_t, std::array<uint32_t, 3>>, int64_t> launches_;
};

}  // namespace pasta::sanitizer
