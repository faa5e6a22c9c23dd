// Tensor maps are read from their bytes: against encoders whose layouts are made up here, each bit anywhere.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "backends/sanitizer/normalize.h"
#include "backends/sanitizer/tensor_maps.h"
#include "device/nvidia/tensor_map_reducer.h"

using namespace pasta;
using namespace pasta::sanitizer;

namespace {

// What the made-up encoders do; the parameters of each are the driver's.
struct Fake {
  std::vector<uint32_t> places;  // in the map, of what is written, in order
  uint64_t most_dimension = uint64_t{1} << 32;
  bool refuses_tiled = false, refuses_im2col = false, hashes_boxes = false, interleaves = true, knows_packed = true;
  std::atomic<int> calls{0};
  std::atomic<bool> stuck{false};

  void scramble(uint32_t seed) {
    places.resize(1024);
    std::iota(places.begin(), places.end(), 0);
    if (seed != 0) std::shuffle(places.begin(), places.end(), std::mt19937(seed));
  }
} g_fake;

class Writer {
 public:
  explicit Writer(CUtensorMap* map) : map_(map) { std::memset(map, 0, sizeof(*map)); }
  void put(uint64_t value, uint32_t bits) {
    for (uint32_t b = 0; b < bits; ++b, ++at_) {
      const uint32_t place = g_fake.places[at_];
      map_->opaque[place / 64] |= (value >> b & 1) << (place % 64);
    }
  }

 private:
  CUtensorMap* map_;
  uint32_t at_ = 0;
};

void put_head(Writer& writer, bool im2col, CUtensorMapDataType type, uint32_t rank, void* address,
              CUtensorMapInterleave interleave, uint32_t policies) {
  writer.put(im2col, 1);
  writer.put((type * 5u + 3) % 16, 4);
  writer.put(rank - 1, 3);
  writer.put(reinterpret_cast<uint64_t>(address) >> 4, 53);
  writer.put(interleave, 2);
  writer.put(policies, 8);
}

CUresult fake_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                    const cuuint64_t* dimensions, const cuuint64_t* strides, const cuuint32_t* box,
                    const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                    CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  ++g_fake.calls;
  while (g_fake.stuck) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const uint64_t bytes = element_bytes(type);
  const bool wide = interleave == CU_TENSOR_MAP_INTERLEAVE_32B || type > CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B;
  const uint64_t unit = wide ? 32 : 16;
  bool valid = !g_fake.refuses_tiled && rank >= 1 && rank <= 5 && reinterpret_cast<uint64_t>(address) % unit == 0 &&
               reinterpret_cast<uintptr_t>(map) % 64 == 0;
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) valid = valid && rank >= 3 && g_fake.interleaves;
  else valid = valid && box[0] * bytes % 16 == 0;
  if (is_packed(type)) valid = valid && g_fake.knows_packed && box[0] == 128 && dimensions[0] % 128 == 0;
  if (interleave == CU_TENSOR_MAP_INTERLEAVE_32B) valid = valid && swizzle == CU_TENSOR_MAP_SWIZZLE_32B;
  if (interleave == CU_TENSOR_MAP_INTERLEAVE_NONE && swizzle != 0) valid = valid && box[0] * bytes <= 16u << swizzle;
  if (type < CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || is_packed(type)) valid = valid && fill == 0;
  uint64_t boxed = bytes, size = bytes;
  for (uint32_t i = 0; i < rank && valid; ++i) {
    valid = dimensions[i] >= 1 && dimensions[i] <= g_fake.most_dimension && box[i] >= 1 && box[i] <= 256 &&
            steps[i] >= 1 && steps[i] <= 8;
    if (i > 0) valid = valid && strides[i - 1] % unit == 0 && strides[i - 1] >> 40 == 0 && strides[i - 1] != 0;
    boxed *= box[i], size *= std::min<uint64_t>(dimensions[i], 1 << 10);
  }
  if (!valid || boxed > 227 << 10) return CUDA_ERROR_INVALID_VALUE;
  Writer writer(map);
  put_head(writer, false, type, rank, address, interleave, swizzle | promotion << 3 | fill << 5);
  writer.put(size < 128 << 10, 1);  // what follows from several others
  writer.put(boxed, 18);
  for (uint32_t i = 0; i < 5; ++i) {  // what the map has no dimensions for holds anything
    const bool has = i < rank;
    writer.put(has ? dimensions[i] - 1 : boxed * 0x9E3779B9u, 32);
    writer.put(has ? (g_fake.hashes_boxes ? (box[i] * 37u) >> 3 : box[i] - 1) : 255, 8);
    if (i == 0) continue;
    writer.put(has ? strides[i - 1] >> 4 : size * 77, 36);
    writer.put(has ? steps[i] - 1 : 0, 3);
  }
  return CUDA_SUCCESS;
}

CUresult fake_im2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                     const cuuint64_t* dimensions, const cuuint64_t* strides, const int* lower, const int* upper,
                     cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps, CUtensorMapInterleave interleave,
                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  ++g_fake.calls;
  if (g_fake.refuses_im2col || rank < 3 || rank > 5 || channels > 256 || channels * element_bytes(type) % 16 != 0 ||
      pixels > 1024 || steps[0] == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Writer writer(map);
  put_head(writer, true, type, rank, address, interleave, swizzle | promotion << 3 | fill << 5);
  writer.put(channels - 1, 8);
  writer.put(pixels - 1, 10);
  for (uint32_t i = 0; i < rank - 2; ++i) {
    if (static_cast<int64_t>(dimensions[i + 1]) + upper[i] <= lower[i]) return CUDA_ERROR_INVALID_VALUE;
    writer.put(static_cast<uint32_t>(lower[i]), 16 / (rank - 2));
    writer.put(static_cast<uint32_t>(upper[i]), 16 / (rank - 2));
  }
  for (uint32_t i = 0; i < rank - 1; ++i) writer.put(strides[i] >> 4, 36);
  return CUDA_SUCCESS;
}

const Encoders kEncoders = {fake_tiled, fake_im2col};

MapWords words_of(const CUtensorMap& map) {
  MapWords words;
  std::copy(std::begin(map.opaque), std::end(map.opaque), words.begin());
  return words;
}

bool same(const TensorMap& a, const TensorMap& b) {
  return a.address == b.address && a.rank == b.rank && a.element_bytes == b.element_bytes &&
         a.dimensions == b.dimensions && a.strides == b.strides && a.box == b.box && a.box_bytes == b.box_bytes &&
         a.tiled == b.tiled;
}

// A tensor as programs have them: dense, or with rows that are padded, or the dimensions but the first in any order.
struct Tensor {
  CUtensorMapDataType type;
  uint32_t rank;
  uint64_t address;
  cuuint64_t dimensions[5], strides[4];
  cuuint32_t box[5], steps[5];

  explicit Tensor(std::mt19937& random) {
    type = static_cast<CUtensorMapDataType>(random() % 13);
    rank = 1 + random() % 5;
    address = uint64_t{0x7f0000000000} + (uint64_t{random()} << 8);
    const uint64_t bytes = element_bytes(type);
    uint64_t stride = bytes;
    std::vector<uint32_t> order(rank - 1);
    std::iota(order.begin(), order.end(), 1);
    std::shuffle(order.begin(), order.end(), random);
    order.insert(order.begin(), 0);
    for (const uint32_t i : order) {
      dimensions[i] = i == 0 ? 16 * (1 + random() % 512) : 1 + random() % (rank > 3 ? 16 : 3000);
      box[i] = i == 0 ? 16 : 1 + random() % 4;
      steps[i] = i > 0 && random() % 4 == 0 ? 2 : 1;
      if (i > 0) strides[i - 1] = stride;
      stride = (stride * dimensions[i] + 15) / 16 * 16;
    }
  }
  TensorMap described(CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE) const {
    return to_tensor_map(EncodeTiledOperands{nullptr, type, rank, reinterpret_cast<void*>(address), dimensions, strides,
                                             box, steps, interleave});
  }
  CUtensorMap encoded(CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE) const {
    CUtensorMap map;
    CHECK(fake_tiled(&map, type, rank, reinterpret_cast<void*>(address), dimensions, strides, box, steps, interleave,
                     CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
    return map;
  }
};

std::optional<MapDecoder> learn() {
  std::string why;
  g_fake.calls = 0;
  std::optional<MapDecoder> decoder = MapDecoder::learn(kEncoders, why);
  CHECK(decoder && why.empty());
  if (!why.empty()) std::fprintf(stderr, "%s\n", why.c_str());
  return decoder;
}

void test_tiled_maps_are_read() {
  std::mt19937 random(7);
  for (uint32_t seed = 0; seed < 6; ++seed) {
    g_fake.scramble(seed);
    g_fake.most_dimension = seed % 2 == 0 ? uint64_t{1} << 32 : uint64_t{1} << 31;
    g_fake.interleaves = seed % 3 != 1, g_fake.knows_packed = seed % 3 != 2;
    const std::optional<MapDecoder> decoder = learn();
    CHECK(g_fake.calls <= 2 * MapLayout::kMostCalls);
    if (!decoder) continue;
    for (int i = 0; i < 300; ++i) {
      const Tensor tensor(random);
      const std::optional<TensorMap> read = decoder->read(words_of(tensor.encoded()), false);
      CHECK(read && same(*read, tensor.described()));
    }
  }
  g_fake.interleaves = g_fake.knows_packed = true;
}

// 64 channels of 56 x 56 pixels of halves, 128 pixels a load.
void test_im2col_maps_are_read() {
  g_fake.scramble(3);
  const std::optional<MapDecoder> decoder = learn();
  const cuuint64_t dimensions[] = {64, 56, 56, 8}, strides[] = {128, 128 * 56, 128 * 56 * 56};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  const int lower[] = {-1, -1}, upper[] = {-1, -1};
  CUtensorMap map;
  CHECK(fake_im2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, reinterpret_cast<void*>(0x7f0012340000), dimensions,
                    strides, lower, upper, 64, 128, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                    CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  const std::optional<TensorMap> read = decoder->read(words_of(map), true);
  CHECK(read && read->address == 0x7f0012340000 && read->box_bytes == 64 * 128 * 2 && !read->tiled);
}

void test_interleaved_and_packed_maps_are_not_read() {
  g_fake.scramble(4);
  const std::optional<MapDecoder> decoder = learn();
  std::mt19937 random(3);
  Tensor tensor(random);
  while (tensor.rank < 3) tensor = Tensor(random);
  CHECK(decoder->read(words_of(tensor.encoded()), false));
  CHECK(!decoder->read(words_of(tensor.encoded(CU_TENSOR_MAP_INTERLEAVE_16B)), false));
  CHECK(!tensor.described(CU_TENSOR_MAP_INTERLEAVE_16B).tiled);
  tensor.type = CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B, tensor.box[0] = 128, tensor.dimensions[0] = 1024;
  CHECK(!decoder->read(words_of(tensor.encoded()), false));
}

void test_encoders_that_help_not() {
  g_fake.scramble(5);
  std::string why;
  CHECK(!MapDecoder::learn({nullptr, nullptr}, why) && why.find("no encoder") != std::string::npos);

  g_fake.refuses_im2col = true;
  why.clear();
  const std::optional<MapDecoder> tiled_only = MapDecoder::learn(kEncoders, why);
  CHECK(tiled_only && why.rfind("im2col: ", 0) == 0);
  std::mt19937 random(9);
  const Tensor tensor(random);
  const MapWords words = words_of(tensor.encoded());
  CHECK(tiled_only->read(words, false) && !tiled_only->read(words, true));

  g_fake.refuses_tiled = true;
  g_fake.calls = 0;
  why.clear();
  CHECK(!MapDecoder::learn(kEncoders, why) && why.find("encoded only 0 ") != std::string::npos);
  CHECK(g_fake.calls == 2 * MapLayout::kMostCalls);
  g_fake.refuses_tiled = g_fake.refuses_im2col = false;

  g_fake.hashes_boxes = true;  // no bit of the map is one of the box: nothing may be guessed
  const std::optional<MapDecoder> im2col_only = MapDecoder::learn(kEncoders, why);
  CHECK(im2col_only && !im2col_only->read(words, false));
  g_fake.hashes_boxes = false;
}

// Any bytes may be handed to a load: they are a map or they are not.
void test_random_bytes() {
  g_fake.scramble(1);
  const std::optional<MapDecoder> decoder = learn();
  std::mt19937_64 random(2);
  int read = 0;
  for (int i = 0; i < 10'000; ++i) {
    MapWords words;
    for (uint64_t& word : words) word = random();
    const std::optional<TensorMap> map = decoder->read(words, i % 2 == 0);
    if (!map) continue;
    ++read;
    CHECK(map->rank <= nvidia::kTensorRank && map->element_bytes >= 1 && map->element_bytes <= 8);
  }
  CHECK(read > 0 && read < 10'000);
}

nvidia::TensorMapEntry entry_of(const CUtensorMap& map) {
  nvidia::TensorMapEntry entry{};
  std::copy(std::begin(map.opaque), std::end(map.opaque), entry.map);
  return entry;
}

void test_maps_are_found() {
  g_fake.scramble(2);
  std::mt19937 random(5);
  const Tensor added(random), other(random);
  TensorMap renamed = added.described();
  renamed.address = 42;
  const CUtensorMap encoded = added.encoded();

  TensorMaps without;
  without.add(encoded.opaque, renamed);
  CHECK(without.find(entry_of(encoded)) && !without.find(entry_of(other.encoded())));

  g_fake.calls = 0;
  TensorMaps maps([](CUcontext) { return kEncoders; });
  maps.add(encoded.opaque, renamed);
  CHECK(maps.find(entry_of(encoded))->address == 42 && g_fake.calls == 0);  // what was seen is not read
  const std::optional<TensorMap> found = maps.find(entry_of(other.encoded()));
  CHECK(found && same(*found, other.described()));
  const int calls = g_fake.calls;
  CHECK(maps.find(entry_of(Tensor(random).encoded())) && g_fake.calls == calls + 1);  // learnt once
}

// An encoder that waits for a lock that the program holds: the program goes on, and later maps are read.
void test_encoder_that_hangs() {
  std::mt19937 random(6);
  const nvidia::TensorMapEntry entry = entry_of(Tensor(random).encoded());
  TensorMaps maps([](CUcontext) { return kEncoders; });
  g_fake.stuck = true;
  const auto from = std::chrono::steady_clock::now();
  CHECK(!maps.find(entry));
  CHECK(!maps.find(entry));
  CHECK(std::chrono::steady_clock::now() - from < std::chrono::seconds(5));
  g_fake.stuck = false;
  bool found = false;
  for (int i = 0; i < 1000 && !found; ++i) {
    found = maps.find(entry).has_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(found);
}

}  // namespace

int main() {
  test_tiled_maps_are_read();
  test_im2col_maps_are_read();
  test_interleaved_and_packed_maps_are_not_read();
  test_encoders_that_help_not();
  test_random_bytes();
  test_maps_are_found();
  test_encoder_that_hangs();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
