// The usual way of an access: a full look, from L1, with as few registers as a patch has, and one addition.
//
// An access is *settled* when its instruction did the same thing to the same range before (its Hint says so), on a page
// that is marked, between the first and the last byte touched so far. Then nothing about it is new, and its counter is
// known. What L1 remembers may be behind: what only grows has at least grown this far, and the slow way looks again.
#pragma once

#include "device/nvidia/lanes.h"
#include "device/nvidia/layout.h"

namespace pasta::nvidia {

// Flags are those of SanitizerCallbackMemoryAccess, below 1 << 24; at most 255 bytes a lane.
PASTA_DEVICE uint32_t shape_of(uint32_t flags, uint32_t bytes) { return flags << 8 | bytes; }

template <bool kFull>
struct At {
  static constexpr Quick kQuick = kFull ? kQuickFull : kQuickObjects;
};

PASTA_DEVICE uint8_t* bytes_of(const SlotHeader& slot) {
  return reinterpret_cast<uint8_t*>(const_cast<SlotHeader*>(&slot));
}
PASTA_DEVICE Hint* hint_of(const SlotHeader& slot, uint64_t pc) {
  // Instructions are 16 bytes apart.
  return reinterpret_cast<Hint*>(bytes_of(slot) + kSlotHeaderBytes) + (static_cast<uint32_t>(pc) >> 4) % kHints;
}
// The range that the instruction hit last, or one that it did not: a guess.
PASTA_DEVICE uint32_t hinted_range(const SlotHeader& slot, uint64_t pc) {
  return lanes::glance(&hint_of(slot, pc)->where) >> 16;
}
template <bool kFull>
PASTA_DEVICE Live* live_of(const SlotHeader& slot, uint32_t index) {
  return reinterpret_cast<Live*>(bytes_of(slot) + At<kFull>::kQuick.live_at) + index;
}
template <bool kFull>
PASTA_DEVICE uint64_t* quick_counter(const SlotHeader& slot, uint32_t key, uint32_t place) {
  return reinterpret_cast<uint64_t*>(bytes_of(slot) + At<kFull>::kQuick.counters_at) +
         (key * At<kFull>::kQuick.row + place);
}

template <bool kFull>
PASTA_DEVICE bool is_settled(const SlotHeader& slot, uint32_t where, uint64_t address, uint32_t bytes) {
  const lanes::Four live = lanes::glance_four(live_of<kFull>(slot, where >> 16));  // as in Live
  const uint32_t low = static_cast<uint32_t>(address);
  const bool inside = (static_cast<uint32_t>(address >> 32) == live.x) & (~low <= live.y) & (low + bytes - 1 <= live.z);
  const uint32_t page = inside ? static_cast<uint32_t>(address >> kPageShift) + live.w : 0;
  const uint32_t marks = lanes::glance(reinterpret_cast<const uint32_t*>(bytes_of(slot)) + page / 32);
  return inside & ((marks >> (page % 32) & 1) != 0);
}

// Objects alone. False: nothing was counted, for any lane of `active`, which is set.
PASTA_DEVICE bool count_objects_quickly(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes,
                                        uint32_t shape, uint32_t& active) {
  const lanes::Pair hint = lanes::glance_pair(hint_of(slot, pc));  // shape and where
  const bool settled = (hint.x == shape) & is_settled<false>(slot, hint.y, address, bytes);
  active = lanes::active();
  if (!lanes::all(active, settled)) return false;
  if (lanes::rank(active) == 0) {
    lanes::add(quick_counter<false>(slot, hint.y & 0xffff, lanes::multiprocessor() % kReplicas), lanes::count(active));
  }
  return true;
}

enum class Outcome { counted, settled, unsettled };

// Objects, blocks and sites. Counts full warps within one block; other warps are at most settled, all in range `index`.
// The outcome is that of all lanes of `active`, which is set.
PASTA_DEVICE Outcome count_all_quickly(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes,
                                       uint32_t shape, uint32_t& active, uint32_t& index) {
  constexpr uint32_t kAll = 0xffffffff;
  const lanes::Four hint = lanes::glance_four(hint_of(slot, pc));
  const bool settled = (hint.x == shape) & (hint.z == static_cast<uint32_t>(pc >> 4)) &
                       (hint.w == static_cast<uint32_t>(pc >> 36)) & is_settled<true>(slot, hint.y, address, bytes);
  index = hint.y >> 16;
  active = lanes::active();
  if (!lanes::all(active, settled)) return Outcome::unsettled;
  if (active != kAll) return Outcome::settled;
  const uint32_t low = static_cast<uint32_t>(address);
  const lanes::Pair place = lanes::glance_pair(&live_of<true>(slot, index)->begin);  // begin and first_block
  const bool in_blocks = place.y != kUntracked;
  const uint32_t block = (low - place.x) >> kBlockShift;
  if (in_blocks && !lanes::all(kAll, block == lanes::broadcast(kAll, block, 0))) return Outcome::settled;
  const uint32_t peers = lanes::match(kAll, low >> kSectorShift);
  const uint32_t sectors = lanes::count(lanes::ballot(kAll, lanes::rank(peers) == 0));
  const uint32_t lane = lanes::index();
  if (lane == 0) lanes::add(quick_counter<true>(slot, hint.y & 0xffff, sectors - 1), 1);
  if (lane == 1 && in_blocks) lanes::add(slot.blocks + place.y + block, 32);
  return Outcome::counted;
}

// -- What the slow way leaves for it ---------------------------------------------------------------

// By range, kind and size (of CounterOf); and by instruction where the patches are full.
PASTA_DEVICE uint64_t quick_key(uint64_t pc, uint32_t index, uint32_t counter) {
  return ((pc >> 4) << 19 | uint64_t{index} << 5 | counter) + 1;
}
inline constexpr uint32_t kMostQuickRanges = 1 << 14;
PASTA_DEVICE bool has_quick_key(uint64_t pc, uint32_t index) { return pc >> 48 == 0 && index < kMostQuickRanges; }
PASTA_DEVICE uint64_t quick_pc(uint64_t key) { return ((key - 1) >> 19) << 4; }
PASTA_DEVICE uint32_t quick_range(uint64_t key) { return static_cast<uint32_t>((key - 1) >> 5) % kMostQuickRanges; }
PASTA_DEVICE uint32_t quick_object_counter(uint64_t key) { return static_cast<uint32_t>(key - 1) & 31; }

}  // namespace pasta::nvidia
