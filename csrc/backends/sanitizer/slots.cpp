#include "backends/sanitizer/slots.h"

#include <algorithm>

namespace pasta::sanitizer {
namespace {

constexpr size_t kLeastSlot = 4096;
// Threads that start together each allocate a slab: one must not take the whole bound from the others.
constexpr size_t kLeastSlabs = 8;

}  // namespace

// In steps of a quarter of a power of two, so that a few more objects do not change the size.
size_t SlotPool::slot_bytes(size_t bytes) const {
  size_t size = kLeastSlot;
  while (size < bytes) size *= 2;
  for (const size_t quarters : {5, 6, 7}) {
    if (size > kLeastSlot && size / 8 * quarters >= bytes) return size / 8 * quarters;
  }
  return size;
}

Slot SlotPool::take(size_t bytes) {
  for (Slab& slab : slabs_) {
    if (slab.slot_bytes < bytes) continue;
    const auto free = std::find(slab.used.begin(), slab.used.end(), false);
    if (free == slab.used.end()) continue;
    *free = true;
    return {&slab, static_cast<uint32_t>(free - slab.used.begin())};
  }
  return {};
}

void SlotPool::give(Slot slot) { slot.slab->used[slot.index] = false; }

size_t SlotPool::reserve(size_t bytes) {
  slot_bytes_ = std::max(slot_bytes_, slot_bytes(bytes));
  size_t slab = std::max(std::min(kSlabBytes, max_bytes_ / kLeastSlabs), slot_bytes_ + back_bytes_);
  if (bytes_ + slab > max_bytes_) {
    slab = max_bytes_ > bytes_ ? max_bytes_ - bytes_ : 0;
    if (slab < slot_bytes_ + back_bytes_) return 0;
  }
  bytes_ += slab;
  return slab;
}

void SlotPool::add(void* memory, size_t bytes) {
  const size_t slots = bytes / (slot_bytes_ + back_bytes_);
  slabs_.push_back({static_cast<uint8_t*>(memory), bytes, slot_bytes_, back_bytes_, std::vector<bool>(slots),
                    std::vector<bool>(slots, true), std::vector<nvidia::SlotHeader>(slots)});
}

void SlotPool::cancel(size_t bytes) { bytes_ -= bytes; }

std::vector<void*> SlotPool::retire(size_t bytes) {
  std::vector<void*> freed;
  for (auto slab = slabs_.begin(); slab != slabs_.end();) {
    const bool idle = std::find(slab->used.begin(), slab->used.end(), true) == slab->used.end();
    if (!idle || slab->slot_bytes >= bytes) {
      ++slab;
      continue;
    }
    freed.push_back(slab->memory);
    bytes_ -= slab->bytes;
    slab = slabs_.erase(slab);
  }
  return freed;
}

std::vector<void*> SlotPool::all() const {
  std::vector<void*> memory;
  for (const Slab& slab : slabs_) memory.push_back(slab.memory);
  return memory;
}

}  // namespace pasta::sanitizer
