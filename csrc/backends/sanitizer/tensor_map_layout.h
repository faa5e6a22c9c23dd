// Where the 128 bytes of a TMA tensor map hold what: undocumented, so learnt from what the driver's encoder makes of
// random maps. A bit of the map holds a bit of a number when the two agree in all of them.
#pragma once

#include <cuda.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace pasta::sanitizer {

using MapWords = std::array<uint64_t, 16>;

// The numbers of a map, as it keeps them: from 0, without the bits that are always 0 (or, of the innermost box, 1).
enum Number : uint32_t {
  kAddress,          // / 16
  kDimensions,       // - 1; five
  kStrides = 6,      // / 16; four, of all dimensions but the innermost
  kInnerBox = 10,    // / 2 - 1: 16 bytes are at least two elements
  kBoxes,            // - 1; four, of the others
  kSteps = 15,       // - 1; likewise
  kPixels = 19,      // - 1; of im2col maps, whose channels are the inner box
  kNumbers
};
struct NumberBits {
  uint32_t most, least;  // that encoders take: those above are learnt where this one takes them
};
constexpr NumberBits number_bits(uint32_t number) {
  if (number == kAddress) return {45, 42};
  if (number < kStrides) return {32, 30};
  if (number < kInnerBox) return {36, 32};
  if (number == kInnerBox) return {7, 7};
  if (number < kSteps) return {8, 8};
  if (number < kPixels) return {3, 3};
  return {10, 9};
}

// What is one of a few things, each with a pattern of bits.
enum Choice : uint32_t { kType, kRank, kInterleave, kChoices };

struct DrawnMap {
  std::array<uint64_t, kNumbers> numbers{};
  std::bitset<kNumbers> present;  // the others do not count
  std::array<uint32_t, kChoices> choices{};
};

class MapLayout {
 public:
  // Fills in the map and its encoding. False: the encoder refused it.
  using Draw = std::function<bool(std::mt19937_64&, DrawnMap&, MapWords&)>;
  // Null when no layout explains all maps that were drawn, and `why` tells.
  static std::optional<MapLayout> learn(const Draw& draw, std::string& why);

  // Null when one of the choices is none that was learnt. `numbers` are those that all maps have together.
  std::optional<DrawnMap> read(const MapWords& words) const;

  static constexpr int kSamples = 256, kChecked = 64, kMostCalls = 2048;  // of the encoder, refused ones too

 private:
  using Column = std::bitset<kSamples>;  // a bit of each sample
  struct Sample {
    DrawnMap map;
    MapWords words{};
  };
  bool learn_number(uint32_t number, const std::vector<Sample>& samples, const std::vector<Column>& columns);
  bool learn_choice(uint32_t choice, const std::vector<Sample>& samples);
  uint64_t pattern(uint32_t choice, const MapWords& words) const;

  std::array<std::vector<uint16_t>, kNumbers> places_;  // in the map, of each bit from the lowest
  std::array<MapWords, kChoices> masks_{};
  std::array<std::map<uint64_t, uint32_t>, kChoices> patterns_;
};

}  // namespace pasta::sanitizer
