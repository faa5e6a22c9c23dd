#include "backends/sanitizer/tensor_map_decoder.h"

#include <algorithm>

#include "backends/sanitizer/normalize.h"
#include "backends/sanitizer/tensor_maps.h"

namespace pasta::sanitizer {
namespace {

constexpr uint32_t kRanks = nvidia::kTensorRank;
constexpr uint32_t kPackedTypes = 3, kTypes = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ + 1 + kPackedTypes;

// Half of the numbers use all bits; where an encoder takes no such numbers, the others do.
uint32_t pick_width(std::mt19937_64& random, uint32_t bits) {
  return random() % 2 == 0 ? bits : static_cast<uint32_t>(random() % (bits + 1));
}

uint64_t pick(std::mt19937_64& random, uint32_t width) { return random() & ((uint64_t{1} << width) - 1); }

void choose(std::mt19937_64& random, DrawnMap& map, uint32_t number, uint32_t width) {
  map.numbers[number] = pick(random, width);
  map.present[number] = true;
}
void choose(std::mt19937_64& random, DrawnMap& map, uint32_t number) {
  choose(random, map, number, pick_width(random, number_bits(number).most));
}

// In a row, 16 bytes or a multiple.
void choose_inner_box(std::mt19937_64& random, DrawnMap& map, uint32_t width, CUtensorMapDataType type) {
  choose(random, map, kInnerBox, width);
  map.numbers[kInnerBox] |= 8 / element_bytes(type) - 1;
}

// What an encoder is given for a map.
struct Operands {
  void* address;
  cuuint64_t dimensions[kRanks], strides[kRanks - 1];
  cuuint32_t box[kRanks], steps[kRanks];

  explicit Operands(const DrawnMap& map) : address(reinterpret_cast<void*>(map.numbers[kAddress] << 4)) {
    for (uint32_t i = 0; i < kRanks; ++i) {
      dimensions[i] = map.numbers[kDimensions + i] + 1;
      box[i] = static_cast<cuuint32_t>(i == 0 ? map.numbers[kInnerBox] * 2 + 2 : map.numbers[kBoxes + i - 1] + 1);
      steps[i] = i == 0 ? 1 : static_cast<cuuint32_t>(map.numbers[kSteps + i - 1] + 1);
      if (i > 0) strides[i - 1] = map.numbers[kStrides + i - 1] << 4;
    }
  }
};

bool draw_tiled(decltype(&cuTensorMapEncodeTiled) encode, std::mt19937_64& random, DrawnMap& map, MapWords& words) {
  const auto type = static_cast<CUtensorMapDataType>(random() % kTypes);
  const uint32_t rank = random() % 2 == 0 ? kRanks : 1 + random() % kRanks;
  const bool interleaved = rank >= 3 && random() % 8 == 0;
  const uint32_t interleave = interleaved ? 1 + random() % 2 : 0;
  map.choices = {static_cast<uint32_t>(type), rank, interleave};
  choose(random, map, kAddress);
  for (uint32_t i = 0; i < rank; ++i) choose(random, map, kDimensions + i);
  for (uint32_t i = 1; i < rank; ++i) {
    choose(random, map, kStrides + i - 1);
    uint64_t& stride = map.numbers[kStrides + i - 1];
    stride = std::max<uint64_t>(stride, 2);  // 0 is none, even without the lowest bit
    choose(random, map, kSteps + i - 1, random() % 2 == 0 ? 3 : 0);
  }
  uint32_t room = 11;  // powers of two that the box may have: it fits shared memory
  for (uint64_t k = 0, from = random(); k < kRanks; ++k) {
    const uint32_t i = static_cast<uint32_t>((from + k) % kRanks);
    if (i >= rank) continue;
    const uint32_t number = i == 0 ? kInnerBox : kBoxes + i - 1;
    const uint32_t width = pick_width(random, std::min(room, number_bits(number).most));
    room -= width;
    if (i == 0) choose_inner_box(random, map, width, type);
    else choose(random, map, number, width);
  }
  // Those that are not read need not be laid out as others are, only told from them.
  const bool packed = is_packed(type);
  if (packed || interleaved) {
    map.present.reset();
    map.numbers[kAddress] &= ~uint64_t{1};
    for (uint32_t i = 0; i + 1 < kRanks; ++i) map.numbers[kStrides + i] &= ~uint64_t{1};
  }
  if (packed) map.numbers[kInnerBox] = 63, map.numbers[kDimensions] |= 127;
  const Operands operands(map);
  const uint64_t row = operands.box[0] * element_bytes(type);
  uint32_t swizzle = packed ? 0 : static_cast<uint32_t>(random() % 4);
  if (!interleaved && swizzle != 0 && row > 16u << swizzle) swizzle = 0;
  if (interleave == CU_TENSOR_MAP_INTERLEAVE_32B) swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
  const bool fills = type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && !packed && random() % 4 == 0;
  CUtensorMap encoded{};
  const CUresult result = encode(
      &encoded, type, rank, operands.address, operands.dimensions, operands.strides, operands.box, operands.steps,
      static_cast<CUtensorMapInterleave>(interleave), static_cast<CUtensorMapSwizzle>(swizzle),
      static_cast<CUtensorMapL2promotion>(random() % 4), static_cast<CUtensorMapFloatOOBfill>(fills));
  std::copy_n(encoded.opaque, words.size(), words.begin());
  return result == CUDA_SUCCESS;
}

bool draw_im2col(decltype(&cuTensorMapEncodeIm2col) encode, std::mt19937_64& random, DrawnMap& map, MapWords& words) {
  const auto type = static_cast<CUtensorMapDataType>(random() % (kTypes - kPackedTypes));
  const uint32_t rank = 3 + random() % 3;
  map.choices = {static_cast<uint32_t>(type), rank, 0};
  for (const uint32_t number : {kAddress, kPixels}) choose(random, map, number);
  choose_inner_box(random, map, pick_width(random, number_bits(kInnerBox).most), type);
  int lower[3], upper[3];
  for (uint32_t i = 0; i < 3; ++i) {
    lower[i] = -static_cast<int>(random() % 4);
    upper[i] = -static_cast<int>(random() % 4);
  }
  for (uint32_t i = 0; i < rank; ++i) {
    map.numbers[kDimensions + i] = 31 + pick(random, 10);
    if (i > 0) map.numbers[kStrides + i - 1] = 1 + pick(random, 20);
  }
  const Operands operands(map);
  CUtensorMap encoded{};
  const CUresult result =
      encode(&encoded, type, rank, operands.address, operands.dimensions, operands.strides, lower, upper,
             operands.box[0], static_cast<cuuint32_t>(map.numbers[kPixels] + 1), operands.steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             static_cast<CUtensorMapL2promotion>(random() % 4), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  std::copy_n(encoded.opaque, words.size(), words.begin());
  return result == CUDA_SUCCESS;
}

template <class Encode, class DrawOne>
std::optional<MapLayout> learn_layout(Encode encode, DrawOne draw, std::string& why) {
  if (encode == nullptr) {
    why = "the driver has no encoder";
    return std::nullopt;
  }
  return MapLayout::learn(
      [&](std::mt19937_64& random, DrawnMap& map, MapWords& words) { return draw(encode, random, map, words); }, why);
}

}  // namespace

std::optional<MapDecoder> MapDecoder::learn(const Encoders& encoders, std::string& why) {
  MapDecoder decoder;
  std::string why_not_im2col;
  decoder.tiled_ = learn_layout(encoders.tiled, draw_tiled, why);
  decoder.im2col_ = learn_layout(encoders.im2col, draw_im2col, why_not_im2col);
  if (!decoder.im2col_) why += (why.empty() ? "im2col: " : "; im2col: ") + why_not_im2col;
  return decoder.tiled_ || decoder.im2col_ ? std::optional(decoder) : std::nullopt;
}

std::optional<TensorMap> MapDecoder::read(const MapWords& words, bool im2col) const {
  const std::optional<MapLayout>& layout = im2col ? im2col_ : tiled_;
  const std::optional<DrawnMap> map = layout ? layout->read(words) : std::nullopt;
  if (!map) return std::nullopt;
  const auto type = static_cast<CUtensorMapDataType>(map->choices[kType]);
  if (map->choices[kInterleave] != 0 || is_packed(type)) return std::nullopt;
  const Operands operands(*map);
  if (im2col) {
    return to_tensor_map(EncodeIm2colOperands{nullptr, type, 0, operands.address, operands.dimensions,
                                              operands.strides, nullptr, nullptr, operands.box[0],
                                              static_cast<cuuint32_t>(map->numbers[kPixels] + 1)});
  }
  return to_tensor_map(EncodeTiledOperands{nullptr, type, map->choices[kRank], operands.address, operands.dimensions,
                                           operands.strides, operands.box, operands.steps,
                                           CU_TENSOR_MAP_INTERLEAVE_NONE});
}

}  // namespace pasta::sanitizer
