#include "backends/sanitizer/slot_layout.h"

namespace pasta::sanitizer {

SlotLayout SlotLayout::of(const Snapshot& snapshot, uint32_t features, size_t trace_bytes) {
  SlotLayout layout;
  layout.features = features;
  layout.range_count = static_cast<uint32_t>(snapshot.ranges.size());
  layout.tensor_map_capacity = kTensorMapCapacity;
  const bool full = (features & (nvidia::kSites | nvidia::kBlocks | nvidia::kTrace)) != 0;
  layout.site_capacity = full ? kSiteCapacity : 0;
  layout.hot_capacity = full ? kHotCapacityWithSites : kHotCapacity;
  layout.trace_capacity = static_cast<uint32_t>(trace_bytes / sizeof(nvidia::TraceRecord));
  size_t at = layout.trace_capacity * sizeof(nvidia::TraceRecord);
  const auto place = [&at](size_t& offset, size_t count, size_t size) {
    offset = at;
    at = (at + count * size + 15) / 16 * 16;
  };
  place(layout.totals, 1, sizeof(nvidia::Totals));
  place(layout.objects, size_t{layout.range_count} + 1, sizeof(nvidia::ObjectCounters));
  place(layout.pages, snapshot.page_words, sizeof(uint32_t));
  place(layout.blocks, full ? snapshot.block_count : 0, sizeof(uint64_t));
  place(layout.hot, layout.hot_capacity, sizeof(nvidia::HotCounter));
  place(layout.tensor_maps, layout.tensor_map_capacity, sizeof(nvidia::TensorMapEntry));
  place(layout.sites, layout.site_capacity, sizeof(nvidia::SiteEntry));
  layout.bytes = at;
  return layout;
}

nvidia::SlotHeader SlotLayout::header(void* body, const nvidia::Range* ranges) const {
  uint8_t* const base = static_cast<uint8_t*>(body);
  nvidia::SlotHeader header{};
  header.ranges = ranges;
  header.totals = reinterpret_cast<nvidia::Totals*>(base + totals);
  header.objects = reinterpret_cast<nvidia::ObjectCounters*>(base + objects);
  header.pages = reinterpret_cast<uint32_t*>(base + pages);
  header.blocks = reinterpret_cast<uint64_t*>(base + blocks);
  header.hot = reinterpret_cast<nvidia::HotCounter*>(base + hot);
  header.tensor_maps = reinterpret_cast<nvidia::TensorMapEntry*>(base + tensor_maps);
  header.sites = reinterpret_cast<nvidia::SiteEntry*>(base + sites);
  header.trace = reinterpret_cast<nvidia::TraceRecord*>(base);
  header.range_count = range_count;
  header.hot_capacity = hot_capacity;
  header.tensor_map_capacity = tensor_map_capacity;
  header.site_capacity = site_capacity;
  header.trace_capacity = trace_capacity;
  header.features = features;
  return header;
}

}  // namespace pasta::sanitizer
