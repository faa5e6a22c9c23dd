#include "backends/sanitizer/tensor_maps.h"

#include <algorithm>

#include "device/nvidia/tensor_map_reducer.h"

namespace pasta::sanitizer {

void TensorMaps::add(const uint64_t (&encoded)[16], const TensorMap& map) {
  const uint64_t hash = nvidia::tensor_map_hash(encoded);
  std::lock_guard lock(mutex_);
  if (maps_.size() >= kMost) maps_.clear();  // those in use are encoded again soon
  maps_[hash] = map;
  if (encoded[0] != map.address) address_elsewhere_ = true;
}

bool TensorMaps::address_comes_first() const {
  std::lock_guard lock(mutex_);
  return !address_elsewhere_;
}

std::optional<TensorMap> TensorMaps::find(uint64_t hash) const {
  std::lock_guard lock(mutex_);
  const auto found = maps_.find(hash);
  return found == maps_.end() ? std::nullopt : std::optional(found->second);
}

bool visit_runs(const TensorMap& map, const nvidia::TensorMapEntry& entry, uint64_t most,
                const std::function<void(uint64_t, uint64_t)>& visit) {
  std::array<int64_t, nvidia::kTensorRank> low{}, high{};  // of the box, half open
  uint64_t runs = 1;
  for (uint32_t i = 0; i < map.rank; ++i) {
    const int64_t size = static_cast<int64_t>(map.dimensions[i]);
    low[i] = std::clamp<int64_t>(nvidia::coordinate_of(~entry.inverted_lowest[i]), 0, size);
    high[i] = std::clamp<int64_t>(int64_t{nvidia::coordinate_of(entry.highest[i])} + map.box[i], 0, size);
    if (low[i] >= high[i]) return true;  // wholly outside: zeros, nothing is read
    if (i > 0) runs = std::min(runs * static_cast<uint64_t>(high[i] - low[i]), most + 1);
  }
  const auto address = [&](const std::array<int64_t, nvidia::kTensorRank>& at) {
    uint64_t result = map.address;
    for (uint32_t i = 0; i < map.rank; ++i) result += static_cast<uint64_t>(at[i]) * map.strides[i];
    return result;
  };
  const uint64_t run_bytes = static_cast<uint64_t>(high[0] - low[0]) * map.strides[0];
  std::array<int64_t, nvidia::kTensorRank> at = low;
  if (runs > most) {
    for (uint32_t i = 1; i < map.rank; ++i) at[i] = high[i] - 1;
    visit(address(low), address(at) + run_bytes);
    return false;
  }
  while (true) {
    visit(address(at), address(at) + run_bytes);
    uint32_t i = 1;
    while (i < map.rank && ++at[i] == high[i]) at[i] = low[i], ++i;
    if (i >= map.rank) return true;
  }
}

}  // namespace pasta::sanitizer
