// A kernel for each kind of instruction that accesses memory: NAME_kind has the kind NAME in its code. Never run.
#include <cstdint>

#define SHARED(pointer) static_cast<uint32_t>(__cvta_generic_to_shared(pointer))

extern "C" {
__global__ void global_kind(float* to, const float* __restrict__ from) { to[threadIdx.x] = from[threadIdx.x]; }
__global__ void global_atomic_kind(int* to) { to[2] = atomicCAS(to, 1, 2) + atomicAdd(to + 1, 3); }
__global__ void global_reduction_kind(int* to) { atomicAdd(to, 1); }
__global__ void shared_kind(float* to) {
  __shared__ float s[64];
  s[threadIdx.x] = to[threadIdx.x];
  __syncthreads();
  to[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void shared_atomic_kind(int* to) {
  __shared__ int s[2];
  to[0] = atomicCAS(s, 1, 2) + atomicAdd(s + 1, to[1]);
}
__global__ void local_kind(float* to, int n) {
  float a[64];
  for (int i = 0; i < 64; ++i) a[i] = to[i];
  for (int i = 0; i < n; ++i) a[(i * 7) % 64] += a[i % 64];
  to[n] = a[n % 64];
}
__global__ void texture_kind(cudaTextureObject_t t, float4* to) {
  to[0] = tex2Dgather<float4>(t, 0.5f, 0.25f, 1);
  to[1].x = tex2D<float>(t, 0.5f, 0.25f) + tex1Dfetch<float>(t, 3);
}
__global__ void surface_kind(cudaSurfaceObject_t s) { surf2Dwrite(surf2Dread<float>(s, 4, 4), s, 0, 0); }
__global__ void matrix_kind(uint32_t* to) {
  __shared__ uint32_t s[256];
  uint32_t value;
  s[threadIdx.x] = to[threadIdx.x];
  __syncthreads();
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(value) : "r"(SHARED(s)));
  to[0] = value;
}
__global__ void nothing(float* to) {}

#if __CUDA_ARCH__ >= 800
__global__ void memcpy_async_kind(const float* from, float* to) {
  __shared__ float s[32];
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4; cp.async.wait_all;" ::"r"(SHARED(s)), "l"(from));
  __syncthreads();
  to[0] = s[0];
}
#endif

#if __CUDA_ARCH__ >= 900
#define COMPLETES "mbarrier::complete_tx::bytes"
__global__ void bulk_copy_kind(const char* from, char* to) {
  __shared__ alignas(128) char s[512];
  __shared__ uint64_t done;
  asm volatile("cp.async.bulk.shared::cluster.global." COMPLETES " [%0], [%1], 512, [%2];" ::"r"(SHARED(s)), "l"(from),
               "r"(SHARED(&done)));
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 512;" ::"l"(to), "r"(SHARED(s)));
}
__global__ void bulk_reduction_kind(char* to) {
  __shared__ alignas(128) char s[512];
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], 512;" ::"l"(to), "r"(SHARED(s)));
}
__global__ void tma_load_kind(const __grid_constant__ char map[128]) {
  __shared__ alignas(128) char s[512];
  __shared__ uint64_t done;
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global." COMPLETES " [%0], [%1, {%2, %2}], [%3];" ::"r"(SHARED(s)),
               "l"(map), "r"(0), "r"(SHARED(&done)));
}
__global__ void tma_store_kind(const __grid_constant__ char map[128]) {
  __shared__ alignas(128) char s[512];
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %1}], [%2];" ::"l"(map), "r"(0),
               "r"(SHARED(s)));
}
__global__ void tma_reduction_kind(const __grid_constant__ char map[128]) {
  __shared__ alignas(128) char s[512];
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %1}], [%2];" ::"l"(map),
               "r"(0), "r"(SHARED(s)));
}
__global__ void async_store_kind() {
  __shared__ uint32_t s[2];
  __shared__ uint64_t done;
  asm volatile("st.async.weak.shared::cluster." COMPLETES ".u32 [%0], %1, [%2];" ::"r"(SHARED(s)), "r"(7),
               "r"(SHARED(&done)));
}
__global__ void async_reduction_kind() {
  __shared__ uint32_t s[2];
  __shared__ uint64_t done;
  asm volatile("red.async.relaxed.cluster.shared::cluster." COMPLETES ".add.u32 [%0], %1, [%2];" ::"r"(SHARED(s)),
               "r"(7), "r"(SHARED(&done)));
}
__global__ void multimem_kind(float* p, float* to) {
  float value;
  asm volatile("multimem.ld_reduce.relaxed.sys.global.add.f32 %0, [%1];" : "=f"(value) : "l"(p));
  to[0] = value;
}
__global__ void generic_kind(uint32_t* to) {  // what lies in another block's shared memory
  __shared__ uint32_t s[2];
  uint32_t there, value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(there) : "r"(SHARED(s)));
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(there));
  to[0] = value;
}
#endif
}
