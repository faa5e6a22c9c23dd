// What a lane of a warp can do together with the others, so that the reducers are one source for GPU and CPU.
//
// On the GPU these are intrinsics. On the CPU they are declared only: tests link tests/unit/cpp/warp_emulator.h,
// which runs 32 lanes in turn. Every collective takes the mask of the lanes that take part; all of them must call it.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define PASTA_DEVICE __device__ __forceinline__
#else
#define PASTA_DEVICE inline
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
// The lanes whose value equals this one's.
PASTA_DEVICE uint32_t match(uint32_t mask, uint32_t value) { return __match_any_sync(mask, value); }
PASTA_DEVICE uint32_t match(uint32_t mask, uint64_t value) {
  return __match_any_sync(mask, static_cast<unsigned long long>(value));
}
PASTA_DEVICE uint32_t count(uint32_t mask) { return static_cast<uint32_t>(__popc(mask)); }
PASTA_DEVICE uint32_t first(uint32_t mask) { return static_cast<uint32_t>(__ffs(static_cast<int>(mask)) - 1); }
PASTA_DEVICE uint32_t last(uint32_t mask) { return 31u - static_cast<uint32_t>(__clz(static_cast<int>(mask))); }

// The lanes all give the same value.
PASTA_DEVICE bool agree(uint32_t mask, uint32_t value) {
  int same = 0;
  __match_all_sync(mask, value, &same);
  return same != 0;
}
PASTA_DEVICE bool agree(uint32_t mask, uint64_t value) {
  int same = 0;
  __match_all_sync(mask, static_cast<unsigned long long>(value), &same);
  return same != 0;
}
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
// From L1, which may be behind. What only grows has at least grown this far.
PASTA_DEVICE uint64_t glance(const uint64_t* at) {
  return __ldca(reinterpret_cast<const unsigned long long*>(at));
}
PASTA_DEVICE uint32_t glance(const uint32_t* at) { return __ldca(at); }
// Two neighbours, 16 bytes aligned.
PASTA_DEVICE void glance(const uint64_t* at, uint64_t& first, uint64_t& second) {
  const ulonglong2 both = __ldca(reinterpret_cast<const ulonglong2*>(at));
  first = both.x, second = both.y;
}

#else

uint32_t index();
uint32_t ballot(uint32_t mask, bool predicate);
uint64_t broadcast(uint32_t mask, uint64_t value, uint32_t from);
uint32_t match(uint32_t mask, uint64_t value);
inline uint32_t match(uint32_t mask, uint32_t value) { return match(mask, uint64_t{value}); }
bool agree(uint32_t mask, uint64_t value);
inline bool agree(uint32_t mask, uint32_t value) { return agree(mask, uint64_t{value}); }
uint32_t multiprocessor();
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
inline void glance(const uint64_t* at, uint64_t& first, uint64_t& second) { first = at[0], second = at[1]; }

#endif

}  // namespace pasta::nvidia::lanes
