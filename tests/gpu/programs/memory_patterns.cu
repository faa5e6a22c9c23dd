// Kernels whose memory accesses are known in closed form: memory_patterns MODE. test_gpu_memory.py states them.
#include <cuda_pipeline.h>

#include <cstring>
#include <thread>
#include <vector>

#include "memory_check.h"

constexpr int kN = 1 << 20;
constexpr int kSide = 1024;  // of the transposed matrix

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

// Lanes `stride` floats apart. The store never happens; it keeps the load.
__global__ void strided(const float* a, int stride, float* never) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const float value = a[i * stride];
  if (value == 12345.0f) *never = value;
}

__global__ void transpose_naive(const float* in, float* out, int n) {
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  out[x * n + y] = in[y * n + x];
}

// kPad 1: a column of the tile lies in 32 banks; 0: in one.
template <int kPad>
__global__ void transpose_tiled(const float* in, float* out, int n) {
  __shared__ float tile[32][32 + kPad];
  tile[threadIdx.y][threadIdx.x] = in[(blockIdx.y * 32 + threadIdx.y) * n + blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  out[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void histogram(const unsigned* values, unsigned* bins, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&bins[values[i] % 256], 1u);
}

// 16 bytes a thread through shared memory by cp.async.
__global__ void async_copy(const float4* in, float4* out) {
  __shared__ float4 tile[256];
  const int i = blockIdx.x * 256 + threadIdx.x;
  __pipeline_memcpy_async(&tile[threadIdx.x], &in[i], sizeof(float4));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  out[i] = tile[threadIdx.x];
}

// Of four threads two read 16 bytes and two 8, which zeros fill up.
__global__ void padded_copy(const float4* in, float4* out) {
  __shared__ float4 tile[256];
  const int i = blockIdx.x * 256 + threadIdx.x;
  // One instruction for both: of __pipeline_memcpy_async the compiler makes two.
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(&tile[threadIdx.x]));
  const unsigned read = threadIdx.x % 4 < 2 ? 16 : 8;
  const size_t from = __cvta_generic_to_global(&in[i]);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(read) : "memory");
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  out[i] = tile[threadIdx.x];
}

// 8 lanes of each warp work.
__global__ void divergent(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (threadIdx.x % 32 < 8) out[i] = in[i] + 1;
}

// 16 stores and 1 load of 4 bytes a thread in its own memory.
__global__ void local(const int* which, int* out) {
  volatile int own[16];
  for (int i = 0; i < 16; ++i) own[i] = i * i;
  out[threadIdx.x] = own[which[threadIdx.x] % 16];
}

// 4,096 bytes a block by one bulk copy (sm_90).
__global__ void bulk_copy(const float* in, float* out) {
#if __CUDA_ARCH__ >= 900
  __shared__ alignas(128) float tile[1024];
  __shared__ alignas(8) unsigned long long barrier;
  if (threadIdx.x == 0) {
    expect_bytes(&barrier, 4096);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 4096, [%2];" ::"r"(
                     shared_address(tile)),
                 "l"(in + blockIdx.x * 1024), "r"(shared_address(&barrier))
                 : "memory");
  }
  __syncthreads();
  wait_for_bytes(&barrier);
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) out[blockIdx.x * 1024 + i] = tile[i];
#endif
}

__global__ void fault(int* nothing) { *nothing = 1; }

template <class T>
T* device_array(size_t count) {
  T* memory = nullptr;
  CHECK(cudaMalloc(&memory, count * sizeof(T)));
  CHECK(cudaMemset(memory, 0, count * sizeof(T)));
  return memory;
}

struct Vectors {
  float *a = device_array<float>(kN), *b = device_array<float>(kN), *c = device_array<float>(kN);
  void add(cudaStream_t stream = nullptr) { vector_add<<<kN / 256, 256, 0, stream>>>(a, b, c, kN); }
};

void one_vector_add() { Vectors().add(); }

void strides() {
  const float* a = device_array<float>(32 * 1024 * 32);
  float* never = device_array<float>(1);
  for (int stride = 1; stride <= 32; stride *= 2) strided<<<128, 256>>>(a, stride, never);
}

void transposes() {
  const float* in = device_array<float>(kSide * kSide);
  float* out = device_array<float>(kSide * kSide);
  const dim3 grid(kSide / 32, kSide / 32), block(32, 32);
  transpose_naive<<<grid, block>>>(in, out, kSide);
  transpose_tiled<1><<<grid, block>>>(in, out, kSide);
  transpose_tiled<0><<<grid, block>>>(in, out, kSide);
}

void histograms() {
  const unsigned* values = device_array<unsigned>(kN);
  histogram<<<kN / 256, 256>>>(values, device_array<unsigned>(256), kN);
}

void async_copies() {
  async_copy<<<kN / 4 / 256, 256>>>(device_array<float4>(kN / 4), device_array<float4>(kN / 4));
}

void padded_copies() {
  padded_copy<<<kN / 4 / 256, 256>>>(device_array<float4>(kN / 4), device_array<float4>(kN / 4));
}

void divergence() { divergent<<<kN / 256, 256>>>(device_array<float>(kN), device_array<float>(kN)); }

void locals() { local<<<1, 256>>>(device_array<int>(256), device_array<int>(256)); }

void bulk() { bulk_copy<<<256, 128>>>(device_array<float>(256 * 1024), device_array<float>(256 * 1024)); }

// 100 launches in each of two streams, on vectors of their own.
void streams() {
  Vectors vectors[2];
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) CHECK(cudaStreamCreate(&stream));
  for (int i = 0; i < 100; ++i) {
    for (int s = 0; s < 2; ++s) vectors[s].add(streams[s]);
  }
  for (cudaStream_t& stream : streams) CHECK(cudaStreamSynchronize(stream));
}

// 8 threads, a stream and vectors each, 50 launches a thread.
void threads() {
  std::vector<std::thread> workers;
  for (int t = 0; t < 8; ++t) {
    workers.emplace_back([] {
      Vectors vectors;
      cudaStream_t stream;
      CHECK(cudaStreamCreate(&stream));
      for (int i = 0; i < 50; ++i) vectors.add(stream);
      CHECK(cudaStreamSynchronize(stream));
    });
  }
  for (std::thread& worker : workers) worker.join();
}

// A graph of 40 nodes, replayed 10 times.
void graph() {
  Vectors vectors;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 40; ++i) vectors.add(stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 10; ++i) CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
}

// 2,000 launches without any synchronisation.
void many() {
  Vectors vectors;
  for (int i = 0; i < 2000; ++i) vectors.add();
}

// Allocated, used and freed in the order of a stream, 20 times.
void pool() {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  for (int i = 0; i < 20; ++i) {
    float* a = nullptr;
    CHECK(cudaMallocAsync(reinterpret_cast<void**>(&a), kN * sizeof(float), stream));
    vector_add<<<kN / 256, 256, 0, stream>>>(a, a, a, kN);
    CHECK(cudaFreeAsync(a, stream));
  }
  CHECK(cudaStreamSynchronize(stream));
}

// 4 MiB of managed memory, read and written.
void managed() {
  float* a = nullptr;
  CHECK(cudaMallocManaged(&a, kN * sizeof(float)));
  vector_add<<<kN / 256, 256>>>(a, a, a, kN);
}

// 25 good launches, then one that writes to address 0 and poisons the context.
void faults() {
  Vectors vectors;
  for (int i = 0; i < 25; ++i) vectors.add();
  CHECK(cudaDeviceSynchronize());
  fault<<<1, 1>>>(nullptr);
  std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  std::exit(3);
}

int main(int argc, char** argv) {
  struct Mode {
    const char* name;
    void (*run)();
  };
  const Mode modes[] = {{"vector_add", one_vector_add}, {"strides", strides},   {"transposes", transposes},
                        {"histogram", histograms},      {"async", async_copies}, {"divergent", divergence},
                        {"local", locals},              {"bulk", bulk},          {"streams", streams},
                        {"threads", threads},           {"graph", graph},        {"many", many},
                        {"padded", padded_copies},      {"pool", pool},          {"managed", managed},
                        {"faults", faults}};
  for (const Mode& mode : modes) {
    if (argc < 2 || std::strcmp(argv[1], mode.name) != 0) continue;
    mode.run();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    return 0;
  }
  return 2;
}
