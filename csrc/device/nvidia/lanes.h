// What a lane of a warp can do together with the others, so that the reducers are one source for GPU and CPU.
//
// On the GPU these are intrinsics. On the CPU they are declared only: tests link tests/unit/cpp/warp_emulator.h,
// which runs 32 lanes in turn. Every collective takes the mask of the lanes that take part; all of them must call it.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define PASTA_DEVICE __device__ __forceinline__
// Rare paths: apart, so that they take no registers from the usual one.
#define PASTA_DEVICE_APART __device__ __noinline__
// What patches call in a branch: all but the first three convergence barriers are afterwards as they were. Else a patch
// saves one on the stack, whether it takes the branch or not. nvcc tells callers of it only for functions that it
// compiles before them: those with C linkage.
#if __CUDACC_VER_MAJOR__ >= 13 && __CUDA_ARCH__ >= 800
#define PASTA_DEVICE_ASIDE _Pragma("nv_abi preserve_n_control(3)") extern "C" __device__ __noinline__
#else
#define PASTA_DEVICE_ASIDE extern "C" __device__ __noinline__
#endif
#else
// As on the GPU, so that what lanes do at different places of the code, they do not do together.
#define PASTA_DEVICE [[gnu::always_inline]] inline
#define PASTA_DEVICE_APART inline
#define PASTA_DEVICE_ASIDE inline
#endif

namespace pasta::nvidia::lanes {

#ifdef __CUDACC__

PASTA_DEVICE uint32_t index() {
  uint32_t lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}
PASTA_DEVICE uint32_t ballot(uint32_t mask, bool predicate) { return __ballot_sync(mask, predicate); }
PASTA_DEVICE uint64_t broadcast(uint32_t mask, uint64_t value, uint32_t from) {
  return __shfl_sync(mask, static_cast<unsigned long long>(value), static_cast<int>(from));
}
PASTA_DEVICE uint32_t broadcast(uint32_t mask, uint32_t value, uint32_t from) {
  return __shfl_sync(mask, value, static_cast<int>(from));
}
// The value of the lane below; the lowest gets its own.
PASTA_DEVICE uint32_t below(uint32_t mask, uint32_t value) { return __shfl_up_sync(mask, value, 1); }
// The lanes whose value equals this one's.
PASTA_DEVICE uint32_t match(uint32_t mask, uint32_t value) { return __match_any_sync(mask, value); }
PASTA_DEVICE uint32_t match(uint32_t mask, uint64_t value) {
  return __match_any_sync(mask, static_cast<unsigned long long>(value));
}
PASTA_DEVICE uint32_t count(uint32_t mask) { return static_cast<uint32_t>(__popc(mask)); }
PASTA_DEVICE uint32_t first(uint32_t mask) { return static_cast<uint32_t>(__ffs(static_cast<int>(mask)) - 1); }
PASTA_DEVICE uint32_t last(uint32_t mask) { return 31u - static_cast<uint32_t>(__clz(static_cast<int>(mask))); }

// The lanes that run together now.
PASTA_DEVICE uint32_t active() { return __activemask(); }
// Waits until all of `mask` have come here, and sees what they wrote. After one of them went its own way the others may
// be ahead of it, and active() tells of parts.
PASTA_DEVICE void meet(uint32_t mask) { __syncwarp(mask); }
// Whether `predicate` holds in all of `mask`, those that run together. A vote would cost a patch registers and a
// barrier: the lanes for which it holds go their own way, and see who came along.
PASTA_DEVICE bool all(uint32_t mask, bool predicate) { return predicate && __activemask() == mask; }
PASTA_DEVICE uint32_t rank(uint32_t mask) {
  uint32_t below;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  return static_cast<uint32_t>(__popc(mask & below));
}
PASTA_DEVICE uint32_t multiprocessor() {
  uint32_t number;
  asm("mov.u32 %0, %%smid;" : "=r"(number));
  return number;
}

// A number of which warps that come here at once have different ones, mostly: the clock's, which is read sooner than
// the multiprocessor's.
PASTA_DEVICE uint32_t any_number() {
  uint32_t cycles;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(cycles));
  return cycles;
}

// All counters lie in device memory: said to the compiler, it leaves out what an atomic on shared memory would need.
PASTA_DEVICE void add(uint64_t* at, uint64_t value) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "l"(value));
}
PASTA_DEVICE void raise(uint64_t* at, uint64_t value) {
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "l"(value));
}
PASTA_DEVICE void raise(uint32_t* at, uint32_t value) {
  asm volatile("red.relaxed.gpu.global.max.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "r"(value));
}
PASTA_DEVICE void set_bits(uint32_t* at, uint32_t bits) {
  asm volatile("red.relaxed.gpu.global.or.b32 [%0], %1;" ::"l"(__cvta_generic_to_global(at)), "r"(bits));
}
// These two return what was there before.
PASTA_DEVICE uint64_t take(uint64_t* at, uint64_t amount) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(amount));
}
PASTA_DEVICE uint64_t claim(uint64_t* at, uint64_t value) {
  return atomicCAS(reinterpret_cast<unsigned long long*>(at), 0ull, static_cast<unsigned long long>(value));
}
// From L2, where atomics work: L1 may hold an old value for as long as a kernel runs.
PASTA_DEVICE uint64_t peek(const uint64_t* at) {
  return __ldcg(reinterpret_cast<const unsigned long long*>(at));
}
PASTA_DEVICE uint32_t peek(const uint32_t* at) { return __ldcg(at); }
// From L1, which may be behind. What only grows has at least grown this far. An atomic on it by this multiprocessor
// makes L1 look again.
PASTA_DEVICE uint64_t glance(const uint64_t* at) {
  return __ldca(reinterpret_cast<const unsigned long long*>(at));
}
PASTA_DEVICE uint32_t glance(const uint32_t* at) { return __ldca(at); }
// Two or four words together: neither is older than the other.
struct Pair {
  uint32_t x, y;
};
struct Four {
  uint32_t x, y, z, w;
};
PASTA_DEVICE Pair glance_pair(const void* at) {
  const uint2 words = __ldca(static_cast<const uint2*>(at));
  return {words.x, words.y};
}
PASTA_DEVICE Four glance_four(const void* at) {
  const uint4 words = __ldca(static_cast<const uint4*>(at));
  return {words.x, words.y, words.z, words.w};
}
// Likewise from L2.
PASTA_DEVICE Pair peek_pair(const void* at) {
  const uint2 words = __ldcg(static_cast<const uint2*>(at));
  return {words.x, words.y};
}
PASTA_DEVICE Four peek_four(const void* at) {
  const uint4 words = __ldcg(static_cast<const uint4*>(at));
  return {words.x, words.y, words.z, words.w};
}
PASTA_DEVICE void write_four(void* at, const Four& words) {
  __stcg(static_cast<uint4*>(at), make_uint4(words.x, words.y, words.z, words.w));
}

#else

uint32_t index();
uint32_t ballot(uint32_t mask, bool predicate);
uint64_t broadcast(uint32_t mask, uint64_t value, uint32_t from);
uint32_t match(uint32_t mask, uint64_t value);
inline uint32_t broadcast(uint32_t mask, uint32_t value, uint32_t from) {
  return static_cast<uint32_t>(broadcast(mask, uint64_t{value}, from));
}
inline uint32_t below(uint32_t mask, uint32_t value) {
  return broadcast(mask, value, index() == 0 ? 0 : index() - 1);
}
inline uint32_t match(uint32_t mask, uint32_t value) { return match(mask, uint64_t{value}); }
uint32_t active();
inline void meet(uint32_t mask) { ballot(mask, true); }
inline bool all(uint32_t mask, bool predicate) { return ballot(mask, predicate) == mask; }
uint32_t multiprocessor();
inline uint32_t any_number() { return multiprocessor(); }
inline uint32_t count(uint32_t mask) { return static_cast<uint32_t>(__builtin_popcount(mask)); }
inline uint32_t rank(uint32_t mask) { return count(mask & ((1u << index()) - 1)); }
inline uint32_t first(uint32_t mask) { return static_cast<uint32_t>(__builtin_ctz(mask)); }
inline uint32_t last(uint32_t mask) { return 31u - static_cast<uint32_t>(__builtin_clz(mask)); }

// One lane runs at a time.
inline void add(uint64_t* at, uint64_t value) { *at += value; }
inline void raise(uint64_t* at, uint64_t value) { *at = value > *at ? value : *at; }
inline void raise(uint32_t* at, uint32_t value) { *at = value > *at ? value : *at; }
inline void set_bits(uint32_t* at, uint32_t bits) { *at |= bits; }
inline uint64_t take(uint64_t* at, uint64_t amount) {
  const uint64_t before = *at;
  *at += amount;
  return before;
}
inline uint64_t claim(uint64_t* at, uint64_t value) {
  const uint64_t before = *at;
  if (before == 0) *at = value;
  return before;
}
inline uint64_t peek(const uint64_t* at) { return *at; }
inline uint32_t peek(const uint32_t* at) { return *at; }
inline uint64_t glance(const uint64_t* at) { return *at; }
inline uint32_t glance(const uint32_t* at) { return *at; }
struct Pair {
  uint32_t x, y;
};
struct Four {
  uint32_t x, y, z, w;
};
inline Pair glance_pair(const void* at) {
  const auto* const words = static_cast<const uint32_t*>(at);
  return {words[0], words[1]};
}
inline Four glance_four(const void* at) {
  const auto* const words = static_cast<const uint32_t*>(at);
  return {words[0], words[1], words[2], words[3]};
}
inline Pair peek_pair(const void* at) { return glance_pair(at); }
inline Four peek_four(const void* at) { return glance_four(at); }
inline void write_four(void* at, const Four& words) { std::memcpy(at, &words, sizeof(words)); }

#endif

}  // namespace pasta::nvidia::lanes
