#include "backends/sanitizer/tensor_maps.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <utility>

#include "device/nvidia/tensor_map_reducer.h"
#include "session/background_thread.h"
#include "session/session.h"

namespace pasta::sanitizer {
namespace {

constexpr uint32_t kTiledLoad = 0, kGatherLoad = 4;  // Sanitizer_LoadMode, since 13.5: all others are im2col

}  // namespace

// Maps are looked up in callbacks, where the driver may hold its locks: what calls it is another thread, which is not
// waited for longer than this. Should it need a lock, it gets it later, and later maps are read.
constexpr std::chrono::milliseconds kPatience{200};

struct TensorMaps::Learning {
  const std::chrono::steady_clock::time_point until = std::chrono::steady_clock::now() + kPatience;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::shared_ptr<const MapDecoder> decoder;

  void end(std::optional<MapDecoder> learnt, const std::string& why) {
    if (!why.empty()) {
      report_loss("sanitizer", "access_object", kNullI64, "not all TMA tensor maps can be read: " + why);
    }
    std::lock_guard lock(mutex);
    if (learnt) decoder = std::make_shared<const MapDecoder>(std::move(*learnt));
    done = true;
    changed.notify_all();
  }
};

void TensorMaps::add(const uint64_t (&encoded)[nvidia::kTensorMapWords], const TensorMap& map) {
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

std::optional<TensorMap> TensorMaps::find(const nvidia::TensorMapEntry& entry) const {
  {
    std::lock_guard lock(mutex_);
    const auto found = maps_.find(nvidia::tensor_map_hash(entry.map));
    if (found != maps_.end()) return found->second;
  }
  const std::shared_ptr<const MapDecoder> decoder = this->decoder();
  if (decoder == nullptr) return std::nullopt;
  MapWords words;
  std::copy(std::begin(entry.map), std::end(entry.map), words.begin());
  return decoder->read(words, entry.mode != kTiledLoad && entry.mode != kGatherLoad);
}

// Null while, and where, there is none.
std::shared_ptr<const MapDecoder> TensorMaps::decoder() const {
  if (find_ == nullptr) return nullptr;
  std::shared_ptr<Learning> learning;
  {
    std::lock_guard lock(mutex_);
    if (learning_ == nullptr) {
      learning_ = std::make_shared<Learning>();
      const auto learn = [learning = learning_, find = find_, context = context_.load()] {
        std::string why;
        std::optional<MapDecoder> learnt = MapDecoder::learn(find(context), why);
        learning->end(std::move(learnt), why);
      };
      const std::string error = start_background_thread("pasta-maps", learn);
      if (!error.empty()) learning_->end(std::nullopt, error);
    }
    learning = learning_;
  }
  std::unique_lock lock(learning->mutex);
  learning->changed.wait_until(lock, learning->until, [&] { return learning->done; });
  return learning->decoder;
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
