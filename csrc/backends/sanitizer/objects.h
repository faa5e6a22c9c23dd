// Memory objects by address, and the range table that the patches search.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_map>
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

// Memory objects, cut into ranges: where others lie in them (a reservation of addresses), and where tensors begin and
// end or did so before. Tensors come and go with every launch, mostly where others were, and the ranges stay.
struct Cuts {
  std::vector<nvidia::Range> ranges;  // as uploaded
  struct Place {
    int64_t object_id;
    uint64_t offset;  // of the range in its object
    bool reserved;    // the object is a reservation

    bool operator==(const Place& other) const {
      return std::tie(object_id, offset, reserved) == std::tie(other.object_id, other.offset, other.reserved);
    }
  };
  std::vector<Place> places;  // by range
  uint32_t page_words = 0;    // of all bitmaps together
  uint32_t block_count = 0;
  bool pages_left_out = false;    // some ranges were too large for the bitmaps' bound
  bool tensors_left_out = false;  // there were more than kMostTensors
};

// What lies where at one moment.
struct Snapshot {
  std::shared_ptr<const Cuts> cuts;
  std::vector<int64_t> tensors;  // by range; null: of no tensor
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

  // A tensor of at most so many bytes, a block of access_block, may be several ranges. In larger ones the patches would
  // take notice of the cuts: an instruction that accesses another range than before takes them longer.
  static constexpr uint64_t kMostInParts = uint64_t{1} << nvidia::kBlockShift;

  // Made anew only when objects or tensors have changed since the last call, with new ranges only when they must be cut
  // in other places. Cuts that were made before are the same object again, if that is not too long ago: a program that
  // repeats itself comes back to them, and what launches keep for their ranges is of use again.
  std::shared_ptr<const Snapshot> snapshot();

 private:
  using Map = std::map<uint64_t, MemoryObject>;  // by begin
  struct Tensor {
    uint64_t begin, end;
    int64_t tensor_id;
  };
  class Cutting;

  void cut();
  std::shared_ptr<const Cuts> known(Cuts made);
  void name(const Tensor& tensor);
  void unname(const Tensor& tensor);
  bool name_ranges(const Tensor& tensor);
  std::vector<Tensor>::iterator first_tensor_from(uint64_t address);
  uint64_t smallest_tensor() const;

  const uint32_t max_page_words_;
  mutable std::mutex mutex_;
  Map objects_, reservations_;
  std::vector<Tensor> tensors_;  // by begin: what cuts walks through all of them
  std::shared_ptr<const Cuts> cuts_ = std::make_shared<Cuts>();
  bool cuts_fit_ = true;                // what there is now
  std::unordered_multimap<uint64_t, std::shared_ptr<const Cuts>> cuts_made_;  // by a hash of their ranges
  std::deque<uint64_t> hashes_made_;                                          // the oldest first
  std::vector<int64_t> names_;          // the tensor of each range, where they do
  std::shared_ptr<const Snapshot> snapshot_;  // null: out of date
};

}  // namespace pasta::sanitizer
