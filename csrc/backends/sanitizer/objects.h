// Memory objects by address, and the range table that the patches search.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/nvidia/layout.h"
#include "schema/tables.h"

namespace pasta::sanitizer {

struct MemoryObject {
  int64_t object_id;
  uint64_t begin, end;
  MemoryKind kind;
  int32_t device_id;
};

// The ranges at one moment. An object that others lie in (a reservation of addresses), or tensors, is several ranges.
struct Snapshot {
  std::vector<nvidia::Range> ranges;  // as uploaded
  struct Piece {
    int64_t object_id, tensor_id;  // null: of no tensor
    uint64_t offset;               // of the range in its object
  };
  std::vector<Piece> pieces;  // by range
  uint32_t page_words = 0;    // of all bitmaps together
  uint32_t block_count = 0;
  bool pages_left_out = false;    // some ranges were too large for the bitmaps' bound
  bool tensors_left_out = false;  // there were more than kMostTensors
};

class MemoryObjects {
 public:
  // Tensors of a snapshot, the largest: each makes the slot of every launch larger.
  static constexpr size_t kMostTensors = 8192;

  // `max_page_words` bounds the bitmaps of a slot: the largest ranges go without when they do not fit.
  explicit MemoryObjects(uint32_t max_page_words) : max_page_words_(max_page_words) {}

  // Replaces what was known about ranges that overlap: their end was not seen. A reservation holds addresses that
  // later objects may lie in.
  void add(const MemoryObject& object, bool reservation = false);
  // Forgets and returns the object that begins at `address`.
  std::optional<MemoryObject> take(uint64_t address, bool reservation = false);
  std::optional<MemoryObject> find(uint64_t address) const;

  // A tensor lies in an object, or will before a launch uses it. Replaces those that overlap: their end was not seen.
  void add_tensor(int64_t tensor_id, uint64_t address, uint64_t bytes);
  // Forgets the tensor that begins at `address`; null when there is none.
  int64_t take_tensor(uint64_t address);

  // Built anew only when objects have changed since the last call.
  std::shared_ptr<const Snapshot> snapshot();

 private:
  using Map = std::map<uint64_t, MemoryObject>;  // by begin
  struct Tensor {
    uint64_t begin, end;
    int64_t tensor_id;
  };
  std::shared_ptr<const Snapshot> build() const;
  std::vector<Tensor>::iterator first_tensor_from(uint64_t address);
  void append(Snapshot& snapshot, const MemoryObject& object, uint64_t begin, uint64_t end, uint64_t smallest) const;
  uint64_t smallest_tensor() const;

  const uint32_t max_page_words_;
  mutable std::mutex mutex_;
  Map objects_, reservations_;
  std::vector<Tensor> tensors_;  // by begin: every snapshot walks through all of them
  std::shared_ptr<const Snapshot> snapshot_;  // null: out of date
};

}  // namespace pasta::sanitizer
