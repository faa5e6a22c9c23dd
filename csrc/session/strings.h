// The string table: text to a small number, each text written to the shard once.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schema/types.h"

namespace pasta {

class StringTable {
 public:
  // Bound on the text kept: a program that makes up names without end loses names, not memory.
  static constexpr size_t kMaxTotalBytes = size_t{64} << 20;

  struct Entry {
    std::string_view text;  // lives as long as the table
    StringId id;            // 0 when the table is full
  };
  Entry intern(std::string_view text);

  // Strings added since the last call, in the order of their numbers; `first` is the first one's number.
  struct Added {
    uint32_t first;
    std::vector<std::string_view> texts;
  };
  Added take_added();

 private:
  std::mutex mutex_;
  std::deque<std::string> texts_;  // text of number i + 1
  std::unordered_map<std::string_view, uint32_t> ids_;
  size_t total_bytes_ = 0;
  size_t taken_ = 0;
};

}  // namespace pasta
