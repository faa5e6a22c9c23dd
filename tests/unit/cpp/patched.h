// What the patches do for one lane of an access, on the CPU.
#pragma once

#include "device/nvidia/full_reducer.h"

namespace patched {

using namespace pasta::nvidia;

inline uint32_t shape(uint32_t bytes, AccessKind kind) { return shape_of(1 + static_cast<uint32_t>(kind), bytes); }

// Whether the quick way counted the last access, at once.
inline bool g_quick = false;

template <bool kFull>
void hint(const SlotHeader& slot, uint32_t group, uint64_t pc, uint64_t address, uint32_t bytes, AccessKind kind) {
  if (lanes::rank(group) == 0) leave_hint<kFull>(slot, pc, address, shape(bytes, kind), counter_of(kind, bytes));
  lanes::meet(group);
}

inline void objects(const SlotHeader& slot, uint64_t long_pc, uint64_t address, uint32_t bytes, AccessKind kind) {
  const uint32_t pc = static_cast<uint32_t>(long_pc);
  g_quick = count_objects_quickly(slot, pc, address, bytes, shape(bytes, kind));
  if (g_quick) return;
  if (is_outside(slot, address)) return count_outside(slot, lanes::active(), bytes, kind);
  hint<false>(slot, lanes::active(), pc, address, bytes, kind);
  if (count_objects_quickly<true>(slot, pc, address, bytes, shape(bytes, kind))) return;
  reduce_objects_slowly(slot, lanes::active(), address, bytes, kind);
}

inline void all(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes, AccessKind kind) {
  const uint32_t active = lanes::active(), of = shape(bytes, kind);
  g_quick = active == kWarp ? count_whole_quickly(slot, pc, address, bytes, of)
                            : count_part_quickly(slot, active, pc, address, bytes, of);
  if (g_quick) return;
  if (lanes::ballot(active, is_outside(slot, address)) == 0) {
    hint<true>(slot, active, pc, address, bytes, kind);
    if (active == kWarp && count_whole_quickly<true>(slot, pc, address, bytes, of)) return;
    if (count_part_quickly<true>(slot, active, pc, address, bytes, of)) return;
  }
  reduce_all_slowly(slot, active, pc, address, bytes, kind);
}

}  // namespace patched
