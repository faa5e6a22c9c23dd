// --sample: the first launches of each kernel and grid, then every k-th.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace pasta::sanitizer {

class Sampler {
 public:
  Sampler(int64_t first, int64_t every) : first_(first), every_(every) {}

  // Decides once for each launch. `kernel` names it, whatever number the caller gives it.
  bool take(uint32_t kernel, const std::array<uint32_t, 3>& grid) {
    if (first_ == INT64_MAX) return true;
    std::lock_guard lock(mutex_);
    const int64_t launch = launches_[{kernel, grid}]++;
    return launch < first_ || (launch - first_) % every_ == every_ - 1;
  }

 private:
  const int64_t first_, every_;
  std::mutex mutex_;
  std::map<std::pair<uint32_t, std::array<uint32_t, 3>>, int64_t> launches_;
};

}  // namespace pasta::sanitizer
