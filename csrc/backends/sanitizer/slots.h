// The launch slots of a context: fixed-size pieces of slabs of device memory, within a bound.
//
//   slab   front 0 | front 1 | ... | marks 0 | marks 1 | ... | tables 0 | ... | objects 0 | ... | trace 0 | ...
//
// Slots grow with the number and size of memory objects: slabs are cut anew when the last launch that uses them was
// read, rather than freed, which could wait for the device. Neighbours are given out first, so that one copy reads
// many, and one call clears them: a part of each lies beside the same part of the next. Not thread-safe; calls no
// vendor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "backends/sanitizer/slot_layout.h"
#include "device/nvidia/layout.h"

namespace pasta::sanitizer {

// What the hints and quick keys of a slot are about. They are right for a launch with the same ranges, and of use to
// one of the same kernel.
struct Hinted {
  const void* kernel = nullptr;
  std::shared_ptr<const Cuts> cuts;  // null: there are none that may stay

  bool operator==(const Hinted& other) const { return kernel == other.kernel && cuts == other.cuts; }
};

struct Buffer {  // of the device or of the host
  void* memory;  // null: none
  size_t bytes;
};

struct Slab {
  uint8_t* memory;
  size_t bytes;
  SlotSizes of_slot;
  std::vector<bool> used;
  uint32_t free, lowest;  // how many are not used, and that none below this one is free
  std::vector<bool> fresh;                  // never zeroed
  std::vector<nvidia::SlotHeader> headers;  // as they are on the device
  std::vector<Hinted> hinted;
  // Clean fronts with their headers, in host memory that the device can read; null: none yet, or none to be had.
  uint8_t* image = nullptr;
  bool image_tried = false;

  SlotParts parts(uint32_t slot) const;
  Buffer images() const { return {image, used.size() * of_slot.front}; }
};

struct Slot {
  Slab* slab = nullptr;  // null: there is none
  uint32_t index = 0;

  SlotParts parts() const { return slab->parts(index); }
};

class SlotPool {
 public:
  static constexpr size_t kSlabBytes = size_t{16} << 20;  // or an eighth of the bound

  explicit SlotPool(size_t max_bytes) : max_bytes_(max_bytes) {}

  // A free slot with room for `sizes`: that of the same ranges and kernel, or one that no launch had; or `any` other.
  Slot take(const SlotSizes& sizes, const Hinted& wanted = {}, bool any = false);
  void give(Slot slot);

  // When take() had none: what to allocate so that it has. 0: the bound is reached. The amount is reserved until
  // add() or cancel().
  size_t reserve(const SlotSizes& sizes);
  void add(void* memory, size_t bytes);
  void cancel(size_t bytes);

  // When reserve() gave nothing: cuts slabs that no launch uses, and whose slots are too small for `sizes`, into new
  // slots. The caller has their images from then on.
  std::vector<Buffer> recut(const SlotSizes& sizes);
  // Those of them that are too small for one slot; the caller frees their memory.
  struct Retired {
    void* memory;
    Buffer image;
  };
  std::vector<Retired> retire(const SlotSizes& sizes);

  size_t bytes() const { return bytes_; }

 private:
  static Slot use(Slot slot);
  Slab slab_of(uint8_t* memory, size_t bytes) const;
  static bool is_outgrown(const Slab& slab, const SlotSizes& sizes);

  const size_t max_bytes_;
  size_t bytes_ = 0;
  SlotSizes of_slot_;  // of new slabs
  std::list<Slab> slabs_;
};

}  // namespace pasta::sanitizer
