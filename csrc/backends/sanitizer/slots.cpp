#include "backends/sanitizer/slots.h"

#include <algorithm>

namespace pasta::sanitizer {
namespace {

constexpr size_t kLeastPart = 256;
// Threads that start together each allocate a slab: one must not take the whole bound from the others.
constexpr size_t kLeastSlabs = 8;

}  // namespace

SlotParts Slab::parts(uint32_t slot) const {
  SlotParts parts;
  uint8_t* at = memory;
  const auto place = [&](size_t bytes) {
    uint8_t* const part = at + slot * bytes;
    at += used.size() * bytes;
    return part;
  };
  parts.front = place(of_slot.front);
  parts.marks = place(of_slot.marks);
  parts.tables = place(of_slot.tables);
  parts.objects = place(of_slot.objects);
  parts.trace = place(of_slot.trace);
  return parts;
}

Slot SlotPool::take(const SlotSizes& sizes, const Hinted& wanted, bool any) {
  Slot of_kernel, unused, other;
  for (Slab& slab : slabs_) {
    if (slab.free == 0 || !sizes.fit(slab.of_slot)) continue;
    while (slab.used[slab.lowest]) ++slab.lowest;
    for (uint32_t index = slab.lowest; index < slab.used.size(); ++index) {
      if (slab.used[index]) continue;
      const Hinted& before = slab.hinted[index];
      if (before == wanted) return use({&slab, index});
      Slot& best = before.kernel == nullptr ? unused : before.kernel == wanted.kernel ? of_kernel : other;
      if (best.slab == nullptr) best = {&slab, index};
    }
  }
  if (unused.slab != nullptr) return use(unused);
  if (!any || (of_kernel.slab == nullptr && other.slab == nullptr)) return {};
  return use(of_kernel.slab != nullptr ? of_kernel : other);
}

Slot SlotPool::use(Slot slot) {
  slot.slab->used[slot.index] = true;
  --slot.slab->free;
  return slot;
}

void SlotPool::give(Slot slot) {
  Slab& slab = *slot.slab;
  slab.used[slot.index] = false;
  ++slab.free;
  slab.lowest = std::min(slab.lowest, slot.index);
}

size_t SlotPool::reserve(const SlotSizes& sizes) {
  for (size_t SlotSizes::*part : {&SlotSizes::front, &SlotSizes::marks, &SlotSizes::objects}) {
    of_slot_.*part = std::max(of_slot_.*part, stepped(sizes.*part, kLeastPart));
  }
  of_slot_.tables = sizes.tables, of_slot_.trace = sizes.trace;  // of one size in a context
  size_t slab = std::max(std::min(kSlabBytes, max_bytes_ / kLeastSlabs), of_slot_.all());
  if (bytes_ + slab > max_bytes_) {
    slab = max_bytes_ > bytes_ ? max_bytes_ - bytes_ : 0;
    if (slab < of_slot_.all()) return 0;
  }
  bytes_ += slab;
  return slab;
}

Slab SlotPool::slab_of(uint8_t* memory, size_t bytes) const {
  const size_t slots = bytes / of_slot_.all();
  Slab slab{};
  slab.memory = memory;
  slab.bytes = bytes;
  slab.of_slot = of_slot_;
  slab.used.resize(slots);
  slab.free = static_cast<uint32_t>(slots);
  slab.fresh.resize(slots, true);
  slab.headers.resize(slots);
  slab.hinted.resize(slots);
  return slab;
}

void SlotPool::add(void* memory, size_t bytes) { slabs_.push_back(slab_of(static_cast<uint8_t*>(memory), bytes)); }

void SlotPool::cancel(size_t bytes) { bytes_ -= bytes; }

bool SlotPool::is_outgrown(const Slab& slab, const SlotSizes& sizes) {
  return slab.free == slab.used.size() && !sizes.fit(slab.of_slot);
}

std::vector<Buffer> SlotPool::recut(const SlotSizes& sizes) {
  std::vector<Buffer> images;
  for (Slab& slab : slabs_) {
    if (!is_outgrown(slab, sizes) || slab.bytes < of_slot_.all()) continue;
    images.push_back(slab.images());
    slab = slab_of(slab.memory, slab.bytes);
  }
  return images;
}

std::vector<SlotPool::Retired> SlotPool::retire(const SlotSizes& sizes) {
  std::vector<Retired> retired;
  for (auto slab = slabs_.begin(); slab != slabs_.end();) {
    if (!is_outgrown(*slab, sizes) || slab->bytes >= of_slot_.all()) {
      ++slab;
      continue;
    }
    retired.push_back({slab->memory, slab->images()});
    bytes_ -= slab->bytes;
    slab = slabs_.erase(slab);
  }
  return retired;
}

}  // namespace pasta::sanitizer
