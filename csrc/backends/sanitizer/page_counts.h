// Bitmaps of touched pages to numbers of pages.
#pragma once

#include <cstdint>

namespace pasta::sanitizer {

// Pages that were touched, counted over bitmaps in the order of their addresses: where one range ends within a page and
// the next begins there, the page is one.
class PageCounts {
 public:
  // A bitmap whose first bit is the 4 KiB page of `begin`.
  void add(const uint32_t* bitmap, uint64_t begin, uint64_t end);

  int64_t small = 0, medium = 0, large = 0;  // 4 KiB, 64 KiB, 2 MiB

 private:
  uint64_t next_small_ = 0;  // 4 KiB pages below are counted, as far as they are touched
  uint64_t next_medium_ = 0, next_large_ = 0;  // likewise
};

}  // namespace pasta::sanitizer
