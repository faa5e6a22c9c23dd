// What the patches do for one lane of an access, on the CPU: the quick way, and the slow one where that does not count.
#pragma once

#include "device/nvidia/full_reducer.h"

namespace patched {

using namespace pasta::nvidia;

inline uint32_t shape(uint32_t bytes, AccessKind kind) { return shape_of(1 + static_cast<uint32_t>(kind), bytes); }

// Whether the quick way counted the last access.
inline bool g_quick = false;

inline void objects(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes, AccessKind kind) {
  uint32_t active;
  const bool quick = count_objects_quickly(slot, static_cast<uint32_t>(pc), address, bytes, shape(bytes, kind), active);
  g_quick = quick;
  if (!quick) reduce_objects_slowly(slot, active, static_cast<uint32_t>(pc), address, bytes, shape(bytes, kind), kind);
}

inline void all(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes, AccessKind kind) {
  uint32_t active, index;
  const Outcome outcome = count_all_quickly(slot, pc, address, bytes, shape(bytes, kind), active, index);
  g_quick = outcome == Outcome::counted;
  if (outcome == Outcome::touched) reduce_touched(slot, active, pc, address, bytes, kind, index);
  if (outcome == Outcome::unknown) reduce_all_slowly(slot, active, pc, address, bytes, shape(bytes, kind), kind);
}

}  // namespace patched
