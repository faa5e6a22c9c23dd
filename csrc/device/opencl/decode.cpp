#include "device/opencl/decode.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "device/opencl/layout.h"

namespace pasta::memory {
namespace {

class Decoder {
 public:
  Decoder(const KernelPlan& plan, const Binding& binding, uint64_t work_items, const uint8_t* slot,
          uint64_t bytes)
      : plan_(plan),
        binding_(binding),
        work_items_(work_items),
        slot_(slot),
        bytes_(bytes),
        layout_(plan.slot_layout()),
        facts_(read_facts(plan, slot, bytes)) {
    counters_.resize(layout_.counters);
    for (uint32_t c = 0; c < layout_.counters; ++c) {
      for (uint32_t shard = 0; shard < kShards; ++shard)
        counters_[c] += word(layout_.counter(shard, c));
    }
    per_object_.resize(plan.roots.size() + binding.ranges.size() + 1);  // the last one: elsewhere
  }

  LaunchAccess decode() {
    LaunchAccess launch;
    std::copy_n(facts_.local_size, 3, launch.local_size);
    for (uint32_t s = 0; s < plan_.sites.size(); ++s) launch.sites.push_back(site(s));
    add_objects(launch);
    for (const auto& [place, block] : blocks_) launch.blocks.push_back(block);
    launch.lines_lost = are_lines_lost();
    uint64_t room = binding_.words[kBindingTraceRecords];
    for (uint32_t s = 0; s < plan_.sums.size(); ++s)
      launch.lanes_lost |= is_lost(plan_.sum_lost_counter(s));
    for (uint32_t m = 0; m < plan_.meetings; ++m)
      launch.lanes_lost |= is_lost(plan_.meeting_counter(m, KernelPlan::kLost));
    launch.trace_lost = facts_.trace_wanted > room ? facts_.trace_wanted - room : 0;
    return launch;
  }

 private:
  uint64_t word_at(uint64_t offset) const {
    uint64_t value = 0;
    if (offset <= bytes_ && bytes_ - offset >= kWord) std::memcpy(&value, slot_ + offset, kWord);
    return value;
  }
  uint64_t word(uint64_t number) const { return word_at(number * kWord); }

  uint64_t sum(const CountSum& terms) const {
    uint64_t total = 0;
    for (const CountTerm& term : terms) {
      total += term.factor * (term.counter == kWorkItems ? work_items_ : counters_[term.counter]);
    }
    return total;
  }

  SiteAccess site(uint32_t number) {
    const Site& site = plan_.sites[number];
    SiteAccess access;
    access.site = number;
    access.lanes = sum(site.executions);
    uint64_t unit = site.bytes;
    if (!unit && site.root != kNone) unit = binding_.roots[site.root].texel_bytes;
    access.bytes = sum(site.units) * unit;
    compare_lanes(site, access);
    if (site.root != kNone) {
      add(site, site.root, access.lanes, access.bytes);
    } else if (site.dynamic != kNone) {
      uint64_t left = access.lanes, left_bytes = access.bytes;
      auto found = [&](uint64_t object, uint64_t times) {
        // Dynamic sites of a variable amount are not split: what is left of the bytes stays with
        // the last object.
        uint64_t bytes = times == left ? left_bytes : times * site.bytes;
        add(site, object, times, bytes);
        left -= std::min(left, times);
        left_bytes -= std::min(left_bytes, bytes);
      };
      for (uint32_t i = 0; site.first_hit != kNone && i < site.candidates.size(); ++i) {
        found(site.candidates[i], counters_[site.first_hit + i]);
      }
      uint64_t stride = binding_.words[kBindingStride];
      for (uint64_t object = 0; object < stride; ++object) {
        uint64_t entry = (site.dynamic * stride + object) * kWord;
        if (uint64_t times = word_at(binding_.words[kBindingTable] + entry)) found(object, times);
      }
      access.elsewhere = left;
      if (site.space != Space::generic) add(site, per_object_.size() - 1, left, left_bytes);
    } else if (site.space == Space::local) {
      add(site, per_object_.size() - 1, access.lanes, access.bytes);
    }
    return access;
  }

  // Whether a counter of what was lost says so, or a whole work-group was.
  bool is_lost(uint32_t counter) const {
    return word(kSlotUngrouped) != 0 || counters_[counter] != 0;
  }

  void compare_lanes(const Site& site, SiteAccess& access) const {
    if (site.sum != kNone && !is_lost(plan_.sum_lost_counter(site.sum)))
      access.executions = counters_[plan_.sum_counter(site.sum)];
    auto counter = [&](KernelPlan::Meeting which) {
      return counters_[plan_.meeting_counter(site.meeting, which)];
    };
    if (site.meeting == kNone || is_lost(plan_.meeting_counter(site.meeting, KernelPlan::kLost)))
      return;
    if (site.space == Space::local) {
      access.bank_conflicts = counter(KernelPlan::kMoved);
    } else {
      access.sectors = counter(KernelPlan::kMoved);
      access.ideal_sectors = counter(KernelPlan::kNeeded);
    }
  }

  void add(const Site& site, uint64_t object, uint64_t times, uint64_t bytes) {
    if (times == 0) return;
    ObjectAccess& to = per_object_[object];
    to.space = site.space;
    switch (site.kind) {
      case AccessKind::load:
      case AccessKind::copy_load:
        to.loads += times;
        to.load_bytes += bytes;
        break;
      case AccessKind::store:
      case AccessKind::copy_store:
        to.stores += times;
        to.store_bytes += bytes;
        break;
      case AccessKind::atomic:
        to.atomics += times;
        to.atomic_bytes += bytes;
        break;
    }
  }

  void add_objects(LaunchAccess& launch) {
    uint64_t roots = plan_.roots.size();
    std::vector<uint64_t> first_of;  // launch.objects[i] began as this object
    for (uint64_t o = 0; o < per_object_.size(); ++o) {
      ObjectAccess& object = per_object_[o];
      if (object.loads + object.stores + object.atomics == 0) continue;
      if (o < roots) {
        object.object_id = binding_.roots[o].object_id;
        object.argument = plan_.roots[o].argument;
        object.space = plan_.roots[o].space;
      } else if (o < roots + binding_.ranges.size()) {
        object.object_id = binding_.ranges[o - roots].object_id;
        object.space = Space::global;
      }
      if (o + 1 < per_object_.size()) add_extents(object, o);
      if (o + 1 < per_object_.size()) add_blocks(object, o);
      auto same = std::find_if(
          launch.objects.begin(), launch.objects.end(), [&](const ObjectAccess& other) {
            return object.object_id != kNoObject && other.object_id == object.object_id;
          });
      if (same == launch.objects.end()) {
        if (o + 1 < per_object_.size()) add_lines(object, o);
        launch.objects.push_back(object);
      } else {
        merge_object(*same, object);  // they share the map: the lines are those of both already
      }
    }
  }

  bool are_lines_lost() const { return plan_.rows && word(kSlotScattered) != 0; }

  bool has_map(uint64_t object) const {
    if (!plan_.reducers.lines || are_lines_lost()) return false;
    if (object >= plan_.roots.size()) return true;
    return is_mapped(plan_.roots[object].space);
  }

  const uint64_t* entry(uint64_t object) const {
    return &binding_.words[kBindingObjects + object * kBindingObjectWords];
  }

  void add_extents(ObjectAccess& object, uint64_t number) const {
    if (!plan_.reducers.extents || !has_map(number)) return;
    uint64_t bytes = entry(number)[kObjectBytes];
    uint64_t roots = plan_.roots.size();
    uint32_t root = static_cast<uint32_t>(number);
    uint64_t extents = binding_.words[kBindingExtents] + (number - roots) * 2 * kWord;
    uint64_t first = number < roots ? word(layout_.first(root)) : word_at(extents);
    uint64_t last = number < roots ? word(layout_.last(root)) : word_at(extents + kWord);
    if (!plan_.reducers.int64_atomics) {
      if (bytes >> 32) return;
      first = first ? ~uint64_t{0} << 32 | first : 0;
    }
    if (first == 0 || last == 0) return;
    object.first_offset = ~first;
    object.last_offset = last - 1;
  }

  void add_blocks(const ObjectAccess& object, uint64_t number) {
    if (!plan_.reducers.blocks || !is_mapped(object.space) || object.object_id == kNoObject) return;
    constexpr uint64_t kBytes = uint64_t{1} << kBlockShift;
    const uint64_t bytes = entry(number)[kObjectBytes], counters = entry(number)[kObjectBlocks];
    for (uint64_t offset = 0; offset < bytes; offset += kBytes) {
      uint64_t accesses = counters ? 0 : object.loads + object.stores + object.atomics;
      for (uint64_t shard = 0; counters && shard < kShards; ++shard) {
        const uint64_t row = counters + shard * block_row_bytes(bytes);
        accesses += word_at(row + (offset >> kBlockShift) * kWord);
      }
      if (accesses == 0) continue;
      BlockAccess& block = blocks_[{object.object_id, offset}];
      block.object_id = object.object_id;
      block.offset = offset;
      block.bytes = std::min(kBytes, bytes - offset);
      block.accesses += accesses;
    }
  }

  void add_lines(ObjectAccess& object, uint64_t number) const {
    const uint64_t* words = entry(number);
    uint64_t bytes = words[kObjectBytes], map = words[kObjectMap], shift = words[kObjectShift];
    if (!has_map(number) || bytes == 0) return;
    uint64_t base = number < plan_.roots.size() ? facts_.bases[number] : words[kObjectStart];
    uint64_t line0 = base >> shift;
    uint64_t granules = ((base + bytes - 1) >> shift) - line0 + 1;
    if (map > bytes_ || granules > bytes_ - map) return;
    const uint8_t* touched = slot_ + map;
    constexpr uint32_t kShifts[] = {kLineShift, kPageShift, 16, 21};
    std::optional<uint64_t>* const counts[] = {&object.lines, &object.pages_4k, &object.pages_64k,
                                               &object.pages_2m};
    uint64_t previous[4];
    for (int i = 0; i < 4; ++i) {
      if (kShifts[i] >= shift) *counts[i] = 0;
      previous[i] = ~uint64_t{0};
    }
    const auto count_blocks = [&](uint64_t granule, int from) {
      for (int i = from; i < 4; ++i) {
        if (kShifts[i] < shift) continue;
        const uint64_t block = (line0 + granule) >> (kShifts[i] - shift);
        **counts[i] += block != previous[i];
        previous[i] = block;
      }
    };
    // As many at a time as a page has lines: their sum is what compilers vectorize.
    constexpr uint64_t kGroup = uint64_t{1} << (kPageShift - kLineShift);
    uint64_t first = granules, last = 0;
    for (uint64_t g = 0, end; g < granules; g = end) {
      end = std::min(granules, ((line0 + g) | (kGroup - 1)) + 1 - line0);
      uint64_t here = 0;
      for (uint64_t k = g; k < end; ++k) here += touched[k] != 0;
      if (here == 0) continue;
      if (first == granules) first = g;
      last = end;
      if (shift == kLineShift) {  // lines, all of one page
        *object.lines += here;
        count_blocks(g, 1);
      } else {
        for (uint64_t k = g; k < end; ++k) {
          if (touched[k]) count_blocks(k, 0);
        }
      }
    }
    if (plan_.reducers.extents || last == 0) return;
    while (!touched[first]) ++first;
    while (!touched[last - 1]) --last;
    object.first_offset = std::max((line0 + first) << shift, base) - base;
    object.last_offset = std::min((line0 + last) << shift, base + bytes) - base - 1;
  }

  const KernelPlan& plan_;
  const Binding& binding_;
  uint64_t work_items_;
  const uint8_t* slot_;
  uint64_t bytes_;
  SlotLayout layout_;
  SlotFacts facts_;
  std::vector<uint64_t> counters_;
  std::vector<ObjectAccess> per_object_;
  std::map<std::pair<int64_t, uint64_t>, BlockAccess> blocks_;  // by object and offset
};

}  // namespace

void merge_object(ObjectAccess& into, const ObjectAccess& other) {
  into.argument.reset();
  into.loads += other.loads;
  into.stores += other.stores;
  into.atomics += other.atomics;
  into.load_bytes += other.load_bytes;
  into.store_bytes += other.store_bytes;
  into.atomic_bytes += other.atomic_bytes;
  if (other.first_offset)
    into.first_offset = std::min(into.first_offset.value_or(~uint64_t{0}), *other.first_offset);
  if (other.last_offset)
    into.last_offset = std::max(into.last_offset.value_or(0), *other.last_offset);
}

SlotFacts read_facts(const KernelPlan& plan, const uint8_t* slot, uint64_t bytes) {
  SlotFacts facts;
  SlotLayout layout = plan.slot_layout();
  auto word = [&](uint32_t number) {
    uint64_t value = 0;
    if (uint64_t{number + 1} * kWord <= bytes)
      std::memcpy(&value, slot + uint64_t{number} * kWord, kWord);
    return value;
  };
  facts.trace_wanted = word(kSlotTraceWanted);
  for (uint32_t c = 0; c < 3; ++c) facts.local_size[c] = word(kSlotLocalSize + c);
  for (uint32_t k = 0; k < plan.roots.size(); ++k) facts.bases.push_back(word(layout.base(k)));
  return facts;
}

LaunchAccess decode(const KernelPlan& plan, const Binding& binding, uint64_t work_items,
                    const uint8_t* slot, uint64_t bytes) {
  return Decoder(plan, binding, work_items, slot, bytes).decode();
}

}  // namespace pasta::memory
