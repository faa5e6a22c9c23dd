// TMA tensor maps, remembered as the program encodes them or read from their bytes, and what the accesses through one
// touched.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "backends/sanitizer/tensor_map_decoder.h"
#include "device/nvidia/layout.h"

namespace pasta::sanitizer {

struct TensorMap {
  uint64_t address = 0;
  uint32_t rank = 0;
  uint32_t element_bytes = 0;
  std::array<uint64_t, nvidia::kTensorRank> dimensions{};  // elements, innermost first
  std::array<uint64_t, nvidia::kTensorRank> strides{};     // bytes; [0] is the element's
  std::array<uint32_t, nvidia::kTensorRank> box{};         // elements that one load takes
  uint64_t box_bytes = 0;                                  // moved by one load
  bool tiled = true;  // false: im2col, of which only address and bytes are known
};

class TensorMaps {
 public:
  // What finds the encoders, on a thread of its own: only with them can maps be read that were not added.
  using FindEncoders = Encoders (*)(CUcontext);
  explicit TensorMaps(FindEncoders find = nullptr) : find_(find) {}

  void use(CUcontext context) { context_ = context; }  // for the encoders, before the first find()
  // `encoded`: the 128 bytes that the driver wrote.
  void add(const uint64_t (&encoded)[nvidia::kTensorMapWords], const TensorMap& map);
  std::optional<TensorMap> find(const nvidia::TensorMapEntry& entry) const;
  // The layout of maps is the driver's own. As far as was seen, the first word is the address.
  bool address_comes_first() const;

 private:
  struct Learning;
  std::shared_ptr<const MapDecoder> decoder() const;

  static constexpr size_t kMost = 1 << 16;  // programs that encode one a launch have them by the thousand
  const FindEncoders find_;
  std::atomic<CUcontext> context_{nullptr};
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, TensorMap> maps_;  // by hash
  bool address_elsewhere_ = false;
  mutable std::shared_ptr<Learning> learning_;  // null before the first map that was not added
};

// Calls visit(first byte, end) for each run of bytes between the lowest and the highest tile that was loaded: a
// box of the tensor, clipped to it. False when it has more runs than `most`: then one visit, of the whole span.
bool visit_runs(const TensorMap& map, const nvidia::TensorMapEntry& entry, uint64_t most,
                const std::function<void(uint64_t, uint64_t)>& visit);

}  // namespace pasta::sanitizer
