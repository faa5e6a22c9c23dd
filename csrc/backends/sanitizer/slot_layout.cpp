#include "backends/sanitizer/slot_layout.h"

namespace pasta::sanitizer {
namespace {

constexpr size_t kAlignment = 128;

size_t aligned(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

constexpr size_t kLeastRanges = 8, kLeastMarks = 16;

}  // namespace

size_t stepped(size_t count, size_t least) {
  size_t size = least;
  while (size < count) size *= 2;
  for (const size_t quarters : {5, 6, 7}) {
    if (size > least && size / 8 * quarters >= count) return size / 8 * quarters;
  }
  return size;
}

SlotLayout SlotLayout::of(const Cuts& cuts, uint32_t features, size_t trace_bytes) {
  SlotLayout layout;
  layout.features = features;
  layout.full = (features & (nvidia::kSites | nvidia::kBlocks | nvidia::kTrace)) != 0;
  if (!cuts.ranges.empty()) layout.begin = cuts.ranges.front().begin, layout.end = cuts.ranges.back().end;
  layout.range_count = static_cast<uint32_t>(stepped(cuts.ranges.size(), kLeastRanges));
  layout.tensor_map_capacity = kTensorMapCapacity;
  layout.site_capacity = layout.full ? kSiteCapacity : 0;
  layout.hot_capacity = layout.full ? kFullHotCapacity : kHotCapacity;
  layout.trace_capacity = static_cast<uint32_t>(trace_bytes / sizeof(nvidia::TraceRecord));
  size_t at = 0;
  const auto place = [&at](size_t& offset, size_t count, size_t size) {
    offset = at;
    at = aligned(at + count * size, 16);
  };
  const auto end = [&at](size_t& bytes) {
    bytes = aligned(at, kAlignment);
    at = 0;
  };
  at = layout.quick().live_at;
  place(layout.live, layout.range_count, sizeof(nvidia::Live));
  place(layout.totals, 1, sizeof(nvidia::Totals));
  end(layout.bytes.front);
  place(layout.pages, stepped(cuts.page_words, kLeastMarks), sizeof(uint32_t));
  place(layout.blocks, layout.full ? stepped(cuts.block_count, kLeastMarks) : 0, sizeof(uint64_t));
  end(layout.bytes.marks);
  place(layout.hot, layout.hot_capacity, sizeof(nvidia::HotCounter));
  place(layout.tensor_maps, layout.tensor_map_capacity, sizeof(nvidia::TensorMapEntry));
  place(layout.sites, layout.site_capacity, sizeof(nvidia::SiteEntry));
  end(layout.bytes.tables);
  layout.bytes.objects = aligned((size_t{layout.range_count} + 1) * sizeof(nvidia::ObjectCounters), kAlignment);
  layout.bytes.trace = aligned(layout.trace_capacity * sizeof(nvidia::TraceRecord), kAlignment);
  return layout;
}

nvidia::SlotHeader SlotLayout::header(const SlotParts& slot, const nvidia::Range* ranges) const {
  nvidia::SlotHeader result{};
  result.ranges = ranges;
  result.begin = begin, result.end = end;
  result.totals = reinterpret_cast<nvidia::Totals*>(slot.front + totals);
  result.objects = reinterpret_cast<nvidia::ObjectCounters*>(slot.objects);
  result.pages = reinterpret_cast<uint32_t*>(slot.marks + pages);
  result.blocks = reinterpret_cast<uint64_t*>(slot.marks + blocks);
  result.hot = reinterpret_cast<nvidia::HotCounter*>(slot.tables + hot);
  result.tensor_maps = reinterpret_cast<nvidia::TensorMapEntry*>(slot.tables + tensor_maps);
  result.sites = reinterpret_cast<nvidia::SiteEntry*>(slot.tables + sites);
  result.trace = reinterpret_cast<nvidia::TraceRecord*>(slot.trace);
  result.range_count = range_count;
  result.hot_capacity = hot_capacity;
  result.tensor_map_capacity = tensor_map_capacity;
  result.site_capacity = site_capacity;
  result.trace_capacity = trace_capacity;
  result.features = features;
  return result;
}

}  // namespace pasta::sanitizer
