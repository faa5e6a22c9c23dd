// A launch slot over memory objects in which the patches' reducers run, lane by lane.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "backends/sanitizer/decode.h"
#include "backends/sanitizer/objects.h"
#include "backends/sanitizer/slot_layout.h"
#include "host_slot.h"
#include "patched.h"
#include "warp_emulator.h"

using namespace pasta::nvidia;
namespace sanitizer = pasta::sanitizer;

inline constexpr uint64_t kMiB = 1 << 20;

// How many of the tables that take most counts have room: all, hot counters only, none.
enum class Room { quick, hot, none };
inline Room g_room = Room::quick;

// A slot in host memory over the given objects (begin, bytes), numbered as they come, in order of address.
struct TestSlot {
  sanitizer::Snapshot snapshot;
  HostSlot slot;
  sanitizer::TensorMaps maps;

  explicit TestSlot(const std::vector<std::pair<uint64_t, uint64_t>>& objects,
                    uint32_t features = kObjects | kSites | kBlocks) {
    sanitizer::MemoryObjects memory(1 << 20);
    int64_t id = 0;
    for (const auto& [begin, bytes] : objects) memory.add(::object(id++, begin, bytes));
    snapshot = *memory.snapshot();
    slot = HostSlot(*snapshot.cuts, sanitizer::SlotLayout::of(*snapshot.cuts, features));
    if (g_room != Room::quick) std::fill_n(slot.quick_keys(), slot.layout.quick().keys, UINT64_MAX);
    if (g_room == Room::none) header().hot_capacity = 0;
  }
  SlotHeader& header() { return slot.header(); }
  sanitizer::DecodedSlot decode() { return slot.decode(snapshot, maps, true); }
  // All null for an object, or a site, that has no row.
  pasta::AccessObjectRecord object(int64_t id) {
    for (const auto& row : decode().objects) {
      if (row.object_id == id) return row;
    }
    return {};
  }
  pasta::AccessSiteRecord site(uint64_t pc) {
    for (const auto& row : decode().sites) {
      if (row.pc == pc) return row.row;
    }
    return {};
  }
};

inline void access(TestSlot& slot, uint32_t active, uint64_t pc, const std::function<uint64_t(uint32_t)>& address,
                   uint32_t bytes, AccessKind kind) {
  warp::g_multiprocessor += 5;
  warp::run(active, [&](uint32_t lane) { patched::all(slot.header(), pc, address(lane), bytes, kind); });
}

// Calls of() with each of them, by lanes that run together and by lanes that part at every branch.
template <class Of>
void in_every_room(const Of& of) {
  for (const bool scattered : {false, true}) {
    for (const Room room : {Room::none, Room::hot, Room::quick}) {
      g_room = room, warp::g_scattered = scattered;
      of();
    }
  }
  warp::g_scattered = false;
}
