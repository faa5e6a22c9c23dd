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
  size_t at = 0;
  const auto place = [&at](size_t& offset, size_t count, size_t size) {
    offset = at;
    at = aligned(at + count * size, 16);
  };
  at = layout.quick_counters = layout.quick().counters_at;
  at = layout.live = layout.quick().live_at;
  place(layout.live, size_t{layout.range_count} + 1, sizeof(nvidia::Live));
  place(layout.quick_keys, layout.quick().keys, sizeof(uint64_t));
  place(layout.totals, 1, sizeof(nvidia::Totals));
  place(layout.objects, size_t{layout.range_count} + 1, sizeof(nvidia::ObjectCounters));
  place(layout.pages, snapshot.page_words, sizeof(uint32_t));
  place(layout.blocks, layout.full ? snapshot.block_count : 0, sizeof(uint64_t));
  layout.bytes = at;
  at = aligned(layout.trace_capacity * sizeof(nvidia::TraceRecord), kAlignment);
  place(layout.hot, layout.hot_capacity, sizeof(nvidia::HotCounter));
  place(layout.tensor_maps, layout.tensor_map_capacity, sizeof(nvidia::TensorMapEntry));
  place(layout.sites, layout.site_capacity, sizeof(nvidia::SiteEntry));
  layout.back_bytes = aligned(at, kAlignment);
  return layout;
}

nvidia::SlotHeader SlotLayout::header(void* front, void* back, const nvidia::Range* ranges) const {
  const auto in_front = [front](size_t offset) -> void* { return static_cast<uint8_t*>(front) + offset; };
  const auto in_back = [back](size_t offset) -> void* { return static_cast<uint8_t*>(back) + offset; };
  nvidia::SlotHeader result{};
  result.ranges = ranges;
  result.totals = static_cast<nvidia::Totals*>(in_front(totals));
  result.objects = static_cast<nvidia::ObjectCounters*>(in_front(objects));
  result.pages = static_cast<uint32_t*>(in_front(pages));
  result.blocks = static_cast<uint64_t*>(in_front(blocks));
  result.quick_keys = static_cast<uint64_t*>(in_front(quick_keys));
  result.hot = static_cast<nvidia::HotCounter*>(in_back(hot));
  result.tensor_maps = static_cast<nvidia::TensorMapEntry*>(in_back(tensor_maps));
  result.sites = static_cast<nvidia::SiteEntry*>(in_back(sites));
  result.trace = static_cast<nvidia::TraceRecord*>(in_back(0));
  result.range_count = range_count;
  result.hot_capacity = hot_capacity;
  result.tensor_map_capacity = tensor_map_capacity;
  result.site_capacity = site_capacity;
  result.trace_capacity = trace_capacity;
  result.features = features;
  return result;
}

}  // namespace pasta::sanitizer
