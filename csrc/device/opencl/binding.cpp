#include "device/opencl/binding.h"

#include <algorithm>

#include "device/opencl/layout.h"

namespace pasta::memory {
namespace {

uint64_t align_to_unit(uint64_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

// A granule more at each end, for objects that do not begin at a granule, and one for strays.
uint64_t map_bytes(uint64_t bytes, uint32_t shift) { return align_to_unit((bytes >> shift) + 3); }

uint32_t granule_shift(uint64_t bytes, uint64_t limit) {
  for (uint32_t shift : {kLineShift, kPageShift, 16u}) {
    if (map_bytes(bytes, shift) <= limit) return shift;
  }
  return 21;
}

// Hands out the variable part of a slot.
class SlotPlanner {
 public:
  SlotPlanner(uint64_t start, const BindingLimits& limits)
      : end_(align_to_unit(start)), limits_(limits) {}

  uint64_t take(uint64_t bytes) {
    uint64_t at = end_;
    end_ += align_to_unit(bytes);
    return at;
  }
  // Counters of an object's blocks; none where there is one block only: all accesses are to that.
  uint64_t blocks(uint64_t bytes) {
    return bytes > uint64_t{1} << kBlockShift ? take(kShards * block_row_bytes(bytes)) : 0;
  }
  struct Map {
    uint64_t offset;
    uint32_t shift;
  };
  // The map of an object; the same for all that leads to the same object.
  Map map(int64_t object_id, uint64_t bytes) {
    auto known = maps_.find({object_id, bytes});
    if (object_id != kNoObject && known != maps_.end()) return known->second;
    uint32_t shift = granule_shift(bytes, limits_.map_bytes);
    Map map{take(map_bytes(bytes, shift)), shift};
    maps_[{object_id, bytes}] = map;
    return map;
  }
  uint64_t end() const { return end_; }

 private:
  uint64_t end_;
  const BindingLimits& limits_;
  std::map<std::pair<int64_t, uint64_t>, Map> maps_;
};

}  // namespace

Binding make_binding(const KernelPlan& plan, std::vector<BoundObject> objects,
                     std::vector<AddressRange> ranges, const BindingLimits& limits) {
  Binding binding;
  uint32_t root_count = static_cast<uint32_t>(plan.roots.size());
  objects.resize(root_count);
  bool searched = std::any_of(plan.sites.begin(), plan.sites.end(),
                              [](const Site& site) { return site.ranges; });
  if (!searched) ranges.clear();
  std::sort(ranges.begin(), ranges.end(),
            [](const AddressRange& a, const AddressRange& b) { return a.address < b.address; });
  uint64_t objects_total = root_count + ranges.size();

  binding.words.assign(kBindingObjects + objects_total * kBindingObjectWords, 0);
  SlotPlanner planner(uint64_t{plan.slot_layout().fixed_words()} * kWord, limits);
  auto entry = [&](uint64_t number) {
    return &binding.words[kBindingObjects + number * kBindingObjectWords];
  };
  for (uint32_t k = 0; k < root_count; ++k) {
    const Root& root = plan.roots[k];
    BoundObject& object = objects[k];
    if (!root.argument) object.bytes = root.bytes;
    const bool mapped = is_mapped(root.space);
    auto map =
        plan.reducers.lines && mapped ? planner.map(object.object_id, object.bytes) : SlotPlanner::Map{0, kLineShift};
    uint64_t* words = entry(k);
    words[kObjectStart] = object.offset;
    words[kObjectBytes] = object.bytes;
    words[kObjectMap] = map.offset;
    words[kObjectShift] = map.shift;
    if (plan.reducers.blocks && mapped) words[kObjectBlocks] = planner.blocks(object.bytes);
  }
  for (uint64_t r = 0; r < ranges.size(); ++r) {
    auto map = plan.reducers.lines ? planner.map(ranges[r].object_id, ranges[r].bytes)
                                   : SlotPlanner::Map{0, kLineShift};
    uint64_t* words = entry(root_count + r);
    words[kObjectStart] = ranges[r].address;
    words[kObjectBytes] = ranges[r].bytes;
    words[kObjectMap] = map.offset;
    words[kObjectShift] = map.shift;
    if (plan.reducers.blocks) words[kObjectBlocks] = planner.blocks(ranges[r].bytes);
  }
  binding.words[kBindingRanges] = ranges.size();
  uint64_t step = 1;
  while (step * 2 <= ranges.size()) step *= 2;
  binding.words[kBindingFirstStep] = ranges.empty() ? 0 : step;
  binding.words[kBindingStride] = objects_total;
  binding.words[kBindingTable] = planner.take(plan.dynamic_sites * objects_total * kWord);
  binding.words[kBindingExtents] = planner.take(ranges.size() * 2 * kWord);
  uint64_t records = plan.reducers.trace ? limits.trace_records : 0;
  binding.words[kBindingTraceRecords] = records;
  binding.words[kBindingTrace] = planner.take(records * kTraceRecordBytes);
  if (plan.reducers.compares_lanes() && limits.scratch.scratches > 0) {
    binding.words[kBindingScratch] = limits.scratch.offset;
    binding.words[kBindingScratches] = limits.scratch.scratches;
    binding.words[kBindingScratchShift] = 64 - limits.scratch.bits;
  }
  binding.slot_bytes = planner.end();
  binding.words[kBindingSpare] = align_to_unit(binding.words.size() * kWord);
  binding.room_bytes = binding.words[kBindingSpare] + kSpareLines * kUnit;
  binding.roots = std::move(objects);
  binding.ranges = std::move(ranges);
  return binding;
}

ScratchPool ScratchPool::fit(uint64_t buffer_bytes, uint64_t bytes, uint64_t work_groups) {
  ScratchPool pool;
  auto bytes_of = [](uint32_t bits) {
    return kScratchHeaderBytes + (uint64_t{kScratchEntryBytes} << bits);
  };
  if (work_groups == 0 || bytes > buffer_bytes || bytes < work_groups * bytes_of(1)) return pool;
  pool.bits = 1;
  while (pool.bits < kMostScratchBits && work_groups * bytes_of(pool.bits + 1) <= bytes)
    ++pool.bits;
  pool.scratches = work_groups;
  pool.offset = (buffer_bytes - work_groups * bytes_of(pool.bits)) / kUnit * kUnit;
  return pool;
}

Arena::Arena(uint64_t bytes) : bytes_(bytes / kUnit * kUnit), bindings_begin_(bytes_) {}

bool Arena::fits(const Binding& binding) const {
  return binding.slot_bytes + binding.room_bytes <= bytes_;
}

std::optional<Arena::Place> Arena::place(const Binding& binding) {
  auto known = known_.find(binding.words);
  uint64_t binding_bytes = known == known_.end() ? binding.room_bytes : 0;
  if (slots_end_ + binding.slot_bytes + binding_bytes > bindings_begin_) return std::nullopt;
  Place place{};
  if (known == known_.end()) {
    bindings_begin_ -= binding_bytes;
    known = known_.emplace(binding.words, bindings_begin_).first;
    place.binding_offset = bindings_begin_;
  }
  place.slot_offset = slots_end_;
  place.launch_word = slots_end_ / kUnit | known->second / kUnit << 32;
  slots_end_ += binding.slot_bytes;
  return place;
}

void Arena::reset() {
  slots_end_ = 0;
  known_.clear();
  bindings_begin_ = bytes_;
}

}  // namespace pasta::memory
