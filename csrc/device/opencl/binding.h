// The host's description of what a launch's arguments are, and the place for its results. No OpenCL
// here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "device/opencl/plan.h"

namespace pasta::memory {

inline constexpr int64_t kNoObject = -1;

// What is behind a root in this launch: a buffer, a sub-buffer, an SVM or USM allocation, an image,
// local memory.
struct BoundObject {
  int64_t object_id = kNoObject;  // the caller's number; roots with the same number are one object
  uint64_t bytes = 0;             // of the whole object; 0: nothing is bound
  uint64_t offset = 0;            // of the argument within it (SVM and USM pointers; 0 for cl_mem)
  uint64_t texel_bytes = 0;       // of images
};

// Memory whose address the host knows: pointers stored in memory may lead there. Ranges must not
// overlap.
struct AddressRange {
  int64_t object_id = kNoObject;
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// Scratches of work-groups (layout.h), at the end of a hidden buffer: behind all that an Arena hands
// out. They are zero before the first launch.
struct ScratchPool {
  uint64_t offset = 0;  // in the hidden buffer, bytes
  uint64_t scratches = 0;
  uint32_t bits = 0;  // log2 of the entries of one
  bool operator==(const ScratchPool& other) const {
    return offset == other.offset && scratches == other.scratches && bits == other.bits;
  }

  // The largest that `bytes` at the end of a buffer have room for, for so many work-groups at a time.
  static ScratchPool fit(uint64_t buffer_bytes, uint64_t bytes, uint64_t work_groups);
};

struct BindingLimits {
  // Room for the map of one object: larger objects are seen in coarser granules (4 KiB, 64 KiB, 2
  // MiB).
  uint64_t map_bytes = uint64_t{4} << 20;
  uint64_t trace_records = 0;  // 16 bytes each
  ScratchPool scratch;
  bool operator==(const BindingLimits& other) const {
    return map_bytes == other.map_bytes && trace_records == other.trace_records &&
           scratch == other.scratch;
  }
};

struct Binding {
  std::vector<uint64_t> words;  // as the kernel reads them, see layout.h
  uint64_t slot_bytes = 0;
  uint64_t room_bytes =
      0;  // that the binding takes in the hidden buffer: its words, and spare lines
  std::vector<BoundObject> roots;    // one for each KernelPlan::roots
  std::vector<AddressRange> ranges;  // sorted by address
};

// `objects` has an entry for each root of the plan: entries of arguments come from the program's
// calls; those of variables need only an object_id, if any. Throws nothing but std::bad_alloc.
Binding make_binding(const KernelPlan& plan, std::vector<BoundObject> objects,
                     std::vector<AddressRange> ranges, const BindingLimits& limits);

// Places in one hidden buffer: slots from the front, bindings from the back. Single-threaded.
class Arena {
 public:
  explicit Arena(uint64_t bytes);  // a multiple of 64

  struct Place {
    uint64_t launch_word;  // value of the second hidden argument
    uint64_t slot_offset;  // bytes, in the hidden buffer
    std::optional<uint64_t>
        binding_offset;  // when set: write Binding::words there before the launch
  };
  // Null: the buffer is full. Drain it (read the slots, zero them, reset()) and ask again; a
  // binding for which fits() is false will never have a place.
  std::optional<Place> place(const Binding& binding);
  bool fits(const Binding& binding) const;

  // Bytes from the start of the buffer that slots occupy: what to read back, and to fill with zeros
  // afterwards.
  uint64_t used() const { return slots_end_; }
  void reset();

 private:
  uint64_t bytes_;
  uint64_t slots_end_ = 0;
  uint64_t bindings_begin_;
  std::map<std::vector<uint64_t>, uint64_t> known_;  // binding -> offset
};

}  // namespace pasta::memory
