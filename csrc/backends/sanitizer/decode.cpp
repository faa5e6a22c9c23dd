#include "backends/sanitizer/decode.h"

#include <algorithm>
#include <map>

#include "backends/sanitizer/trace_rows.h"
#include "device/nvidia/hot_counters.h"
#include "device/nvidia/quick.h"
#include "device/nvidia/ranges.h"
#include "device/nvidia/site_reducer.h"

namespace pasta::sanitizer {
namespace {

using nvidia::AccessKind;
using nvidia::ObjectCounters;

constexpr AccessKind kKinds[] = {AccessKind::load, AccessKind::store, AccessKind::atomic};
constexpr uint64_t kMostRuns = 1 << 18;  // rows of a TMA box that are marked one by one

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
  Decoding(uint8_t* front, uint8_t* back, const SlotLayout& layout, const Snapshot& snapshot, int64_t launch_id,
           int64_t start_ns)
      : slot_(layout.header(front, back, snapshot.ranges.data())),
        quick_(layout.quick()),
        full_(layout.full),
        quick_counters_(reinterpret_cast<const uint64_t*>(front + layout.quick_counters)),
        live_(reinterpret_cast<const nvidia::Live*>(front + layout.live)),
        snapshot_(snapshot),
        launch_id_(launch_id),
        start_ns_(start_ns) {}

  void add_live();
  void add_quick_counters();
  void add_hot_counters();
  void emit_blocks();
  void add_tensor_loads(const TensorMaps& maps);
  void emit_objects();
  void emit_sites();

  DecodedSlot result;

 private:
  AccessSiteRecord& site(uint64_t pc, Space space, AccessSiteKind kind);
  void add_shape(const nvidia::SiteShape& shape, uint64_t executions);
  uint64_t& lanes(uint32_t index, uint32_t counter) { return (&slot_.objects[index].lanes[0][0])[counter]; }
  bool add_tensor_load(const TensorMap& map, const nvidia::TensorMapEntry& entry);
  void touch(uint64_t begin, uint64_t end);
  AccessObjectRecord object_row(uint32_t index) const;

  const nvidia::SlotHeader slot_;
  const nvidia::Quick& quick_;
  const bool full_;
  const uint64_t* const quick_counters_;
  const nvidia::Live* const live_;
  const Snapshot& snapshot_;
  const int64_t launch_id_, start_ns_;
  std::map<std::pair<uint64_t, Space>, AccessSiteRecord> sites_;  // by pc
};

// The row of an instruction, all zeros at first.
AccessSiteRecord& Decoding::site(uint64_t pc, Space space, AccessSiteKind kind) {
  const auto [at, fresh] = sites_.try_emplace({pc, space});
  AccessSiteRecord& row = at->second;
  if (!fresh) return row;
  row.launch_id = launch_id_;
  row.kind = kind;
  row.space = space;
  row.executions = row.lanes = row.bytes = 0;
  if (space == Space::global) row.sectors = row.ideal_sectors = 0;
  if (space == Space::shared) row.bank_conflicts = 0;
  return row;
}

void note_lanes(AccessSiteRecord& row, int32_t fewest, int32_t most) {
  row.min_lanes = row.min_lanes == kNullI32 ? fewest : std::min(row.min_lanes, fewest);
  row.max_lanes = std::max(row.max_lanes, most);  // null is the least number
}

void Decoding::add_shape(const nvidia::SiteShape& shape, uint64_t executions) {
  const int64_t count = static_cast<int64_t>(executions);
  AccessSiteRecord& row = site(shape.pc, Space::global, to_site_kind(static_cast<uint32_t>(shape.kind)));
  row.executions += count;
  row.lanes += count * shape.lanes;
  row.bytes += count * shape.bytes();
  row.sectors += count * shape.sectors;
  row.ideal_sectors += count * shape.ideal_sectors();
  note_lanes(row, static_cast<int32_t>(shape.lanes), static_cast<int32_t>(shape.lanes));
}

// First and last bytes, which the device has by their lower halves.
void Decoding::add_live() {
  for (uint32_t i = 0; i < slot_.range_count; ++i) {
    const nvidia::Live& live = live_[i];
    if (live.inverted_first == 0 && live.last == 0) continue;
    const uint32_t begin = static_cast<uint32_t>(slot_.ranges[i].begin);
    slot_.objects[i].end = uint64_t{live.last - begin} + 1;
    slot_.objects[i].inverted_first = ~uint64_t{~live.inverted_first - begin};
  }
}

void Decoding::add_quick_counters() {
  for (uint32_t place = 0; place < quick_.keys; ++place) {
    const uint64_t key = slot_.quick_keys[place];
    if (key == 0) continue;
    const uint32_t index = nvidia::quick_range(key), counter = nvidia::quick_object_counter(key);
    for (uint32_t i = 0; i < quick_.row; ++i) {
      const uint64_t count = quick_counters_[place * quick_.row + i];
      if (count == 0) continue;
      lanes(index, counter) += full_ ? 32 * count : count;
      if (!full_) continue;
      const auto kind = static_cast<AccessKind>(counter / nvidia::kSizeClasses);
      add_shape({nvidia::quick_pc(key), kind, counter % nvidia::kSizeClasses, 32, i + 1}, count);
    }
  }
}

void Decoding::add_hot_counters() {
  for (uint32_t i = 0; i < slot_.hot_capacity; ++i) {
    const nvidia::HotCounter& counter = slot_.hot[i];
    if (counter.key == 0) continue;
    const uint64_t name = nvidia::hot_name(counter.key);
    switch (nvidia::hot_kind(counter.key)) {
      case nvidia::HotKind::object:
        lanes(static_cast<uint32_t>(name / nvidia::kCountersOfObject), name % nvidia::kCountersOfObject) += counter.count;
        break;
      case nvidia::HotKind::block: slot_.blocks[name] += counter.count; break;
      case nvidia::HotKind::site: add_shape(nvidia::SiteShape::of(name), counter.count); break;
    }
  }
}

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
    const std::optional<TensorMap> map = maps.find(entry);
    Tally& site = by_pc[entry.pc];
    site.count += static_cast<int64_t>(entry.executions);
    if ((slot_.features & nvidia::kTrace) != 0) result.untraced_tensors += entry.executions;
    if (!map) {
      // Of a map that could not be read the address is all that is known.
      const uint32_t index = maps.address_comes_first()
                                 ? nvidia::find_range(slot_.ranges, slot_.range_count, entry.map[0]).index
                                 : slot_.range_count;
      slot_.objects[index].odd_count[static_cast<uint32_t>(AccessKind::load)] += entry.executions;
      result.unknown_tensor_maps += entry.executions;
      continue;
    }
    site.bytes += static_cast<int64_t>(entry.executions * map->box_bytes);
    if (!add_tensor_load(*map, entry)) result.coarse_tensor_maps += entry.executions;
  }
  if ((slot_.features & nvidia::kSites) == 0) return;
  for (const auto& [pc, loads] : by_pc) {
    AccessSiteRecord& row = site(pc, Space::global, AccessSiteKind::load);
    row.executions = row.lanes = loads.count;  // one lane acts for its warp
    row.bytes = loads.bytes != 0 ? loads.bytes : kNullI64;
    row.sectors = row.ideal_sectors = kNullI64;
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
    // Most ranges are not accessed: what is touched has an end, but for TMA loads of which little is known.
    const ObjectCounters& counters = slot_.objects[i];
    const bool odd = (counters.odd_count[0] | counters.odd_count[1] | counters.odd_count[2]) != 0;
    if (counters.end == 0 && !odd && i != slot_.range_count) continue;
    AccessObjectRecord row = object_row(i);
    if (row.loads + row.stores + row.atomics == 0) continue;
    const auto [at, fresh] = rows.try_emplace({row.object_id, row.tensor_id}, result.objects.size());
    if (fresh) result.objects.push_back(row);
    else merge(result.objects[at->second], row);
  }
}

// TMA loads are in no block.
void Decoding::emit_blocks() {
  if ((slot_.features & nvidia::kBlocks) == 0) return;
  constexpr uint64_t kBytes = uint64_t{1} << nvidia::kBlockShift;
  for (uint32_t i = 0; i < slot_.range_count; ++i) {
    const nvidia::Range& range = slot_.ranges[i];
    if (slot_.objects[i].end == 0) continue;
    const uint64_t size = range.end - range.begin;
    const bool counted = range.first_block != nvidia::kUntracked;
    if (!counted && size > kBytes) continue;
    for (uint64_t offset = 0; offset < size; offset += kBytes) {
      int64_t accesses = 0;
      if (counted) accesses = static_cast<int64_t>(slot_.blocks[range.first_block + (offset >> nvidia::kBlockShift)]);
      else for (const AccessKind kind : kKinds) accesses += tally(slot_.objects[i], kind).count;
      if (accesses == 0) continue;
      AccessBlockRecord row;
      row.start_ns = start_ns_;
      row.launch_id = launch_id_;
      row.object_id = snapshot_.pieces[i].object_id;
      row.offset = static_cast<int64_t>(snapshot_.pieces[i].offset + offset);
      row.bytes = static_cast<int64_t>(std::min(kBytes, size - offset));
      row.accesses = accesses;
      result.blocks.push_back(row);
    }
  }
}

void Decoding::emit_sites() {
  for (uint32_t i = 0; i < slot_.site_capacity; ++i) {
    const nvidia::SiteEntry& entry = slot_.sites[i];
    if (entry.key == 0) continue;
    const Space space = to_space(nvidia::site_space(entry.key));
    AccessSiteRecord& row = site(nvidia::site_pc(entry.key), space, to_site_kind(entry.kind));
    row.executions += static_cast<int64_t>(entry.executions);
    row.lanes += static_cast<int64_t>(entry.lanes);
    row.bytes += static_cast<int64_t>(entry.bytes);
    if (space == Space::global) {
      row.sectors += static_cast<int64_t>(entry.sectors);
      row.ideal_sectors += static_cast<int64_t>(entry.ideal_sectors);
    } else if (space == Space::shared) {
      row.bank_conflicts += static_cast<int64_t>(entry.bank_conflicts);
    }
    if (entry.lane_counts == 0) continue;
    note_lanes(row, __builtin_ctz(entry.lane_counts) + 1, 32 - __builtin_clz(entry.lane_counts));
  }
  for (const auto& [place, row] : sites_) result.sites.push_back({place.first, row});
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

DecodedSlot decode_slot(uint8_t* front, uint8_t* back, SlotLayout layout, const Snapshot& snapshot, const TensorMaps& maps,
                        int64_t launch_id, int64_t start_ns) {
  if (back == nullptr) {
    layout.hot_capacity = layout.tensor_map_capacity = layout.site_capacity = layout.trace_capacity = 0;
  }
  Decoding decoding(front, back, layout, snapshot, launch_id, start_ns);
  const auto& totals = *reinterpret_cast<const nvidia::Totals*>(front + layout.totals);
  if ((layout.features & nvidia::kSites) != 0) decoding.result.lost_sites = totals.lost_sites;
  decoding.result.lost_tensor_maps = totals.lost_tensor_maps;
  decoding.add_live();
  decoding.add_quick_counters();
  decoding.add_hot_counters();
  decoding.emit_blocks();
  decoding.add_tensor_loads(maps);
  decoding.emit_objects();
  if ((layout.features & nvidia::kSites) != 0) decoding.emit_sites();
  if ((layout.features & nvidia::kTrace) != 0) {
    decoding.result.accesses = trace_rows(layout.header(front, back, snapshot.ranges.data()), launch_id);
    decoding.result.lost_accesses = totals.trace_lost;
  }
  return std::move(decoding.result);
}

}  // namespace pasta::sanitizer
