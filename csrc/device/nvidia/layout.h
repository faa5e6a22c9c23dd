// What the host and the patches agree on: the bytes of a launch slot and of the range table.
//
// Every instrumented launch gets a slot in device memory; the patches reduce into it and the host reads it once the
// launch is known to have ended. The range table is shared by all launches since memory objects last changed.
//
//   range table   Range[range_count], sorted by begin, disjoint
//   slot, front   SlotHeader, written by the host before the launch; what patches get
//                 Hint[] of instructions | Hint[] of instructions in areas | quick keys u64[]    at fixed distances
//                 quick counters u64[] | Live[range_count]                                       from it
//                 Totals
//   slot, marks   pages u32[] | blocks u64[]
//   slot, tables  HotCounter[] | TensorMapEntry[] | SiteEntry[]              read only if the launch used them
//   slot, objects ObjectCounters[range_count + 1]                            likewise; few launches do
//   slot, trace   TraceRecord[]
//
// When a launch begins all is zero but the header and the trace, of which only what the launch wrote is read; and hints
// and quick keys, which may be those that a launch with the same ranges left, of the same kernel if it can be.
// ObjectCounters[range_count] is for addresses that no known object holds.
//
// A patch has the registers of a function call and no more: what nearly all accesses need lies where a patch finds it
// with few of them (see quick.h), and the host adds up what was counted in different places.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pasta::nvidia {

inline constexpr uint32_t kPageShift = 12;    // bitmaps are of 4 KiB pages; larger pages are their unions
inline constexpr uint32_t kBlockShift = 21;   // hotness is counted per 2 MiB
inline constexpr uint32_t kSectorShift = 5;   // 32 bytes, the unit in which L1 and L2 move data
inline constexpr uint32_t kSizeClasses = 6;   // an access moves 1, 2, 4, 8, 16 or 32 bytes a lane
inline constexpr uint32_t kTensorRank = 5;    // at most, of a TMA tensor map
inline constexpr uint32_t kUntracked = UINT32_MAX;

enum class AccessKind : uint32_t { load = 0, store = 1, atomic = 2 };
inline constexpr uint32_t kAccessKinds = 3;

enum class MemorySpace : uint32_t { global = 0, shared = 1, local = 2 };

struct Range {
  uint64_t begin, end;
  uint32_t page_word;    // first word of its bitmap in the slot's pages; kUntracked: it has none
  uint32_t first_block;  // first of its counters in the slot's blocks; kUntracked: it has none, or is one block, of
                         // which the counters of the object tell all
};
static_assert(sizeof(Range) == 24);

// What finds no quick or hot counter, which count lanes by kind and size: accesses of other sizes (partly zero-filled
// cp.async, bulk copies), and those for which there is no room.
struct ObjectCounters {
  uint64_t count[kAccessKinds], bytes[kAccessKinds];
  // Of a range without pages; others have a Live. Maxima, so that zero means untouched: the end of the last byte, and ~
  // of the first byte's offset.
  uint64_t end, inverted_first;
};
static_assert(sizeof(ObjectCounters) == 8 * 8);

// The first and the last byte touched of a range with pages. Such a range lies between two multiples of 4 GiB, so that
// the low half of an address tells where. Maxima, so that zero means untouched.
struct alignas(8) Live {
  uint32_t inverted_first;  // ~ of the first byte's low half
  uint32_t last;            // the last byte's low half
};
static_assert(sizeof(Live) == 8);

// What an instruction did last, or last in an area of memory, and the range that it did it to, left for its next
// execution: most do the same again. Written and read in two halves, which may be of different writers: then `place`
// tells. All else in the second half follows from the range.
struct alignas(16) Hint {
  uint32_t shape;      // shape_of(), with the pc's highest bits where patches are full; 0: nothing
  uint32_t where;      // range << 16 | quick counter
  uint32_t pc_low;     // of pc >> 4, where patches are full
  uint32_t blocks;     // counter of the range's first block, in u64s from the header, where patches are full; 0: none
  uint32_t begin;      // low half of the range's first byte
  uint32_t last;       // its last byte, from the first
  uint32_t page_bias;  // (address >> kPageShift) + page_bias: the page's bit, counted from the header's first
  uint32_t place;      // place_of() the range and its addresses
};
static_assert(sizeof(Hint) == 32);

struct HotCounter {
  uint64_t key;  // hot_key(); 0: free
  uint64_t count;
};
static_assert(sizeof(HotCounter) == 16);

struct SiteEntry {
  uint64_t key;  // site_key(); 0: free
  uint64_t executions, lanes, bytes, sectors, ideal_sectors, bank_conflicts;
  uint32_t kind;         // AccessKind
  uint32_t lane_counts;  // bit n - 1: an execution had n lanes
};
static_assert(sizeof(SiteEntry) == 64);

// The TMA accesses at one instruction through one tensor map. The host knows what the map describes.
inline constexpr uint32_t kTensorMapWords = 16;  // 128 bytes
struct TensorMapEntry {
  uint64_t key;  // hash of the map and pc; 0: free
  uint64_t pc;
  uint64_t executions;
  uint64_t map[kTensorMapWords];
  uint32_t highest[kTensorRank], inverted_lowest[kTensorRank];  // of ordered(coordinate); maxima as above
  uint32_t mode;  // Sanitizer_LoadMode
  uint32_t reserved;
};
static_assert(sizeof(TensorMapEntry) == 200);

// One execution of an instruction by a warp, in the trace. Where the addresses of its lanes are not evenly spaced they
// follow, as u64 in the order of the lanes, in as many whole records as they take.
struct TraceRecord {
  uint64_t what;     // trace_what()
  uint32_t lanes;    // that take part, a bit each; 0: the trace ends here
  uint32_t bytes;    // of each lane
  uint64_t address;  // of the first of them
  int64_t stride;    // from one of them to the next
};
static_assert(sizeof(TraceRecord) == 32);

struct Totals {
  uint64_t lost_sites;        // executions that found no room among the sites
  uint64_t lost_tensor_maps;  // likewise
  uint64_t trace_wanted;      // records, whether there was room for them or not
  uint64_t trace_lost;        // executions for which there was none
  uint64_t tables_used, objects_used;  // not 0: there is something in them
};
static_assert(sizeof(Totals) == 6 * 8);

// What the host makes rows of, and so what a slot has room for: with sites, blocks or the trace, for all of the first
// three, since the patches then count them all.
enum Features : uint32_t {
  kObjects = 1u << 0,
  kSites = 1u << 1,
  kBlocks = 1u << 2,
  // The byte mask of bulk stores is an operand since 13.3, undefined in the hands of an older library.
  kBulkMasks = 1u << 3,
  kTrace = 1u << 4,
};

struct SlotHeader {
  const Range* ranges;
  uint64_t begin, end;  // of all ranges together
  Totals* totals;
  ObjectCounters* objects;
  uint32_t* pages;
  uint64_t* blocks;
  HotCounter* hot;
  TensorMapEntry* tensor_maps;
  SiteEntry* sites;
  TraceRecord* trace;
  uint32_t range_count;
  uint32_t hot_capacity, tensor_map_capacity, site_capacity;  // powers of two, or 0
  uint32_t trace_capacity;                                    // records
  uint32_t features;
};
static_assert(sizeof(SlotHeader) == 112);
inline constexpr size_t kSlotHeaderBytes = 128;  // the rest of the slot stays aligned

// Quick counters are rows, one for each key that found room. Patches for objects alone: by range, kind and size, a row
// of replicas, any of which counts; an optimizer's kernel is in hundreds of tensors at once. Full patches: by
// instruction as well, for full warps, a row by the sectors that they need.
inline constexpr uint32_t kHints = 256;      // instructions so many apart share one
inline constexpr uint32_t kAreaHints = 512;  // those of instructions in areas, by a hash
inline constexpr uint32_t kAreaShift = 20;   // 1 MiB
inline constexpr uint32_t kReplicas = 2;
struct Quick {
  uint32_t keys, row;  // powers of two
  size_t keys_at, counters_at, live_at;  // from the header

  constexpr Quick(uint32_t of_keys, uint32_t of_row)
      : keys(of_keys),
        row(of_row),
        keys_at(kSlotHeaderBytes + (kHints + kAreaHints) * sizeof(Hint)),
        counters_at(keys_at + size_t{of_keys} * sizeof(uint64_t)),
        live_at(counters_at + size_t{of_keys} * of_row * sizeof(uint64_t)) {}
};
inline constexpr Quick kQuickObjects{512, kReplicas}, kQuickFull{128, 32};

inline constexpr uint32_t kMaxProbes = 64;  // in the hash tables: then the entry counts as lost
inline constexpr uint32_t kHotProbes = 4;   // for a hot or quick counter: then one that all share takes it

}  // namespace pasta::nvidia
