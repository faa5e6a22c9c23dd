// The raw path: every access of a warp, appended to the trace of its launch.
#pragma once

#include "device/nvidia/lanes.h"
#include "device/nvidia/layout.h"

namespace pasta::nvidia {

inline constexpr uint32_t kLanesOfRecord = sizeof(TraceRecord) / sizeof(uint64_t);  // addresses that fit in one

PASTA_DEVICE uint64_t trace_what(uint64_t pc, MemorySpace space, AccessKind kind, bool scattered) {
  return (pc >> 4) << 5 | uint64_t{scattered} << 4 | static_cast<uint64_t>(space) << 2 | static_cast<uint64_t>(kind);
}
PASTA_DEVICE uint64_t traced_pc(uint64_t what) { return (what >> 5) << 4; }
PASTA_DEVICE bool traced_scattered(uint64_t what) { return (what >> 4 & 1) != 0; }
PASTA_DEVICE MemorySpace traced_space(uint64_t what) { return static_cast<MemorySpace>(what >> 2 & 3); }
PASTA_DEVICE AccessKind traced_kind(uint64_t what) { return static_cast<AccessKind>(what & 3); }

// Room for `records`, by one lane; null when there is none, which is counted. What was taken in vain is marked as the
// end, for the reader.
PASTA_DEVICE TraceRecord* take_records(const SlotHeader& slot, uint32_t records) {
  const uint64_t at = lanes::take(&slot.totals->trace_wanted, records);
  if (at + records <= slot.trace_capacity) return slot.trace + at;
  if (at < slot.trace_capacity) slot.trace[at].lanes = 0;
  lanes::add(&slot.totals->trace_lost, 1);
  return nullptr;
}

// One access by one lane, for itself or for its warp. No collectives.
PASTA_DEVICE void trace_span(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes, AccessKind kind) {
  TraceRecord* const record = take_records(slot, 1);
  if (record == nullptr) return;
  *record = {trace_what(pc, MemorySpace::global, kind, false), 1u << lanes::index(), bytes, address, 0};
}

// Each active lane accesses `bytes` at its own `address`.
PASTA_DEVICE void trace_warp(const SlotHeader& slot, uint32_t active, uint64_t pc, MemorySpace space, uint64_t address,
                             uint32_t bytes, AccessKind kind) {
  const uint32_t first = lanes::first(active), others = active & (active - 1), rank = lanes::rank(active);
  const uint64_t begin = lanes::broadcast(active, address, first);
  const uint64_t next = lanes::broadcast(active, address, others == 0 ? first : lanes::first(others));
  const uint64_t stride = next - begin;
  const bool scattered = lanes::ballot(active, address != begin + rank * stride) != 0;
  const uint32_t following = scattered ? (lanes::count(active) + kLanesOfRecord - 1) / kLanesOfRecord : 0;
  TraceRecord* record = nullptr;
  if (lanes::index() == first) {
    record = take_records(slot, 1 + following);
    if (record != nullptr) {
      *record = {trace_what(pc, space, kind, scattered), active, bytes, begin, static_cast<int64_t>(stride)};
    }
  }
  if (!scattered) return;
  record = reinterpret_cast<TraceRecord*>(lanes::broadcast(active, reinterpret_cast<uint64_t>(record), first));
  if (record != nullptr) reinterpret_cast<uint64_t*>(record + 1)[rank] = address;
}

}  // namespace pasta::nvidia
