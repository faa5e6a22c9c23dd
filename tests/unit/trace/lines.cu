// Compiled by the tests of pasta/trace/cubin.py; they name its lines by what stands in them.
__device__ inline float scaled(float x, float factor) {
  return x * factor;
}
__device__ inline float loaded(const float* from, int i) {
  return scaled(from[i], 2.0f);  // the load of twice
}

extern "C" __global__ void copy(float* to, const float* from) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  to[i] = from[i];  // both of copy
}

__global__ void twice(float* to, const float* from, int n) {
  __shared__ float tile[64];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x % 64] = loaded(from, i);  // the call of loaded
  __syncthreads();
  if (i < n) {
    to[i] = tile[(threadIdx.x + 1) % 64];  // the store of twice
  }
}
