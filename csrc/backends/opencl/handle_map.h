// What is known about an OpenCL object, by its handle. Lookups happen on every launch, from any
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pasta::opencl {

// An entry stays until its handle is used again: drivers keep an object alive beyond its last
// release (events keep their queue), and addresses are reused, so the map stays as small as the
// program's heap.
template <class Value>
class HandleMap {
 public:
  std::optional<Value> find(const void* handle) const {
    const Shard& shard = shard_of(handle);
    std::lock_guard lock(shard.mutex);
    const auto found = shard.values.find(handle);
    if (found == shard.values.end()) return std::nullopt;
    return found->second;
  }

  void set(const void* handle, Value value) {
    Shard& shard = shard_of(handle);
    std::lock_guard lock(shard.mutex);
    changes_.fetch_add(1, std::memory_order_release);
    shard.values.insert_or_assign(handle, std::move(value));
  }

  // Removes and returns the entry.
  std::optional<Value> take(const void* handle) {
    Shard& shard = shard_of(handle);
    std::lock_guard lock(shard.mutex);
    const auto found = shard.values.find(handle);
    if (found == shard.values.end()) return std::nullopt;
    changes_.fetch_add(1, std::memory_order_release);
    std::optional<Value> value(std::move(found->second));
    shard.values.erase(found);
    return value;
  }

  std::vector<Value> values() const {
    std::vector<Value> all;
    for (const Shard& shard : shards_) {
      std::lock_guard lock(shard.mutex);
      for (const auto& entry : shard.values) all.push_back(entry.second);
    }
    return all;
  }

  // Goes up with every set() and take().
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }

 private:
  static constexpr size_t kShards = 16;

  struct alignas(64) Shard {
    mutable std::mutex mutex;
    std::unordered_map<const void*, Value> values;
  };

  // Handles are addresses of heap blocks: the low bits are alike, the middle ones differ.
  static size_t index_of(const void* handle) {
    return (reinterpret_cast<uintptr_t>(handle) * 0x9E3779B97F4A7C15u) >> 60;
  }
  Shard& shard_of(const void* handle) { return shards_[index_of(handle)]; }
  const Shard& shard_of(const void* handle) const { return shards_[index_of(handle)]; }

  std::atomic<uint64_t> changes_{1};
  Shard shards_[kShards];
};

// What was looked up last in a map.
template <class Value>
class LastFound {
 public:
  // `otherwise()` looks the handle up.
  template <class Otherwise>
  const Value& find(const HandleMap<Value>& map, const void* handle, Otherwise&& otherwise) {
    const uint64_t changes = map.changes();
    if (map_ != &map || handle_ != handle || changes_ != changes) {
      value_ = otherwise();
      map_ = &map;
      handle_ = handle;
      changes_ = changes;
    }
    return value_;
  }

 private:
  const HandleMap<Value>* map_ = nullptr;
  const void* handle_ = nullptr;
  uint64_t changes_ = 0;
  Value value_;
};

}  // namespace pasta::opencl
