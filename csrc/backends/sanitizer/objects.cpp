#include "backends/sanitizer/objects.h"

#include <algorithm>

namespace pasta::sanitizer {
namespace {

constexpr uint64_t k4GiB = uint64_t{1} << 32, kMostCut = uint64_t{1} << 40;

uint64_t pages(uint64_t begin, uint64_t end) {
  return ((end - 1) >> nvidia::kPageShift) - (begin >> nvidia::kPageShift) + 1;
}

uint64_t words(const nvidia::Range& range) { return (pages(range.begin, range.end) + 31) / 32; }

uint64_t blocks(const nvidia::Range& range) {
  return (range.end - range.begin + (uint64_t{1} << nvidia::kBlockShift) - 1) >> nvidia::kBlockShift;
}

// Of the ranges that are tracked, until at least `excess` words are saved.
void leave_out_largest(const Snapshot& snapshot, uint64_t excess, std::vector<bool>& tracked) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tracked.size(); ++i) {
    if (tracked[i]) order.push_back(i);
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return words(snapshot.ranges[a]) > words(snapshot.ranges[b]);
  });
  uint64_t saved = 0;
  for (size_t i = 0; i < order.size() && saved < excess; ++i) {
    saved += words(snapshot.ranges[order[i]]);
    tracked[order[i]] = false;
  }
}

// Gives bitmaps to the ranges, smallest first, as long as they fit. Reservations get none: they are as large as the
// address space allows, and most of them is never used.
void place_pages(Snapshot& snapshot, const std::vector<bool>& reserved, uint32_t max_words) {
  std::vector<bool> tracked(snapshot.ranges.size());
  uint64_t wanted = 0;
  for (size_t i = 0; i < tracked.size(); ++i) {
    const nvidia::Range& range = snapshot.ranges[i];
    const bool cut = range.begin / k4GiB == (range.end - 1) / k4GiB;
    tracked[i] = cut && (!reserved[i] || snapshot.pieces[i].tensor_id != kNullI64);
    if (tracked[i]) wanted += words(snapshot.ranges[i]);
  }
  if (wanted > max_words) {
    snapshot.pages_left_out = true;
    leave_out_largest(snapshot, wanted - max_words, tracked);
  }
  for (size_t i = 0; i < tracked.size(); ++i) {
    if (!tracked[i]) continue;
    nvidia::Range& range = snapshot.ranges[i];
    range.page_word = snapshot.page_words;
    snapshot.page_words += static_cast<uint32_t>(words(range));
    if (blocks(range) == 1) continue;
    range.first_block = snapshot.block_count;
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

std::vector<MemoryObjects::Tensor>::iterator MemoryObjects::first_tensor_from(uint64_t address) {
  return std::lower_bound(tensors_.begin(), tensors_.end(), address,
                          [](const Tensor& tensor, uint64_t begin) { return tensor.begin < begin; });
}

void MemoryObjects::add_tensor(int64_t tensor_id, uint64_t address, uint64_t bytes) {
  if (bytes == 0) return;
  std::lock_guard lock(mutex_);
  auto first = first_tensor_from(address);
  if (first != tensors_.begin() && std::prev(first)->end > address) --first;
  auto last = first;
  while (last != tensors_.end() && last->begin < address + bytes) ++last;
  tensors_.insert(tensors_.erase(first, last), Tensor{address, address + bytes, tensor_id});
  snapshot_ = nullptr;
}

int64_t MemoryObjects::take_tensor(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = first_tensor_from(address);
  if (found == tensors_.end() || found->begin != address) return kNullI64;
  const int64_t id = found->tensor_id;
  tensors_.erase(found);
  snapshot_ = nullptr;
  return id;
}

std::shared_ptr<const Snapshot> MemoryObjects::snapshot() {
  std::lock_guard lock(mutex_);
  if (snapshot_ == nullptr) snapshot_ = build();
  return snapshot_;
}

// Tensors of fewer bytes are left out of a snapshot.
uint64_t MemoryObjects::smallest_tensor() const {
  if (tensors_.size() <= kMostTensors) return 0;
  std::vector<uint64_t> sizes;
  for (const Tensor& tensor : tensors_) sizes.push_back(tensor.end - tensor.begin);
  const auto least = sizes.end() - static_cast<std::ptrdiff_t>(kMostTensors);
  std::nth_element(sizes.begin(), least, sizes.end());
  return *least + 1;  // fewer rather than more: many may be equal
}

// The bytes of an object, cut at the tensors in them.
void MemoryObjects::append(Snapshot& snapshot, const MemoryObject& object, uint64_t begin, uint64_t end,
                           uint64_t smallest) const {
  const auto piece = [&](uint64_t from, uint64_t to, int64_t tensor_id) {
    while (from < to) {
      // Patches tell addresses of a range apart by their lower halves; endless reservations have no patches' attention.
      const uint64_t next = to - from > kMostCut ? to : std::min(to, (from / k4GiB + 1) * k4GiB);
      snapshot.ranges.push_back({from, next, nvidia::kUntracked, nvidia::kUntracked});
      snapshot.pieces.push_back({object.object_id, tensor_id, from - object.begin});
      from = next;
    }
  };
  auto tensor = std::upper_bound(tensors_.begin(), tensors_.end(), begin,
                                 [](uint64_t address, const Tensor& other) { return address < other.begin; });
  if (tensor != tensors_.begin()) --tensor;
  for (; tensor != tensors_.end() && tensor->begin < end; ++tensor) {
    const uint64_t from = std::max(tensor->begin, begin), to = std::min(tensor->end, end);
    if (from >= to) continue;
    if (tensor->end - tensor->begin < smallest) {
      snapshot.tensors_left_out = true;
      continue;
    }
    piece(begin, from, kNullI64);
    piece(from, to, tensor->tensor_id);
    begin = to;
  }
  piece(begin, end, kNullI64);
}

std::shared_ptr<const Snapshot> MemoryObjects::build() const {
  auto snapshot = std::make_shared<Snapshot>();
  std::vector<bool> reserved;
  const size_t most = objects_.size() + 2 * (reservations_.size() + tensors_.size()) + 1;
  snapshot->ranges.reserve(most);
  snapshot->pieces.reserve(most);
  const uint64_t smallest = smallest_tensor();
  const auto add = [&](const MemoryObject& object, uint64_t begin, uint64_t end, bool reservation) {
    append(*snapshot, object, begin, end, smallest);
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
