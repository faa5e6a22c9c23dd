// Where everything lies in the hidden buffer: what instrumented kernels and the host agree on.
//
//   hidden buffer, 64-byte units                        launch word (second hidden argument)
//   ┌─────────────────────────┬── · · ──┬───────────┐   low 32 bits:  unit where the slot begins
//   │ slot │ slot │ slot │  → │         │ ← binding │   high 32 bits: unit where the binding begins
//   └─────────────────────────┴── · · ──┴───────────┘
//
// A *binding* says what the arguments of a launch are. The host writes it once and any number of
// launches with the same arguments share it. A *slot* takes the results of one launch and is zero
// before it. Both are 64-bit words.
//
//   slot     0        accesses that wanted a place in the trace: more than it holds are lost
//            1..3     work-group size as enqueued: the runtime may have chosen it
//            4        work-groups that found no scratch: their lanes were not compared
//            5        1: a sub-group is no part of a row, and lines of the map may be missing
//            6..7     0
//            8..      of root k (K roots), three arrays:
//                     base[k]   address of its object's first byte, as the device sees it
//                     first[k]  ~(offset of the first byte touched)
//                     last[k]   offset behind the last byte touched; 0 in both: untouched
//            counters 8 rows of C words, one row a shard; a row begins at a multiple of 8 words
//            then, at offsets that the binding gives,
//            table    dynamic site d, object o: accesses[d * stride + o]; o < K: roots, then ranges
//            extents  of range r: first, last, as above
//            blocks   of each object of more than one block: accesses to each 2 MiB of it, 8 rows
//                     as above (ranges use the first only); a row begins at a multiple of 8 words
//            maps     one byte a granule (2^shift bytes of address): 1 if touched; one more byte
//                     takes accesses outside the object
//            trace    records of 16 bytes: u64 address, u64 work-item << 24 | site
//
//   binding  0        offset of the trace in the slot, bytes
//            1        records that the trace can hold
//            2        ranges (R)
//            3        offset of the table in the slot, bytes
//            4        stride of the table, words
//            5        offset of the ranges' extents in the slot, bytes
//            6        0, which the compiler cannot know (StateLayout::zero)
//            7        offset from the binding of its spare lines: 64 x 64 bytes that nobody reads
//            8        largest power of two up to R: the first step of a binary search
//            9        offset of the scratches in the hidden buffer, bytes
//            10       how many there are
//            11       64 - log2(entries of a scratch)
//            12..15   0
//            16 + 5 k root k: bytes by which its pointer lies behind the start of its object,
//                     bytes of the object, offset of its map in the slot, shift, offset of its
//                     blocks (0: not counted)
//            16 + 5 (K + r)  range r, sorted by address: address, bytes, and the same
//
// A *scratch* belongs to one work-group while that runs, and is as it was before when it has ended.
// It is a hash table in which the work-items of a sub-group meet (scratch_keys.h), wherever and
// whenever they run. Scratches lie behind the bindings, at the end of the hidden buffer.
//
//   scratch  0        1: a work-group has it
//            1        entries taken
//            2..7     0
//            8 + 8 e  entry e: key (0: free), count, most, number of the entry that was taken e-th,
//                     first, bits, 0, 0
#pragma once

#include <cstdint>

namespace pasta::memory {

inline constexpr uint64_t kUnit = 64;      // bytes
inline constexpr uint32_t kWord = 8;       // bytes
inline constexpr uint32_t kShards = 8;     // work-groups spread their atomics over these
inline constexpr uint32_t kLineShift = 6;  // log2 of a line's bytes
inline constexpr uint32_t kPageShift = 12;
inline constexpr uint32_t kBlockShift = 21;
inline constexpr uint32_t kBanks = 32;  // of local memory, each 4 bytes wide

inline constexpr uint32_t kSlotTraceWanted = 0;
inline constexpr uint32_t kSlotLocalSize = 1;
inline constexpr uint32_t kSlotUngrouped = 4;
inline constexpr uint32_t kSlotScattered = 5;
inline constexpr uint32_t kSlotRoots = 8;

struct SlotLayout {
  uint32_t roots;
  uint32_t counters;

  uint32_t base(uint32_t root) const { return kSlotRoots + root; }
  uint32_t first(uint32_t root) const { return kSlotRoots + roots + root; }
  uint32_t last(uint32_t root) const { return kSlotRoots + 2 * roots + root; }
  uint32_t row_words() const { return (counters + 7) / 8 * 8; }
  uint32_t counter(uint32_t shard, uint32_t number) const {
    return (kSlotRoots + 3 * roots + 7) / 8 * 8 + shard * row_words() + number;
  }
  uint32_t fixed_words() const { return counter(kShards, 0); }
};

inline constexpr uint32_t kBindingTrace = 0;
inline constexpr uint32_t kBindingTraceRecords = 1;
inline constexpr uint32_t kBindingRanges = 2;
inline constexpr uint32_t kBindingTable = 3;
inline constexpr uint32_t kBindingStride = 4;
inline constexpr uint32_t kBindingExtents = 5;
inline constexpr uint32_t kBindingZero = 6;
inline constexpr uint32_t kBindingSpare = 7;
inline constexpr uint32_t kSpareLines = 64;  // work-groups share them by number
inline constexpr uint32_t kBindingFirstStep = 8;
inline constexpr uint32_t kBindingScratch = 9;
inline constexpr uint32_t kBindingScratches = 10;
inline constexpr uint32_t kBindingScratchShift = 11;
inline constexpr uint32_t kBindingObjects = 16;
inline constexpr uint32_t kBindingObjectWords = 5;
enum ObjectWord : uint32_t { kObjectStart, kObjectBytes, kObjectMap, kObjectShift, kObjectBlocks };

inline constexpr uint32_t kScratchHeaderBytes = 64;
inline constexpr uint32_t kScratchEntryBytes = 64;
inline constexpr uint32_t kScratchTaken = 1;  // word of the header
enum ScratchWord : uint32_t {
  kEntryKey,
  kEntryCount,
  kEntryMost,
  kEntryLog,
  kEntryFirst,
  kEntryBits
};
inline constexpr uint32_t kMostScratchBits = 20;  // log2 of entries: keys hold entry numbers

// Of the counters of an object's blocks, in one shard.
constexpr uint64_t block_row_bytes(uint64_t object_bytes) {
  constexpr uint32_t shift = kBlockShift + 3;  // what the eight words of a unit count
  return ((object_bytes + (uint64_t{1} << shift) - 1) >> shift) * kUnit;
}

inline constexpr uint32_t kTraceRecordBytes = 16;
inline constexpr uint32_t kTraceSiteBits = 24;

}  // namespace pasta::memory
