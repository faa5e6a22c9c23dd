// The launch slots of a context: fixed-size pieces of slabs of device memory, within a bound.
//
//   slab   front 0 | front 1 | ... | back 0 | back 1 | ...
//
// Slots grow with the number and size of memory objects: slabs of the old size go when the last launch that uses
// them was read. Neighbours are given out first, so that one copy reads many. Not thread-safe; calls no vendor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "device/nvidia/layout.h"

namespace pasta::sanitizer {

struct Slab {
  uint8_t* memory;
  size_t bytes, slot_bytes, back_bytes;  // a slot's are those of its front
  std::vector<bool> used;
  std::vector<bool> fresh;                   // never zeroed
  std::vector<nvidia::SlotHeader> headers;   // as they are on the device

  uint8_t* front(uint32_t slot) const { return memory + slot * slot_bytes; }
  uint8_t* back(uint32_t slot) const { return memory + used.size() * slot_bytes + slot * back_bytes; }
};

struct Slot {
  Slab* slab = nullptr;  // null: there is none
  uint32_t index = 0;
};

class SlotPool {
 public:
  static constexpr size_t kSlabBytes = size_t{16} << 20;  // or an eighth of the bound

  // All slots have backs of one size.
  SlotPool(size_t max_bytes, size_t back_bytes) : max_bytes_(max_bytes), back_bytes_(back_bytes) {}

  // A free slot with room for `bytes` in its front.
  Slot take(size_t bytes);
  void give(Slot slot);

  // When take() had none: what to allocate so that it has. 0: the bound is reached. The amount is reserved until
  // add() or cancel().
  size_t reserve(size_t bytes);
  void add(void* memory, size_t bytes);
  void cancel(size_t bytes);

  // Memory of slabs that no launch uses and whose slots are too small for `bytes`; the caller frees it.
  std::vector<void*> retire(size_t bytes);
  std::vector<void*> all() const;

  size_t bytes() const { return bytes_; }

 private:
  size_t slot_bytes(size_t bytes) const;

  const size_t max_bytes_, back_bytes_;
  size_t bytes_ = 0;
  size_t slot_bytes_ = 0;  // of new slabs
  std::list<Slab> slabs_;
};

}  // namespace pasta::sanitizer
