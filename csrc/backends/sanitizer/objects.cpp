#include "backends/sanitizer/objects.h"

#include <algorithm>

namespace pasta::sanitizer {
namespace {

uint64_t pages(uint64_t begin, uint64_t end) {
  return ((end - 1) >> nvidia::kPageShift) - (begin >> nvidia::kPageShift) + 1;
}

uint64_t words(const nvidia::Range& range) { return (pages(range.begin, range.end) + 31) / 32; }

uint64_t blocks(const nvidia::Range& range) {
  return (range.end - range.begin + (uint64_t{1} << nvidia::kBlockShift) - 1) >> nvidia::kBlockShift;
}

void append(Snapshot& snapshot, const MemoryObject& object, uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  snapshot.ranges.push_back({begin, end, nvidia::kUntracked, nvidia::kUntracked});
  snapshot.pieces.push_back({object.object_id, begin - object.begin});
}

// Gives bitmaps to the ranges, smallest first, as long as they fit. Reservations get none: they are as large as the
// address space allows, and most of them is never used.
void place_pages(Snapshot& snapshot, const std::vector<bool>& reserved, uint32_t max_words) {
  std::vector<size_t> order;
  for (size_t i = 0; i < snapshot.ranges.size(); ++i) {
    if (!reserved[i]) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return words(snapshot.ranges[a]) < words(snapshot.ranges[b]);
  });
  uint64_t used = 0;
  std::vector<bool> tracked(snapshot.ranges.size());
  for (const size_t i : order) {
    used += words(snapshot.ranges[i]);
    if (used > max_words) {
      snapshot.pages_left_out = true;
      break;
    }
    tracked[i] = true;
  }
  for (size_t i = 0; i < tracked.size(); ++i) {
    if (!tracked[i]) continue;
    nvidia::Range& range = snapshot.ranges[i];
    range.page_word = snapshot.page_words;
    range.first_block = snapshot.block_count;
    snapshot.page_words += static_cast<uint32_t>(words(range));
    snapshot.block_count += static_cast<uint32_t>(blocks(range));
  }
}

}  // namespace

void MemoryObjects::add(const MemoryObject& object, bool reservation) {
  if (object.end <= object.begin) return;
  std::lock_guard lock(mutex_);
  Map& map = reservation ? reservations_ : objects_;
  auto at = map.lower_bound(object.begin);
  if (at != map.begin() && std::prev(at)->second.end > object.begin) --at;
  while (at != map.end() && at->first < object.end) at = map.erase(at);
  map.emplace(object.begin, object);
  snapshot_ = nullptr;
}

std::optional<MemoryObject> MemoryObjects::take(uint64_t address, bool reservation) {
  std::lock_guard lock(mutex_);
  Map& map = reservation ? reservations_ : objects_;
  const auto found = map.find(address);
  if (found == map.end()) return std::nullopt;
  const MemoryObject object = found->second;
  map.erase(found);
  snapshot_ = nullptr;
  return object;
}

std::optional<MemoryObject> MemoryObjects::find(uint64_t address) const {
  std::lock_guard lock(mutex_);
  for (const Map* map : {&objects_, &reservations_}) {
    auto at = map->upper_bound(address);
    if (at != map->begin() && address < (--at)->second.end) return at->second;
  }
  return std::nullopt;
}

std::shared_ptr<const Snapshot> MemoryObjects::snapshot() {
  std::lock_guard lock(mutex_);
  if (snapshot_ == nullptr) snapshot_ = build();
  return snapshot_;
}

std::shared_ptr<const Snapshot> MemoryObjects::build() const {
  auto snapshot = std::make_shared<Snapshot>();
  std::vector<bool> reserved;
  const auto add = [&](const MemoryObject& object, uint64_t begin, uint64_t end, bool reservation) {
    append(*snapshot, object, begin, end);
    reserved.resize(snapshot->ranges.size(), reservation);
  };
  auto object = objects_.begin();
  for (const auto& [begin, reservation] : reservations_) {
    for (; object != objects_.end() && object->second.end <= begin; ++object) {
      add(object->second, object->first, object->second.end, false);
    }
    uint64_t at = begin;
    for (; object != objects_.end() && object->first < reservation.end; ++object) {
      add(reservation, at, object->first, true);
      add(object->second, object->first, object->second.end, false);
      at = object->second.end;
    }
    add(reservation, at, reservation.end, true);
  }
  for (; object != objects_.end(); ++object) add(object->second, object->first, object->second.end, false);
  place_pages(*snapshot, reserved, max_page_words_);
  return snapshot;
}

}  // namespace pasta::sanitizer
