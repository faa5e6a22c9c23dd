#include "backends/sanitizer/decode.h"

#include <algorithm>
#include <map>

#include "device/nvidia/ranges.h"
#include "device/nvidia/site_reducer.h"

namespace pasta::sanitizer {
namespace {

using nvidia::AccessKind;
using nvidia::ObjectCounters;

constexpr uint64_t kMostRuns = 1 << 18;  // rows of a TMA box that are marked one by one

AccessSiteKind to_site_kind(uint32_t kind) {
  switch (static_cast<AccessKind>(kind)) {
    case AccessKind::load: return AccessSiteKind::load;
    case AccessKind::store: return AccessSiteKind::store;
    case AccessKind::atomic: return AccessSiteKind::atomic;
  }
  return AccessSiteKind::unknown;
}

Space to_space(nvidia::MemorySpace space) {
  switch (space) {
    case nvidia::MemorySpace::global: return Space::global;
    case nvidia::MemorySpace::shared: return Space::shared;
    case nvidia::MemorySpace::local: return Space::local;
  }
  return Space::unknown;
}

struct Tally {
  int64_t count = 0, bytes = 0;
};

Tally tally(const ObjectCounters& counters, AccessKind kind) {
  const uint32_t k = static_cast<uint32_t>(kind);
  Tally sum{static_cast<int64_t>(counters.odd_count[k]), static_cast<int64_t>(counters.odd_bytes[k])};
  for (uint32_t c = 0; c < nvidia::kSizeClasses; ++c) {
    const int64_t lanes = static_cast<int64_t>(counters.lanes[k][c]);
    sum.count += lanes;
    sum.bytes += lanes << c;
  }
  return sum;
}

// The launch through its slot: what each step of decoding needs.
class Decoding {
 public:
  Decoding(uint8_t* body, const SlotLayout& layout, const Snapshot& snapshot, int64_t launch_id, int64_t start_ns)
      : slot_(layout.header(body, snapshot.ranges.data())),
        snapshot_(snapshot),
        launch_id_(launch_id),
        start_ns_(start_ns) {}

  void add_tensor_loads(const TensorMaps& maps);
  void emit_objects();
  void emit_blocks();
  void emit_sites();

  DecodedSlot result;

 private:
  bool add_tensor_load(const TensorMap& map, const nvidia::TensorMapEntry& entry);
  void touch(uint64_t begin, uint64_t end);
  AccessObjectRecord object_row(uint32_t index) const;

  const nvidia::SlotHeader slot_;
  const Snapshot& snapshot_;
  const int64_t launch_id_, start_ns_;
};

void Decoding::touch(uint64_t begin, uint64_t end) {
  const nvidia::Found found = nvidia::find_range(slot_.ranges, slot_.range_count, begin);
  if (found.index == slot_.range_count) return;
  const nvidia::Range& range = slot_.ranges[found.index];
  end = std::min(end, range.end);
  ObjectCounters& counters = slot_.objects[found.index];
  counters.end = std::max(counters.end, end - range.begin);
  counters.inverted_first = std::max(counters.inverted_first, ~(begin - range.begin));
  if (range.page_word == nvidia::kUntracked) return;
  const uint64_t base = range.begin >> nvidia::kPageShift, last = ((end - 1) >> nvidia::kPageShift) - base;
  for (uint64_t page = (begin >> nvidia::kPageShift) - base; page <= last; ++page) {
    slot_.pages[range.page_word + page / 32] |= 1u << (page % 32);
  }
}

// True when the pages are exact.
bool Decoding::add_tensor_load(const TensorMap& map, const nvidia::TensorMapEntry& entry) {
  const nvidia::Found found = nvidia::find_range(slot_.ranges, slot_.range_count, map.address);
  ObjectCounters& counters = slot_.objects[found.index];
  const uint32_t load = static_cast<uint32_t>(AccessKind::load);
  counters.odd_count[load] += entry.executions;
  counters.odd_bytes[load] += entry.executions * map.box_bytes;
  if (!map.tiled || entry.mode != 0) return false;
  return visit_runs(map, entry, kMostRuns, [this](uint64_t begin, uint64_t end) { touch(begin, end); });
}

void Decoding::add_tensor_loads(const TensorMaps& maps) {
  std::map<uint64_t, Tally> by_pc;
  for (uint32_t i = 0; i < slot_.tensor_map_capacity; ++i) {
    const nvidia::TensorMapEntry& entry = slot_.tensor_maps[i];
    if (entry.key == 0) continue;
    const std::optional<TensorMap> map = maps.find(entry.hash);
    Tally& site = by_pc[entry.pc];
    site.count += static_cast<int64_t>(entry.executions);
    if (!map) {
      result.unknown_tensor_maps += entry.executions;
      slot_.objects[slot_.range_count].odd_count[static_cast<uint32_t>(AccessKind::load)] += entry.executions;
      continue;
    }
    site.bytes += static_cast<int64_t>(entry.executions * map->box_bytes);
    if (!add_tensor_load(*map, entry)) result.coarse_tensor_maps += entry.executions;
  }
  if ((slot_.features & nvidia::kSites) == 0) return;
  for (const auto& [pc, site] : by_pc) {
    AccessSiteRecord row;
    row.launch_id = launch_id_;
    row.kind = AccessSiteKind::load;
    row.space = Space::global;
    row.executions = row.lanes = site.count;  // one lane acts for its warp
    if (site.bytes != 0) row.bytes = site.bytes;
    result.sites.push_back({pc, row});
  }
}

AccessObjectRecord Decoding::object_row(uint32_t index) const {
  const ObjectCounters& counters = slot_.objects[index];
  AccessObjectRecord row;
  row.launch_id = launch_id_;
  row.space = Space::global;
  const Tally loads = tally(counters, AccessKind::load), stores = tally(counters, AccessKind::store),
              atomics = tally(counters, AccessKind::atomic);
  row.loads = loads.count, row.load_bytes = loads.bytes;
  row.stores = stores.count, row.store_bytes = stores.bytes;
  row.atomics = atomics.count, row.atomic_bytes = atomics.bytes;
  if (index == slot_.range_count) return row;
  const Snapshot::Piece& piece = snapshot_.pieces[index];
  row.object_id = piece.object_id;
  row.tensor_id = piece.tensor_id;
  if (counters.end == 0) return row;
  row.first_offset = static_cast<int64_t>(piece.offset + ~counters.inverted_first);
  row.last_offset = static_cast<int64_t>(piece.offset + counters.end - 1);
  const nvidia::Range& range = slot_.ranges[index];
  if (range.page_word == nvidia::kUntracked) return row;
  const PageCounts pages = count_pages(slot_.pages + range.page_word, range.begin, range.end);
  row.pages_4k = pages.small, row.pages_64k = pages.medium, row.pages_2m = pages.large;
  return row;
}

// Pieces of one object, or of one tensor, come in the order of the table; their pages add up.
void merge(AccessObjectRecord& row, const AccessObjectRecord& piece) {
  for (int64_t AccessObjectRecord::*column :
       {&AccessObjectRecord::loads, &AccessObjectRecord::stores, &AccessObjectRecord::atomics,
        &AccessObjectRecord::load_bytes, &AccessObjectRecord::store_bytes, &AccessObjectRecord::atomic_bytes}) {
    row.*column += piece.*column;
  }
  for (int64_t AccessObjectRecord::*column :
       {&AccessObjectRecord::pages_4k, &AccessObjectRecord::pages_64k, &AccessObjectRecord::pages_2m}) {
    const bool unknown = row.*column == kNullI64 || piece.*column == kNullI64;
    row.*column = unknown ? kNullI64 : row.*column + piece.*column;
  }
  if (row.first_offset == kNullI64) row.first_offset = piece.first_offset;  // pieces come in order
  row.last_offset = std::max(row.last_offset, piece.last_offset);           // null is the least number
}

void Decoding::emit_objects() {
  if ((slot_.features & nvidia::kObjects) == 0) return;
  std::map<std::pair<int64_t, int64_t>, size_t> rows;  // by object and tensor
  for (uint32_t i = 0; i <= slot_.range_count; ++i) {
    AccessObjectRecord row = object_row(i);
    if (row.loads + row.stores + row.atomics == 0) continue;
    const auto [at, fresh] = rows.try_emplace({row.object_id, row.tensor_id}, result.objects.size());
    if (fresh) result.objects.push_back(row);
    else merge(result.objects[at->second], row);
  }
}

void Decoding::emit_blocks() {
  if ((slot_.features & nvidia::kBlocks) == 0) return;
  constexpr uint64_t kBytes = uint64_t{1} << nvidia::kBlockShift;
  for (uint32_t i = 0; i < slot_.range_count; ++i) {
    const nvidia::Range& range = slot_.ranges[i];
    if (range.first_block == nvidia::kUntracked || slot_.objects[i].end == 0) continue;
    const uint64_t size = range.end - range.begin;
    for (uint64_t offset = 0; offset < size; offset += kBytes) {
      const uint64_t accesses = slot_.blocks[range.first_block + (offset >> nvidia::kBlockShift)];
      if (accesses == 0) continue;
      AccessBlockRecord row;
      row.start_ns = start_ns_;
      row.launch_id = launch_id_;
      row.object_id = snapshot_.pieces[i].object_id;
      row.offset = static_cast<int64_t>(snapshot_.pieces[i].offset + offset);
      row.bytes = static_cast<int64_t>(std::min(kBytes, size - offset));
      row.accesses = static_cast<int64_t>(accesses);
      result.blocks.push_back(row);
    }
  }
}

void Decoding::emit_sites() {
  for (uint32_t i = 0; i < slot_.site_capacity; ++i) {
    const nvidia::SiteEntry& entry = slot_.sites[i];
    if (entry.key == 0) continue;
    const nvidia::MemorySpace space = nvidia::site_space(entry.key);
    AccessSiteRecord row;
    row.launch_id = launch_id_;
    row.kind = to_site_kind(entry.kind);
    row.space = to_space(space);
    row.executions = static_cast<int64_t>(entry.executions);
    row.lanes = static_cast<int64_t>(entry.lanes);
    row.bytes = static_cast<int64_t>(entry.bytes);
    if (space == nvidia::MemorySpace::global) {
      row.sectors = static_cast<int64_t>(entry.sectors);
      row.ideal_sectors = static_cast<int64_t>(entry.ideal_sectors);
    } else if (space == nvidia::MemorySpace::shared) {
      row.bank_conflicts = static_cast<int64_t>(entry.bank_conflicts);
    }
    result.sites.push_back({nvidia::site_pc(entry.key), row});
  }
  std::sort(result.sites.begin(), result.sites.end(),
            [](const SiteRow& a, const SiteRow& b) { return a.pc < b.pc; });
}

// The bit of every `group`-th page of the address space, or'ed over its group, counted.
int64_t count_groups(const uint32_t* bitmap, uint64_t first_page, uint64_t pages, uint64_t group) {
  int64_t count = 0;
  for (uint64_t page = 0; page < pages;) {
    if (bitmap[page / 32] == 0) {  // most words of a large object
      page = (page / 32 + 1) * 32;
      continue;
    }
    if ((bitmap[page / 32] >> (page % 32) & 1) == 0) {
      ++page;
      continue;
    }
    ++count;
    page = ((first_page + page) / group + 1) * group - first_page;  // on to the next group
  }
  return count;
}

}  // namespace

PageCounts count_pages(const uint32_t* bitmap, uint64_t begin, uint64_t end) {
  const uint64_t first = begin >> nvidia::kPageShift;
  const uint64_t pages = ((end - 1) >> nvidia::kPageShift) - first + 1;
  int64_t small = 0;
  for (uint64_t word = 0; word < (pages + 31) / 32; ++word) small += __builtin_popcount(bitmap[word]);
  return {small, count_groups(bitmap, first, pages, 16), count_groups(bitmap, first, pages, 512)};
}

DecodedSlot decode_slot(uint8_t* body, const SlotLayout& layout, const Snapshot& snapshot, const TensorMaps& maps,
                        int64_t launch_id, int64_t start_ns) {
  Decoding decoding(body, layout, snapshot, launch_id, start_ns);
  const auto& totals = *reinterpret_cast<const nvidia::Totals*>(body + layout.totals);
  decoding.result.lost_sites = totals.lost_sites;
  decoding.result.lost_tensor_maps = totals.lost_tensor_maps;
  decoding.result.tensor_stores = totals.tensor_stores;
  decoding.add_tensor_loads(maps);
  decoding.emit_objects();
  decoding.emit_blocks();
  decoding.emit_sites();
  return std::move(decoding.result);
}

}  // namespace pasta::sanitizer
