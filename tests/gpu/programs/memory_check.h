// What the programs of the memory pass share: a failed runtime call ends them with status 1, and the wait for what
// a bulk or TMA copy brings.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    const cudaError_t error = (call);                                                   \
    if (error != cudaSuccess) {                                                         \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));               \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (false)

#if __CUDA_ARCH__ >= 900
__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// One thread prepares `barrier` for `bytes`, before it issues the copy that brings them.
__device__ inline void expect_bytes(unsigned long long* barrier, unsigned bytes) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
  asm volatile("fence.mbarrier_init.release.cluster;");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

// All threads, after a __syncthreads.
__device__ inline void wait_for_bytes(unsigned long long* barrier) {
  asm volatile(
      "{\n .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
      " @!done bra again;\n}" ::"r"(shared_address(barrier))
      : "memory");
}
#endif
