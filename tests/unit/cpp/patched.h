// What the patches do for one lane of an access, on the CPU.
#pragma once

#include "device/nvidia/full_reducer.h"

namespace patched {

using namespace pasta::nvidia;

inline uint32_t shape(uint32_t bytes, AccessKind kind) { return shape_of(1 + static_cast<uint32_t>(kind), bytes); }

// Whether the quick way counted the last access, at once.
inline bool g_quick = false;
// How often one was looked up, to be left as a hint.
inline int g_hints_left = 0;

template <bool kFull>
void hint(const SlotHeader& slot, uint32_t group, uint64_t pc, uint64_t address, uint32_t bytes, AccessKind kind) {
  if (lanes::rank(group) == 0) {
    ++g_hints_left;
    leave_hint<kFull>(slot, pc, address, shape(bytes, kind), counter_of(kind, bytes));
  }
  lanes::meet(group);
}

inline void objects(const SlotHeader& slot, uint64_t long_pc, uint64_t address, uint32_t bytes, AccessKind kind) {
  const uint32_t pc = static_cast<uint32_t>(long_pc), of = shape(bytes, kind);
  g_quick = count_objects_quickly(slot, hint_of(slot, pc), address, bytes, of);
  if (g_quick) return;
  if (is_outside(slot, address)) return count_outside(slot, lanes::active(), bytes, kind);
  const Hint* const of_area = leaders_area_hint(slot, lanes::active(), pc, address);
  if (count_objects_quickly(slot, of_area, address, bytes, of)) {
    return follow_area(slot, lanes::active(), pc, of_area);
  }
  const uint32_t group = lanes::active();
  hint<false>(slot, group, pc, address, bytes, kind);
  if (count_objects_quickly<true>(slot, leaders_area_hint(slot, group, pc, address), address, bytes, of)) return;
  reduce_objects_slowly(slot, lanes::active(), address, bytes, kind);
}

inline void all(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes, AccessKind kind) {
  const uint32_t active = lanes::active(), of = shape(bytes, kind), pc_low = static_cast<uint32_t>(pc);
  const Hint* const own = hint_of(slot, pc_low);
  g_quick = active == kWarp ? count_whole_quickly(slot, own, pc, address, bytes, of)
                            : count_part_quickly(slot, active, own, pc, address, bytes, of);
  if (g_quick) return;
  if (lanes::ballot(active, is_outside(slot, address)) == 0) {
    const Hint* const of_area = leaders_area_hint(slot, active, pc_low, address);
    if (count_all_quickly(slot, active, of_area, pc, address, bytes, of)) {
      return follow_area(slot, active, pc_low, of_area);
    }
    hint<true>(slot, active, pc, address, bytes, kind);
    if (count_all_quickly<true>(slot, active, of_area, pc, address, bytes, of)) return;
  }
  reduce_all_slowly(slot, active, pc, address, bytes, kind);
}

}  // namespace patched
