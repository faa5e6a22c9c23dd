#include "backends/sanitizer/page_counts.h"

#include "device/nvidia/layout.h"

namespace pasta::sanitizer {

void PageCounts::add(const uint32_t* bitmap, uint64_t begin, uint64_t end) {
  const uint64_t first = begin >> nvidia::kPageShift;
  const uint64_t words = (((end - 1) >> nvidia::kPageShift) - first) / 32 + 1;
  for (uint64_t word = 0; word < words; ++word) {
    for (uint32_t bits = bitmap[word]; bits != 0;) {  // most words of a large object are 0
      const uint64_t page = first + word * 32 + static_cast<uint32_t>(__builtin_ctz(bits));
      // On to the next 64 KiB, in one step.
      const uint64_t left = 16 - page % 16;
      const uint32_t from = static_cast<uint32_t>(__builtin_ctz(bits));
      const uint32_t here = left >= 32 - from ? bits : bits & ((1u << (from + left)) - 1);
      small += __builtin_popcount(here) - (page < next_small_);
      next_small_ = first + word * 32 + 32 - static_cast<uint32_t>(__builtin_clz(here));
      if (page / 16 >= next_medium_) ++medium, next_medium_ = page / 16 + 1;
      if (page / 512 >= next_large_) ++large, next_large_ = page / 512 + 1;
      bits &= ~here;
    }
  }
}

}  // namespace pasta::sanitizer
