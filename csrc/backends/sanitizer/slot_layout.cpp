#include "backends/sanitizer/slot_layout.h"

namespace pasta::sanitizer {
namespace {

constexpr size_t kAlignment = 128;

size_t aligned(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

SlotLayout SlotLayout::of(const Snapshot& snapshot, uint32_t features, size_t trace_bytes) {
  SlotLayout layout;
  layout.features = features;
  layout.full = (features & (nvidia::kSites | nvidia::kBlocks | nvidia::kTrace)) != 0;
  layout.range_count = static_cast<uint32_t>(snapshot.ranges.size());
  layout.tensor_map_capacity = kTensorMapCapacity;
  layout.site_capacity = layout.full ? kSiteCapacity : 0;
  layout.hot_capacity = layout.full ? kFullHotCapacity : kHotCapacity;
  layout.trace_capacity = static_cast<uint32_t>(trace_bytes / sizeof(nvidia::TraceRecord));
  layout.header = aligned(layout.trace_capacity * sizeof(nvidia::TraceRecord), kAlignment);
  layout.quick_counters = layout.header + layout.quick().counters_at;
  layout.live = layout.header + layout.quick().live_at;
  size_t at = layout.live;
  const auto place = [&at](size_t& offset, size_t count, size_t size) {
    offset = at;
    at = aligned(at + count * size, 16);
  };
  place(layout.live, size_t{layout.range_count} + 1, sizeof(nvidia::Live));
  place(layout.quick_keys, layout.quick().keys, sizeof(uint64_t));
  place(layout.totals, 1, sizeof(nvidia::Totals));
  place(layout.objects, size_t{layout.range_count} + 1, sizeof(nvidia::ObjectCounters));
  place(layout.pages, snapshot.page_words, sizeof(uint32_t));
  place(layout.blocks, layout.full ? snapshot.block_count : 0, sizeof(uint64_t));
  place(layout.hot, layout.hot_capacity, sizeof(nvidia::HotCounter));
  place(layout.tensor_maps, layout.tensor_map_capacity, sizeof(nvidia::TensorMapEntry));
  place(layout.sites, layout.site_capacity, sizeof(nvidia::SiteEntry));
  layout.bytes = at;
  return layout;
}

nvidia::SlotHeader SlotLayout::header_of(void* slot, const nvidia::Range* ranges) const {
  uint8_t* const base = static_cast<uint8_t*>(slot);
  nvidia::SlotHeader result{};
  result.ranges = ranges;
  result.totals = reinterpret_cast<nvidia::Totals*>(base + totals);
  result.objects = reinterpret_cast<nvidia::ObjectCounters*>(base + objects);
  result.pages = reinterpret_cast<uint32_t*>(base + pages);
  result.blocks = reinterpret_cast<uint64_t*>(base + blocks);
  result.quick_keys = reinterpret_cast<uint64_t*>(base + quick_keys);
  result.hot = reinterpret_cast<nvidia::HotCounter*>(base + hot);
  result.tensor_maps = reinterpret_cast<nvidia::TensorMapEntry*>(base + tensor_maps);
  result.sites = reinterpret_cast<nvidia::SiteEntry*>(base + sites);
  result.trace = reinterpret_cast<nvidia::TraceRecord*>(base);
  result.range_count = range_count;
  result.hot_capacity = hot_capacity;
  result.tensor_map_capacity = tensor_map_capacity;
  result.site_capacity = site_capacity;
  result.trace_capacity = trace_capacity;
  result.features = features;
  return result;
}

}  // namespace pasta::sanitizer
