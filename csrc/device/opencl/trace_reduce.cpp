#include "device/opencl/trace_reduce.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "device/opencl/layout.h"

namespace pasta::memory {
namespace {

struct Record {
  uint64_t address;
  uint64_t work_item;
  uint32_t site;
  uint32_t repetition = 0;  // of the site by the work-item
};

constexpr uint64_t kBankBytes = 4;

std::vector<Record> read_records(const KernelPlan& plan, const Binding& binding,
                                 const SlotFacts& facts, const uint8_t* slot, uint64_t bytes) {
  uint64_t at = binding.words[kBindingTrace];
  uint64_t room = at < bytes ? (bytes - at) / kTraceRecordBytes : 0;
  uint64_t count = std::min({facts.trace_wanted, binding.words[kBindingTraceRecords], room});
  std::vector<Record> records;
  records.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t words[2];
    std::memcpy(words, slot + at + i * kTraceRecordBytes, sizeof words);
    uint32_t site = static_cast<uint32_t>(words[1] & ((1u << kTraceSiteBits) - 1));
    if (site < plan.sites.size()) records.push_back({words[0], words[1] >> kTraceSiteBits, site});
  }
  // Records of one work-item are in the order of its accesses: number the repetitions, then forget
  // the order.
  std::stable_sort(records.begin(), records.end(), [](const Record& a, const Record& b) {
    return std::tie(a.site, a.work_item) < std::tie(b.site, b.work_item);
  });
  for (size_t i = 1; i < records.size(); ++i) {
    bool same =
        records[i].site == records[i - 1].site && records[i].work_item == records[i - 1].work_item;
    if (same) records[i].repetition = records[i - 1].repetition + 1;
  }
  return records;
}

// Lines and extents of one object.
struct Touched {
  ObjectAccess access;
  std::unordered_set<uint64_t> lines;
  std::map<uint64_t, uint64_t> blocks;  // number -> accesses
  uint64_t bytes = 0;
  uint64_t first = ~uint64_t{0}, end = 0;
};

class Reducer {
 public:
  Reducer(const KernelPlan& plan, const Binding& binding, const SlotFacts& facts,
          const TraceOptions& options)
      : plan_(plan), binding_(binding), facts_(facts), options_(options) {
    options_.width = std::max(options_.width, 1u);
    options_.banks = std::max(options_.banks, 1u);
    touched_.resize(plan.roots.size() + binding.ranges.size() + 1);
  }

  LaunchAccess reduce(std::vector<Record> records) {
    LaunchAccess launch;
    std::copy_n(facts_.local_size, 3, launch.local_size);
    for (uint32_t s = 0; s < plan_.sites.size(); ++s) {
      SiteAccess access;
      access.site = s;
      access.executions = access.sectors = access.ideal_sectors = 0;
      if (plan_.sites[s].space == Space::local) access.bank_conflicts = 0;
      launch.sites.push_back(access);
    }
    for (const Record& record : records) object_access(record, launch.sites[record.site]);
    sub_group_accesses(std::move(records), launch);
    for (SiteAccess& access : launch.sites) {
      if (plan_.sites[access.site].space == Space::local)
        access.sectors = access.ideal_sectors = std::nullopt;
    }
    collect_objects(launch);
    return launch;
  }

 private:
  // Number of the object that holds an address: a root, roots + range, or the place for none.
  size_t find(const Site& site, uint64_t address) const {
    for (uint32_t root : site.candidates) {
      if (address - facts_.bases[root] < binding_.roots[root].bytes) return root;
    }
    for (size_t r = 0; r < binding_.ranges.size(); ++r) {
      if (address - binding_.ranges[r].address < binding_.ranges[r].bytes)
        return plan_.roots.size() + r;
    }
    return touched_.size() - 1;
  }

  void object_access(const Record& record, SiteAccess& site_access) {
    const Site& site = plan_.sites[record.site];
    ++site_access.lanes;
    site_access.bytes += site.bytes;
    size_t number = touched_.size() - 1;
    if (site.root != kNone) {
      number = site.root;
    } else if (site.dynamic != kNone) {
      number = find(site, record.address);
      if (number == touched_.size() - 1) {
        ++site_access.elsewhere;
        if (site.space == Space::generic) return;
      }
    }
    Touched& object = touched_[number];
    object.access.space = number < plan_.roots.size() ? plan_.roots[number].space : site.space;
    bool store = site.kind == AccessKind::store || site.kind == AccessKind::copy_store;
    bool atomic = site.kind == AccessKind::atomic;
    (atomic ? object.access.atomics : store ? object.access.stores : object.access.loads) += 1;
    (atomic  ? object.access.atomic_bytes
     : store ? object.access.store_bytes
             : object.access.load_bytes) += site.bytes;
    if (object.access.space == Space::local || number == touched_.size() - 1) return;
    uint64_t base = number < plan_.roots.size()
                        ? facts_.bases[number]
                        : binding_.ranges[number - plan_.roots.size()].address;
    uint64_t offset = record.address - base;
    object.first = std::min(object.first, offset);
    object.end = std::max(object.end, offset + site.bytes);
    ++object.blocks[offset >> kBlockShift];
    uint64_t last = (record.address + site.bytes - 1) >> kLineShift;
    for (uint64_t line = record.address >> kLineShift; line <= last; ++line)
      object.lines.insert(line);
  }

  void sub_group_accesses(std::vector<Record> records, LaunchAccess& launch) {
    uint64_t volume =
        std::max<uint64_t>(facts_.local_size[0] * facts_.local_size[1] * facts_.local_size[2], 1);
    auto sub_group = [&](const Record& r) {
      return std::pair(r.work_item / volume, r.work_item % volume / options_.width);
    };
    auto key = [&](const Record& r) { return std::tuple(r.site, sub_group(r), r.repetition); };
    std::sort(records.begin(), records.end(),
              [&](const Record& a, const Record& b) { return key(a) < key(b); });
    for (size_t begin = 0; begin < records.size();) {
      size_t end = begin;
      while (end < records.size() && key(records[end]) == key(records[begin])) ++end;
      SiteAccess& access = launch.sites[records[begin].site];
      const Site& site = plan_.sites[records[begin].site];
      ++*access.executions;
      if (site.space == Space::local) {
        *access.bank_conflicts += conflicts(&records[begin], &records[end - 1] + 1, site.bytes);
      } else {
        std::unordered_set<uint64_t> lines;
        for (size_t i = begin; i < end; ++i) {
          uint64_t last = (records[i].address + site.bytes - 1) >> kLineShift;
          for (uint64_t line = records[i].address >> kLineShift; line <= last; ++line)
            lines.insert(line);
        }
        uint64_t line_bytes = uint64_t{1} << kLineShift;
        *access.sectors += lines.size();
        // Work-items that share an address need fewer lines than their bytes would fill.
        const uint64_t filled = ((end - begin) * site.bytes + line_bytes - 1) / line_bytes;
        *access.ideal_sectors += std::min<uint64_t>(lines.size(), filled);
      }
      begin = end;
    }
  }

  // Passes beyond those that the number of distinct words alone would need.
  uint64_t conflicts(const Record* begin, const Record* end, uint64_t bytes) const {
    std::unordered_set<uint64_t> words;
    std::unordered_map<uint64_t, uint64_t> in_bank;
    uint64_t passes = 0;
    for (const Record* r = begin; r != end; ++r) {
      uint64_t last = (r->address + bytes - 1) / kBankBytes;
      for (uint64_t word = r->address / kBankBytes; word <= last; ++word) {
        if (words.insert(word).second) passes = std::max(passes, ++in_bank[word % options_.banks]);
      }
    }
    return passes - (words.size() + options_.banks - 1) / options_.banks;
  }

  void collect_objects(LaunchAccess& launch) {
    size_t roots = plan_.roots.size();
    std::vector<Touched*> merged;
    for (size_t o = 0; o < touched_.size(); ++o) {
      Touched& object = touched_[o];
      ObjectAccess& access = object.access;
      if (access.loads + access.stores + access.atomics == 0) continue;
      if (o < roots) {
        access.object_id = binding_.roots[o].object_id;
        access.argument = plan_.roots[o].argument;
        object.bytes = binding_.roots[o].bytes;
      } else if (o + 1 < touched_.size()) {
        access.object_id = binding_.ranges[o - roots].object_id;
        object.bytes = binding_.ranges[o - roots].bytes;
        access.space = Space::global;
      }
      auto same = std::find_if(merged.begin(), merged.end(), [&](const Touched* other) {
        return access.object_id != kNoObject && other->access.object_id == access.object_id;
      });
      if (same == merged.end()) {
        merged.push_back(&object);
        continue;
      }
      Touched& into = **same;
      merge_object(into.access, access);
      into.lines.insert(object.lines.begin(), object.lines.end());
      for (const auto& [block, accesses] : object.blocks) into.blocks[block] += accesses;
      into.first = std::min(into.first, object.first);
      into.end = std::max(into.end, object.end);
    }
    for (Touched* object : merged) {
      ObjectAccess& access = object->access;
      if (!object->lines.empty()) {
        auto pages = [&](uint32_t shift) {
          std::unordered_set<uint64_t> found;
          for (uint64_t line : object->lines) found.insert(line >> (shift - kLineShift));
          return found.size();
        };
        access.lines = object->lines.size();
        access.pages_4k = pages(kPageShift);
        access.pages_64k = pages(16);
        access.pages_2m = pages(21);
        access.first_offset = object->first;
        access.last_offset = object->end - 1;
      }
      launch.objects.push_back(access);
      if (access.object_id == kNoObject) continue;
      for (const auto& [block, accesses] : object->blocks) {
        const uint64_t offset = block << kBlockShift;
        const uint64_t bytes = std::min(uint64_t{1} << kBlockShift, object->bytes - offset);
        launch.blocks.push_back({access.object_id, offset, bytes, accesses});
      }
    }
    std::sort(launch.blocks.begin(), launch.blocks.end(), [](const auto& a, const auto& b) {
      return std::tie(a.object_id, a.offset) < std::tie(b.object_id, b.offset);
    });
  }

  const KernelPlan& plan_;
  const Binding& binding_;
  const SlotFacts& facts_;
  TraceOptions options_;
  std::vector<Touched> touched_;
};

}  // namespace

LaunchAccess reduce_trace(const KernelPlan& plan, const Binding& binding, const uint8_t* slot,
                          uint64_t bytes, const TraceOptions& options) {
  SlotFacts facts = read_facts(plan, slot, bytes);
  std::vector<Record> records = read_records(plan, binding, facts, slot, bytes);
  LaunchAccess launch = Reducer(plan, binding, facts, options).reduce(std::move(records));
  uint64_t room = binding.words[kBindingTraceRecords];
  launch.trace_lost = facts.trace_wanted > room ? facts.trace_wanted - room : 0;
  return launch;
}

}  // namespace pasta::memory
