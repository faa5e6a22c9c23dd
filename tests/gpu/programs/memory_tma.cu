// One TMA load of each tile of a matrix of 256 x 512 floats, in tiles of 32 x 64 (sm_90): the map is encoded on the
// host and handed to the kernel as a parameter. "made": by no encoder, but put together from three maps, each with
// something of it. Exits 77 where the GPU has no TMA.
#include <cuda.h>

#include <cstdlib>
#include <cstring>

#include "memory_check.h"

constexpr int kRows = 256, kColumns = 512, kTileRows = 32, kTileColumns = 64;

__global__ void load_tiles(const __grid_constant__ CUtensorMap map, float* out) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) float tile[kTileRows * kTileColumns];
  __shared__ alignas(8) unsigned long long barrier;
  if (threadIdx.x == 0) {
    expect_bytes(&barrier, sizeof(tile));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
            shared_address(tile)),
        "l"(&map), "r"(static_cast<int>(blockIdx.x) * kTileColumns), "r"(static_cast<int>(blockIdx.y) * kTileRows),
        "r"(shared_address(&barrier))
        : "memory");
  }
  __syncthreads();
  wait_for_bytes(&barrier);
  if (threadIdx.x == 0) out[blockIdx.y * gridDim.x + blockIdx.x] = tile[0];
#endif
}

int main(int argc, char** argv) {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  if (properties.major < 9) return 77;
  float *matrix = nullptr, *other = nullptr, *out = nullptr;
  CHECK(cudaMalloc(&matrix, kRows * kColumns * sizeof(float)));
  CHECK(cudaMalloc(&other, kRows * kColumns * sizeof(float)));
  CHECK(cudaMalloc(&out, 64 * sizeof(float)));
  CHECK(cudaMemset(other, 0, kRows * kColumns * sizeof(float)));
  CHECK(cudaMemset(matrix, 0x3c, kRows * kColumns * sizeof(float)));

  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol, 12000, cudaEnableDefault, &found));
  const auto encode = [&](void* address, cuuint64_t rows) {
    CUtensorMap map;
    const cuuint64_t dimensions[] = {kColumns, rows}, strides[] = {kColumns * sizeof(float)};
    const cuuint32_t box[] = {kTileColumns, kTileRows}, steps[] = {1, 1};
    const CUresult result = reinterpret_cast<Encode>(symbol)(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, address, dimensions, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
      std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", static_cast<int>(result));
      std::exit(1);
    }
    return map;
  };
  CUtensorMap map;
  if (argc > 1 && std::strcmp(argv[1], "made") == 0) {
    const CUtensorMap there = encode(matrix, kRows / 2), other_rows = encode(other, kRows / 2);
    map = encode(other, kRows);
    for (int i = 0; i < CU_TENSOR_MAP_NUM_QWORDS; ++i) map.opaque[i] ^= other_rows.opaque[i] ^ there.opaque[i];
  } else {
    map = encode(matrix, kRows);
  }
  load_tiles<<<dim3(kColumns / kTileColumns, kRows / kTileRows), 128>>>(map, out);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  unsigned loaded[64];
  CHECK(cudaMemcpy(loaded, out, sizeof(loaded), cudaMemcpyDeviceToHost));
  for (const unsigned value : loaded) {
    if (value == 0x3c3c3c3cu) continue;
    std::fprintf(stderr, "the map is of something else\n");
    return 1;
  }
  return 0;
}
