// Reads what a TMA tensor map describes from its bytes. Libraries write them without a call that could be seen.
#pragma once

#include <cuda.h>

#include <optional>
#include <string>

#include "backends/sanitizer/tensor_map_layout.h"

namespace pasta::sanitizer {

struct TensorMap;

// The driver's; null where it has none.
struct Encoders {
  decltype(&cuTensorMapEncodeTiled) tiled = nullptr;
  decltype(&cuTensorMapEncodeIm2col) im2col = nullptr;
};

class MapDecoder {
 public:
  // A few hundred calls of each encoder. Null, with the reason in `why`, when maps cannot be read.
  static std::optional<MapDecoder> learn(const Encoders& encoders, std::string& why);

  // Null for what was not learnt: im2col maps where there is no encoder for them, interleaved ones, packed types.
  std::optional<TensorMap> read(const MapWords& words, bool im2col) const;

 private:
  std::optional<MapLayout> tiled_, im2col_;
};

}  // namespace pasta::sanitizer
