// Which allocation holds an address.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace pasta::opencl {

template <class Value>
class AddressRanges {
 public:
  // Replaces what was known about ranges that overlap: their end was not seen.
  void add(uint64_t begin, uint64_t bytes, Value value) {
    if (bytes == 0) bytes = 1;
    std::lock_guard lock(mutex_);
    auto at = ranges_.lower_bound(begin);
    if (at != ranges_.begin() && std::prev(at)->second.end > begin) --at;
    while (at != ranges_.end() && at->first < begin + bytes) at = ranges_.erase(at);
    ranges_.emplace(begin, Range{begin + bytes, std::move(value)});
  }

  std::optional<Value> find(uint64_t address) const {
    std::lock_guard lock(mutex_);
    auto at = ranges_.upper_bound(address);
    if (at == ranges_.begin()) return std::nullopt;
    --at;
    if (address >= at->second.end) return std::nullopt;
    return at->second.value;
  }

  // By address.
  std::vector<Value> values() const {
    std::lock_guard lock(mutex_);
    std::vector<Value> all;
    for (const auto& entry : ranges_) all.push_back(entry.second.value);
    return all;
  }

  // Removes and returns the range that begins at `begin`.
  std::optional<Value> take(uint64_t begin) {
    std::lock_guard lock(mutex_);
    const auto found = ranges_.find(begin);
    if (found == ranges_.end()) return std::nullopt;
    std::optional<Value> value(std::move(found->second.value));
    ranges_.erase(found);
    return value;
  }

 private:
  struct Range {
    uint64_t end;
    Value value;
  };
  mutable std::mutex mutex_;
  std::map<uint64_t, Range> ranges_;  // by begin
};

}  // namespace pasta::opencl
