#include "backends/sanitizer/decode.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "backends/sanitizer/page_counts.h"
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
  return {static_cast<int64_t>(counters.count[k]), static_cast<int64_t>(counters.bytes[k])};
}

// The counters of the ranges that a launch touched: few of very many.
class Touched {
 public:
  explicit Touched(size_t ranges) {
    if (place_.size() < ranges) place_.resize(ranges);
  }
  ~Touched() {
    for (const auto& [index, counters] : all_) place_[index] = 0;
  }
  Touched(const Touched&) = delete;
  Touched& operator=(const Touched&) = delete;

  ObjectCounters& operator[](uint32_t index) {
    if (place_[index] == 0) {
      all_.push_back({index, {}});
      place_[index] = static_cast<uint32_t>(all_.size());
    }
    return all_[place_[index] - 1].second;
  }
  // In the order of their addresses.
  const std::vector<std::pair<uint32_t, ObjectCounters>>& sorted() {
    std::sort(all_.begin(), all_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (uint32_t i = 0; i < all_.size(); ++i) place_[all_[i].first] = i + 1;
    return all_;
  }

 private:
  static thread_local std::vector<uint32_t> place_;  // of each range in all_, from 1; all 0 between launches
  std::vector<std::pair<uint32_t, ObjectCounters>> all_;
};
thread_local std::vector<uint32_t> Touched::place_;

// The launch through its slot: what each step of decoding needs.
class Decoding {
 public:
  Decoding(const SlotParts& slot, const SlotLayout& layout, const Snapshot& snapshot, int64_t launch_id,
           int64_t start_ns)
      : slot_(layout.header(slot, snapshot.cuts->ranges.data())),
        quick_(layout.quick()),
        full_(layout.full),
        quick_keys_(reinterpret_cast<const uint64_t*>(slot.front + layout.quick().keys_at)),
        quick_counters_(reinterpret_cast<const uint64_t*>(slot.front + layout.quick().counters_at)),
        live_(reinterpret_cast<const nvidia::Live*>(slot.front + layout.live)),
        snapshot_(snapshot),
        cuts_(*snapshot.cuts),
        launch_id_(launch_id),
        start_ns_(start_ns),
        touched_(size_t{layout.range_count} + 1) {}

  void add_objects();
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
  void add_executions(uint64_t key, uint32_t lanes, uint32_t sectors, uint64_t executions);
  // What the device says is not trusted with memory of the program's process: a kernel may have written over it.
  bool is_counter(uint64_t index, uint32_t counter) {
    const bool is = index <= slot_.range_count && counter < nvidia::kCountersOfObject;
    if (!is) ++result.damaged;
    return is;
  }
  void add_lanes(uint32_t index, uint32_t counter, uint64_t lanes) {
    ObjectCounters& counters = touched_[index];
    counters.count[counter / nvidia::kSizeClasses] += lanes;
    counters.bytes[counter / nvidia::kSizeClasses] += lanes << counter % nvidia::kSizeClasses;
  }
  bool add_tensor_load(const TensorMap& map, const nvidia::TensorMapEntry& entry);
  void touch(uint64_t begin, uint64_t end);
  void touch_range(uint32_t index, uint64_t begin, uint64_t end);
  // As the patches number them: range_count is for addresses that no known object holds.
  uint32_t range_of(uint64_t address) const {
    const auto count = static_cast<uint32_t>(snapshot_.tensors.size());
    const uint32_t index = nvidia::find_range(slot_.ranges, count, address).index;
    return index == count ? slot_.range_count : index;
  }
  void emit_block(uint32_t index, uint64_t offset, int64_t accesses);

  const nvidia::SlotHeader slot_;
  const nvidia::Quick& quick_;
  const bool full_;
  const uint64_t *const quick_keys_, *const quick_counters_;
  const nvidia::Live* const live_;
  const Snapshot& snapshot_;
  const Cuts& cuts_;
  const int64_t launch_id_, start_ns_;
  Touched touched_;
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

// What the launch left with the counters that all share.
void Decoding::add_objects() {
  const ObjectCounters nothing{};
  for (uint32_t i = 0; i <= slot_.range_count; ++i) {
    if (std::memcmp(slot_.objects + i, &nothing, sizeof(nothing)) != 0) touched_[i] = slot_.objects[i];
  }
}

// First and last bytes, which the device has by their lower halves.
void Decoding::add_live() {
  for (uint32_t index = 0; index < slot_.range_count; ++index) {
    const nvidia::Live& live = live_[index];
    if (live.last == 0 && live.inverted_first == 0) continue;  // both only where nothing was touched
    const uint32_t begin = static_cast<uint32_t>(slot_.ranges[index].begin);
    ObjectCounters& counters = touched_[index];
    counters.end = uint64_t{live.last - begin} + 1;
    counters.inverted_first = ~uint64_t{~live.inverted_first - begin};
  }
}

// By the key of a quick counter of full patches: so many executions by so many lanes, which needed so many sectors.
void Decoding::add_executions(uint64_t key, uint32_t lanes, uint32_t sectors, uint64_t executions) {
  const uint32_t index = nvidia::quick_range(key), counter = nvidia::quick_object_counter(key);
  if (!is_counter(index, counter)) return;
  add_lanes(index, counter, lanes * executions);
  const auto kind = static_cast<AccessKind>(counter / nvidia::kSizeClasses);
  add_shape({nvidia::quick_pc(key), kind, counter % nvidia::kSizeClasses, lanes, sectors}, executions);
}

void Decoding::add_quick_counters() {
  for (uint32_t place = 0; place < quick_.keys; ++place) {
    const uint64_t key = quick_keys_[place];
    for (uint32_t i = 0; i < quick_.row; ++i) {
      const uint64_t count = quick_counters_[place * quick_.row + i];
      if (count == 0) continue;
      if (full_) {
        add_executions(key, 32, i + 1, count);
      } else if (is_counter(nvidia::quick_range(key), nvidia::quick_object_counter(key))) {
        add_lanes(nvidia::quick_range(key), nvidia::quick_object_counter(key), count);
      }
    }
  }
}

void Decoding::add_hot_counters() {
  for (uint32_t i = 0; i < slot_.hot_capacity; ++i) {
    const nvidia::HotCounter& counter = slot_.hot[i];
    if (counter.key == 0) continue;
    const uint64_t name = nvidia::hot_name(counter.key), index = name / nvidia::kCountersOfObject;
    switch (nvidia::hot_kind(counter.key)) {
      case nvidia::HotKind::part: {
        const nvidia::Part part = nvidia::part_of(name);
        const uint64_t key = full_ && part.place < quick_.keys ? quick_keys_[part.place] : 0;
        if (key != 0) add_executions(key, part.lanes, part.sectors, counter.count);
        else ++result.damaged;
        break;
      }
      case nvidia::HotKind::object:
        if (!is_counter(index, 0)) break;
        add_lanes(static_cast<uint32_t>(index), name % nvidia::kCountersOfObject, counter.count);
        break;
      case nvidia::HotKind::site: add_shape(nvidia::SiteShape::of(name), counter.count); break;
    }
  }
}

// What is beyond the object, or the tensor, is not touched.
void Decoding::touch(uint64_t begin, uint64_t end) {
  const uint32_t first = range_of(begin);
  if (first == slot_.range_count) return;
  for (uint32_t index = first;; ++index) {
    const uint64_t last = slot_.ranges[index].end;
    touch_range(index, begin, std::min(end, last));
    if (end <= last || index + 1 == snapshot_.tensors.size() || slot_.ranges[index + 1].begin != last ||
        cuts_.places[index + 1].object_id != cuts_.places[first].object_id ||
        snapshot_.tensors[index + 1] != snapshot_.tensors[first]) {
      return;
    }
    begin = last;
  }
}

void Decoding::touch_range(uint32_t index, uint64_t begin, uint64_t end) {
  const nvidia::Range& range = slot_.ranges[index];
  ObjectCounters& counters = touched_[index];
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
  ObjectCounters& counters = touched_[range_of(map.address)];
  const uint32_t load = static_cast<uint32_t>(AccessKind::load);
  counters.count[load] += entry.executions;
  counters.bytes[load] += entry.executions * map.box_bytes;
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
      const uint32_t index = maps.address_comes_first() ? range_of(entry.map[0]) : slot_.range_count;
      touched_[index].count[static_cast<uint32_t>(AccessKind::load)] += entry.executions;
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

void add_counters(AccessObjectRecord& row, const ObjectCounters& counters) {
  const Tally loads = tally(counters, AccessKind::load), stores = tally(counters, AccessKind::store),
              atomics = tally(counters, AccessKind::atomic);
  row.loads += loads.count, row.load_bytes += loads.bytes;
  row.stores += stores.count, row.store_bytes += stores.bytes;
  row.atomics += atomics.count, row.atomic_bytes += atomics.bytes;
}

// A row for each object, or tensor, whose ranges come in the order of their addresses.
void Decoding::emit_objects() {
  if ((slot_.features & nvidia::kObjects) == 0) return;
  struct Sum {
    AccessObjectRecord row;
    PageCounts pages;
    bool untracked = false;  // some of what was touched
  };
  std::vector<Sum> sums;
  std::map<std::pair<int64_t, int64_t>, size_t> places;  // in sums, by object and tensor
  for (const auto& [index, counters] : touched_.sorted()) {
    const bool known = index != slot_.range_count;
    const std::pair key(known ? cuts_.places[index].object_id : kNullI64, known ? snapshot_.tensors[index] : kNullI64);
    const auto [at, fresh] = places.try_emplace(key, sums.size());
    if (fresh) sums.emplace_back();
    Sum& sum = sums[at->second];
    AccessObjectRecord& row = sum.row;
    if (fresh) {
      row.launch_id = launch_id_;
      row.space = Space::global;
      row.object_id = key.first, row.tensor_id = key.second;
      row.loads = row.stores = row.atomics = row.load_bytes = row.store_bytes = row.atomic_bytes = 0;
    }
    add_counters(row, counters);
    if (!known || counters.end == 0) continue;  // of TMA loads through unknown maps the object is all that is known
    const Cuts::Place& place = cuts_.places[index];
    const nvidia::Range& range = slot_.ranges[index];
    if (row.first_offset == kNullI64) row.first_offset = static_cast<int64_t>(place.offset + ~counters.inverted_first);
    row.last_offset = static_cast<int64_t>(place.offset + counters.end - 1);
    // A reservation has bitmaps only where tensors are or were.
    if (range.page_word == nvidia::kUntracked || (place.reserved && key.second == kNullI64)) sum.untracked = true;
    else sum.pages.add(slot_.pages + range.page_word, range.begin, range.end);
  }
  for (Sum& sum : sums) {
    if (sum.row.loads + sum.row.stores + sum.row.atomics == 0) continue;
    if (sum.row.first_offset != kNullI64 && !sum.untracked) {
      sum.row.pages_4k = sum.pages.small, sum.row.pages_64k = sum.pages.medium, sum.row.pages_2m = sum.pages.large;
    }
    result.objects.push_back(sum.row);
  }
}

// Of a tensor in several ranges, which is less than a block, the row is that of all of them.
void Decoding::emit_block(uint32_t index, uint64_t offset, int64_t accesses) {
  if (accesses == 0) return;
  const nvidia::Range* const ranges = slot_.ranges;
  uint32_t first = index, last = index;
  if (const int64_t tensor = snapshot_.tensors[index]; tensor != kNullI64) {
    while (first > 0 && snapshot_.tensors[first - 1] == tensor) --first;
    while (last + 1 < snapshot_.tensors.size() && snapshot_.tensors[last + 1] == tensor) ++last;
    if (ranges[last].end - ranges[first].begin > MemoryObjects::kMostInParts) first = last = index;
  }
  const uint64_t size = ranges[last].end - ranges[first].begin;
  AccessBlockRecord row;
  row.start_ns = start_ns_;
  row.launch_id = launch_id_;
  row.object_id = cuts_.places[index].object_id;
  row.offset = static_cast<int64_t>(cuts_.places[first].offset + offset);
  row.bytes = static_cast<int64_t>(std::min(uint64_t{1} << nvidia::kBlockShift, size - offset));
  row.accesses = accesses;
  if (first != last && !result.blocks.empty()) {
    AccessBlockRecord& before = result.blocks.back();
    if (before.object_id == row.object_id && before.offset == row.offset) {
      before.accesses += accesses;
      return;
    }
  }
  result.blocks.push_back(row);
}

// TMA loads are in no block.
void Decoding::emit_blocks() {
  if ((slot_.features & nvidia::kBlocks) == 0) return;
  constexpr uint64_t kBytes = uint64_t{1} << nvidia::kBlockShift;
  for (const auto& [index, counters] : touched_.sorted()) {
    if (index == slot_.range_count || counters.end == 0) continue;
    const nvidia::Range& range = slot_.ranges[index];
    const uint64_t size = range.end - range.begin;
    if (range.first_block != nvidia::kUntracked) {
      for (uint64_t offset = 0; offset < size; offset += kBytes) {
        const uint64_t block = range.first_block + (offset >> nvidia::kBlockShift);
        emit_block(index, offset, static_cast<int64_t>(slot_.blocks[block]));
      }
    } else if (size <= kBytes) {
      int64_t accesses = 0;
      for (const AccessKind kind : kKinds) accesses += tally(counters, kind).count;
      emit_block(index, 0, accesses);
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

}  // namespace

DecodedSlot decode_slot(const SlotParts& slot, SlotLayout layout, const Snapshot& snapshot, const TensorMaps& maps,
                        int64_t launch_id, int64_t start_ns) {
  if (slot.tables == nullptr) layout.hot_capacity = layout.tensor_map_capacity = layout.site_capacity = 0;
  if (slot.trace == nullptr) layout.trace_capacity = 0;
  Decoding decoding(slot, layout, snapshot, launch_id, start_ns);
  const auto& totals = *reinterpret_cast<const nvidia::Totals*>(slot.front + layout.totals);
  if ((layout.features & nvidia::kSites) != 0) decoding.result.lost_sites = totals.lost_sites;
  decoding.result.lost_tensor_maps = totals.lost_tensor_maps;
  if (slot.objects != nullptr) decoding.add_objects();
  decoding.add_live();
  decoding.add_quick_counters();
  decoding.add_hot_counters();
  decoding.emit_blocks();
  decoding.add_tensor_loads(maps);
  decoding.emit_objects();
  if ((layout.features & nvidia::kSites) != 0) decoding.emit_sites();
  if ((layout.features & nvidia::kTrace) != 0) {
    decoding.result.accesses = trace_rows(layout.header(slot, snapshot.cuts->ranges.data()), launch_id);
    decoding.result.lost_accesses = totals.trace_lost;
  }
  return std::move(decoding.result);
}

}  // namespace pasta::sanitizer
