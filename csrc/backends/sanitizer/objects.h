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

// The ranges at one moment. An object that others lie in (a reservation of addresses) is several ranges.
struct Snapshot {
  std::vector<nvidia::Range> ranges;  // as uploaded
  struct Piece {
    int64_t object_id;
    uint64_t offset;  // of the range in its object
  };
  std::vector<Piece> pieces;  // by range
  uint32_t page_words = 0;    // of all bitmaps together
  uint32_t block_count = 0;
  bool pages_left_out = false;  // some ranges were too large for the bitmaps' bound
};

class MemoryObjects {
 public:
  // `max_page_words` bounds the bitmaps of a slot: the largest ranges go without when they do not fit.
  explicit MemoryObjects(uint32_t max_page_words) : max_page_words_(max_page_words) {}

  // Replaces what was known about ranges that overlap: their end was not seen. A reservation holds addresses that
  // later objects may lie in.
  void add(const MemoryObject& object, bool reservation = false);
  // Forgets and returns the object that begins at `address`.
  std::optional<MemoryObject> take(uint64_t address, bool reservation = false);
  std::optional<MemoryObject> find(uint64_t address) const;

  // Built anew only when objects have changed since the last call.
  std::shared_ptr<const Snapshot> snapshot();

 private:
  using Map = std::map<uint64_t, MemoryObject>;  // by begin
  std::shared_ptr<const Snapshot> build() const;

  const uint32_t max_page_words_;
  mutable std::mutex mutex_;
  Map objects_, reservations_;
  std::shared_ptr<const Snapshot> snapshot_;  // null: out of date
};

}  // namespace pasta::sanitizer
