// The usual way of an access: no more than it takes to see that its instruction does what it did before, with as few
// registers as a patch has, from L1; then additions and maxima, for which nobody waits.
//
// An instruction mostly does the same to the same range as the last time, which its Hint tells. Where it does not, as
// where the blocks of a kernel work on a tensor each, the hint that it left in this area of memory may fit; else one
// lane looks up which range holds the address and which counter counts, leaves that as both hints, and the warp tries
// again. What L1 remembers of pages and of the first and last byte may be behind: what only grows has at least grown
// this far. So what L1 does not know is said again, whoever said it before: the atomic makes L1 look again. A round
// trip for each would be dear where a kernel's warps all begin at once and stream through memory: half of their
// accesses touch a page that L1 does not know.
#pragma once

#include "device/nvidia/hot_counters.h"
#include "device/nvidia/lanes.h"
#include "device/nvidia/layout.h"

namespace pasta::nvidia {

// Flags are those of SanitizerCallbackMemoryAccess, below 1 << 12; at most 255 bytes a lane.
PASTA_DEVICE uint32_t shape_of(uint32_t flags, uint32_t bytes) { return flags << 8 | bytes; }
PASTA_DEVICE uint32_t flags_of_shape(uint32_t shape) { return shape >> 8; }
PASTA_DEVICE uint32_t bytes_of_shape(uint32_t shape) { return shape & 255; }
// A pc has at most 48 bits: see has_quick_key().
PASTA_DEVICE uint32_t full_shape(uint32_t shape, uint64_t pc) { return shape | static_cast<uint32_t>(pc >> 36) << 20; }

template <bool kFull>
struct At {
  static constexpr Quick kQuick = kFull ? kQuickFull : kQuickObjects;
};

PASTA_DEVICE uint8_t* bytes_of(const SlotHeader& slot) {
  return reinterpret_cast<uint8_t*>(const_cast<SlotHeader*>(&slot));
}
// By the low half of a pc: instructions are 16 bytes apart.
PASTA_DEVICE Hint* hint_of(const SlotHeader& slot, uint32_t pc_low) {
  return reinterpret_cast<Hint*>(bytes_of(slot) + kSlotHeaderBytes) + (pc_low >> 4) % kHints;
}
// Of the same instruction, by the area of an address as well.
PASTA_DEVICE Hint* area_hint_of(const SlotHeader& slot, uint32_t pc_low, uint64_t address) {
  const uint32_t at = hash_slot(uint64_t{pc_low >> 4} << 32 | address >> kAreaShift, kAreaHints);
  return reinterpret_cast<Hint*>(bytes_of(slot) + kSlotHeaderBytes) + kHints + at;
}
// Of the lane that leads `group`: all its lanes look at one hint, so that those which it serves are in one range.
PASTA_DEVICE const Hint* leaders_area_hint(const SlotHeader& slot, uint32_t group, uint32_t pc_low, uint64_t address) {
  return area_hint_of(slot, pc_low, lanes::broadcast(group, address, lanes::first(group)));
}
// In its two halves.
PASTA_DEVICE void write_hint(Hint* hint, const lanes::Four& what, const lanes::Four& range) {
  lanes::write_four(hint, what);
  lanes::write_four(&hint->begin, range);
}
inline constexpr uint32_t kServedByArea = 64;  // executions, about, until an area's hint is followed
// By the lanes of `group`, which a hint of their instruction's in an area has served: now and then one of them makes it
// the instruction's hint. So an instruction that has moved on to another range comes back to the usual way, and one
// that is in many ranges at once rarely makes L1 look again.
PASTA_DEVICE void follow_area(const SlotHeader& slot, uint32_t group, uint32_t pc_low, const Hint* of_area) {
  if (lanes::rank(group) != 0 || lanes::any_number() % kServedByArea != 0) return;
  write_hint(hint_of(slot, pc_low), lanes::glance_four(of_area), lanes::glance_four(&of_area->begin));
}
// The range that the instruction hit last, or one that it did not: a guess.
PASTA_DEVICE uint32_t hinted_range(const SlotHeader& slot, uint32_t pc_low) {
  return lanes::glance(&hint_of(slot, pc_low)->where) >> 16;
}
// A range and the upper half of its addresses, which have at most 50 bits.
PASTA_DEVICE uint32_t place_of(uint32_t index, uint64_t address) {
  return static_cast<uint32_t>(address >> 32) << 14 | index;
}
template <bool kFull>
PASTA_DEVICE Live* live_of(const SlotHeader& slot, uint32_t index) {
  return reinterpret_cast<Live*>(bytes_of(slot) + At<kFull>::kQuick.live_at) + index;
}
template <bool kFull>
PASTA_DEVICE uint64_t* quick_keys(const SlotHeader& slot) {
  return reinterpret_cast<uint64_t*>(bytes_of(slot) + At<kFull>::kQuick.keys_at);
}
template <bool kFull>
PASTA_DEVICE uint64_t* quick_counter(const SlotHeader& slot, uint32_t key, uint32_t place) {
  return reinterpret_cast<uint64_t*>(bytes_of(slot) + At<kFull>::kQuick.counters_at) +
         (key * At<kFull>::kQuick.row + place);
}

PASTA_DEVICE uint32_t* words_of(const SlotHeader& slot) { return reinterpret_cast<uint32_t*>(bytes_of(slot)); }

// Of the lanes that come here together one speaks for all that have its page, mostly all.
PASTA_DEVICE void mark_page(uint32_t* words, uint32_t page) {
  const uint32_t group = lanes::active(), lane = lanes::index();
  const uint32_t first = lanes::first(group), last = lanes::last(group);
  const uint32_t of_first = lanes::broadcast(group, page, first), of_last = lanes::broadcast(group, page, last);
  if (lane == first || (page != of_first && (lane == last || page != of_last))) {
    lanes::set_bits(words + page / 32, 1u << (page % 32));
  }
}

// Likewise for the largest value, mostly that of lane `of`.
template <class Value>
PASTA_DEVICE void raise_together(uint32_t group, uint32_t of, Value* at, Value value) {
  const Value usual = lanes::broadcast(group, value, of);
  if (lanes::index() == of || value > usual) lanes::raise(at, value);
}

// What is known of a page (its word) and of a range's first and last byte.
struct Known {
  uint32_t marks;
  lanes::Pair bytes;  // as in Live
};
template <bool kFull>
PASTA_DEVICE Known known_of(const SlotHeader& slot, uint32_t index, uint32_t page) {
  return {lanes::glance(words_of(slot) + page / 32), lanes::glance_pair(live_of<kFull>(slot, index))};
}

// A Live is named by its distance from the header, and operands come in the order in which patches have registers to
// spare for them.
PASTA_DEVICE_ASIDE void pasta_touch_unknown(const SlotHeader& slot, uint32_t live_at, uint32_t known_first,
                                            uint32_t known_last, uint32_t marks, uint32_t last, uint32_t low,
                                            uint32_t page) {
  Live* const live = reinterpret_cast<Live*>(bytes_of(slot) + live_at);
  if ((marks >> (page % 32) & 1) == 0) mark_page(words_of(slot), page);
  if (~low > known_first) {
    const uint32_t group = lanes::active();
    raise_together(group, lanes::first(group), &live->inverted_first, ~low);
  }
  if (last > known_last) {
    const uint32_t group = lanes::active();
    raise_together(group, lanes::last(group), &live->last, last);
  }
}

// An access from `low` to `last`, low halves of addresses in range `index`, which has pages.
template <bool kFull>
PASTA_DEVICE void touch(const SlotHeader& slot, uint32_t index, uint32_t page, uint32_t low, uint32_t last,
                        const Known& known) {
  const bool marked = (known.marks >> (page % 32) & 1) != 0;
  if (marked & (~low <= known.bytes.x) & (last <= known.bytes.y)) return;
  constexpr auto kLiveAt = static_cast<uint32_t>(At<kFull>::kQuick.live_at);
  pasta_touch_unknown(slot, kLiveAt + index * uint32_t{sizeof(Live)}, known.bytes.x, known.bytes.y, known.marks, last,
                      low, page);
}

// Whether the halves of a hint, of which `where` and `range` are words, are of one writer, and `address` is in the
// range.
PASTA_DEVICE bool is_in(const lanes::Four& range, uint32_t where, uint64_t address) {
  return (range.w == place_of(where >> 16, address)) & (static_cast<uint32_t>(address) - range.x <= range.y);
}

// Objects alone, by each lane; lanes that run together look at one hint. False: nothing was counted. `kAgain`: the hint
// was just left.
template <bool kAgain = false>
PASTA_DEVICE bool count_objects_quickly(const SlotHeader& slot, const Hint* hint, uint64_t address, uint32_t bytes,
                                        uint32_t shape) {
  const lanes::Pair what = kAgain ? lanes::peek_pair(hint) : lanes::glance_pair(hint);  // shape and where
  const lanes::Four range = kAgain ? lanes::peek_four(&hint->begin) : lanes::glance_four(&hint->begin);
  if (!((what.x == shape) & is_in(range, what.y, address))) return false;
  const uint32_t group = lanes::active(), low = static_cast<uint32_t>(address), index = what.y >> 16;
  const uint32_t page = static_cast<uint32_t>(address >> kPageShift) + range.z;
  const Known known = known_of<false>(slot, index, page);
  // Counted while these loads are under way.
  const uint32_t place = (what.y & 0xffff) * kReplicas + lanes::any_number() % kReplicas;
  if (lanes::rank(group) == 0) lanes::add(quick_counter<false>(slot, 0, place), lanes::count(group));
  touch<false>(slot, index, page, low, low + bytes - 1, known);
  return true;
}

// -- What the slow way leaves for it ---------------------------------------------------------------

// By range, kind and size (of counter_of()); and by instruction where the patches are full.
PASTA_DEVICE uint64_t quick_key(uint64_t pc, uint32_t index, uint32_t counter) {
  return ((pc >> 4) << 19 | uint64_t{index} << 5 | counter) + 1;
}
inline constexpr uint32_t kMostQuickRanges = 1 << 14;
PASTA_DEVICE bool has_quick_key(uint64_t pc, uint32_t index, uint64_t address) {
  return pc >> 48 == 0 && index < kMostQuickRanges && address >> 50 == 0;
}
PASTA_DEVICE uint64_t quick_pc(uint64_t key) { return ((key - 1) >> 19) << 4; }
PASTA_DEVICE uint32_t quick_range(uint64_t key) { return static_cast<uint32_t>((key - 1) >> 5) % kMostQuickRanges; }
PASTA_DEVICE uint32_t quick_object_counter(uint64_t key) { return static_cast<uint32_t>(key - 1) & 31; }

}  // namespace pasta::nvidia
