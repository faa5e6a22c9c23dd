#include "backends/sanitizer/objects.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <type_traits>

namespace pasta::sanitizer {
namespace {

constexpr uint64_t k4GiB = uint64_t{1} << 32, kMostCut = uint64_t{1} << 40;
// Ranges of which some are cut only as they were before: so many more than needed, and so many at most.
constexpr size_t kFewCuts = 256, kMostCuts = 8192;
constexpr size_t kMostCutsKept = 1024;
static_assert(std::has_unique_object_representations_v<nvidia::Range>, "compared by its bytes");

uint64_t pages(uint64_t begin, uint64_t end) {
  return ((end - 1) >> nvidia::kPageShift) - (begin >> nvidia::kPageShift) + 1;
}

uint64_t words(const nvidia::Range& range) { return (pages(range.begin, range.end) + 31) / 32; }

uint64_t blocks(const nvidia::Range& range) {
  return (range.end - range.begin + (uint64_t{1} << nvidia::kBlockShift) - 1) >> nvidia::kBlockShift;
}

// Of the ranges that are tracked, until at least `excess` words are saved.
void leave_out_largest(const Cuts& cuts, uint64_t excess, std::vector<bool>& tracked) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tracked.size(); ++i) {
    if (tracked[i]) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return words(cuts.ranges[a]) > words(cuts.ranges[b]); });
  uint64_t saved = 0;
  for (size_t i = 0; i < order.size() && saved < excess; ++i) {
    saved += words(cuts.ranges[order[i]]);
    tracked[order[i]] = false;
  }
}

// Gives bitmaps to the ranges, smallest first, as long as they fit. Reservations get none but where tensors are or
// were: they are as large as the address space allows, and most of them is never used.
void place_pages(Cuts& cuts, const std::vector<bool>& inhabited, uint32_t max_words) {
  std::vector<bool> tracked(cuts.ranges.size());
  uint64_t wanted = 0;
  for (size_t i = 0; i < tracked.size(); ++i) {
    const nvidia::Range& range = cuts.ranges[i];
    const bool whole = range.begin / k4GiB == (range.end - 1) / k4GiB;
    tracked[i] = whole && (!cuts.places[i].reserved || inhabited[i]);
    if (tracked[i]) wanted += words(range);
  }
  if (wanted > max_words) {
    cuts.pages_left_out = true;
    leave_out_largest(cuts, wanted - max_words, tracked);
  }
  for (size_t i = 0; i < tracked.size(); ++i) {
    if (!tracked[i]) continue;
    nvidia::Range& range = cuts.ranges[i];
    range.page_word = cuts.page_words;
    cuts.page_words += static_cast<uint32_t>(words(range));
    if (blocks(range) == 1) continue;
    range.first_block = cuts.block_count;
    cuts.block_count += static_cast<uint32_t>(blocks(range));
  }
}

}  // namespace

// Cuts objects into ranges, one after the other in the order of their addresses.
class MemoryObjects::Cutting {
 public:
  // Where `before` is given, it is cut there too.
  Cutting(const std::vector<Tensor>& tensors, uint64_t smallest, const Cuts* before, size_t expected)
      : tensors_(tensors), smallest_(smallest), before_(before) {
    cuts.ranges.reserve(expected);
    cuts.places.reserve(expected);
    names.reserve(expected);
    inhabited.reserve(expected);
  }

  void add(const MemoryObject& object, uint64_t begin, uint64_t end, bool reserved);

  Cuts cuts;
  std::vector<int64_t> names;   // the tensors of the ranges
  std::vector<bool> inhabited;  // ranges that a tensor has, or had
  size_t needed = 0;            // ranges without those cut as before

 private:
  void piece(const MemoryObject& object, uint64_t begin, uint64_t end, bool reserved, int64_t tensor);

  const std::vector<Tensor>& tensors_;
  const uint64_t smallest_;  // tensors of fewer bytes are left out
  const Cuts* const before_;
  size_t at_ = 0;  // in what was before
};

// Of one tensor, or of none.
void MemoryObjects::Cutting::piece(const MemoryObject& object, uint64_t begin, uint64_t end, bool reserved,
                                   int64_t tensor) {
  const bool in_parts = before_ != nullptr && (tensor == kNullI64 || end - begin <= kMostInParts);
  while (begin < end) {
    // Patches tell addresses of a range apart by their lower halves; endless reservations have no patches' attention.
    uint64_t next = end - begin > kMostCut ? end : std::min(end, (begin / k4GiB + 1) * k4GiB);
    const uint64_t uncut = next;
    bool lived_in = tensor != kNullI64;
    if (in_parts) {
      const std::vector<nvidia::Range>& before = before_->ranges;
      while (at_ < before.size() && before[at_].end <= begin) ++at_;
      if (at_ < before.size()) {
        const nvidia::Range& range = before[at_];
        if (begin < range.begin) {
          next = std::min(next, range.begin);
        } else {
          lived_in |= range.page_word != nvidia::kUntracked;
          next = std::min(next, range.end);
        }
      }
    }
    needed += next == uncut;
    cuts.ranges.push_back({begin, next, nvidia::kUntracked, nvidia::kUntracked});
    cuts.places.push_back({object.object_id, begin - object.begin, reserved});
    names.push_back(tensor);
    inhabited.push_back(lived_in);
    begin = next;
  }
}

// The bytes of an object from `begin` to `end`.
void MemoryObjects::Cutting::add(const MemoryObject& object, uint64_t begin, uint64_t end, bool reserved) {
  auto tensor = std::upper_bound(tensors_.begin(), tensors_.end(), begin,
                                 [](uint64_t address, const Tensor& other) { return address < other.begin; });
  if (tensor != tensors_.begin()) --tensor;
  for (; tensor != tensors_.end() && tensor->begin < end; ++tensor) {
    const uint64_t from = std::max(tensor->begin, begin), to = std::min(tensor->end, end);
    if (from >= to) continue;
    if (tensor->end - tensor->begin < smallest_) {
      cuts.tensors_left_out = true;
      continue;
    }
    piece(object, begin, from, reserved, kNullI64);
    piece(object, from, to, reserved, tensor->tensor_id);
    begin = to;
  }
  piece(object, begin, end, reserved, kNullI64);
}

void MemoryObjects::add(const MemoryObject& object, bool reservation) {
  if (object.end <= object.begin) return;
  std::lock_guard lock(mutex_);
  Map& map = reservation ? reservations_ : objects_;
  auto at = map.lower_bound(object.begin);
  if (at != map.begin() && std::prev(at)->second.end > object.begin) --at;
  while (at != map.end() && at->first < object.end) at = map.erase(at);
  map.emplace(object.begin, object);
  cuts_fit_ = false;
}

std::optional<MemoryObject> MemoryObjects::take(uint64_t address, bool reservation) {
  std::lock_guard lock(mutex_);
  Map& map = reservation ? reservations_ : objects_;
  const auto found = map.find(address);
  if (found == map.end()) return std::nullopt;
  const MemoryObject object = found->second;
  map.erase(found);
  cuts_fit_ = false;
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

// The first range that does not end before `address`.
size_t first_range(const Cuts& cuts, uint64_t address) {
  const auto found = std::upper_bound(cuts.ranges.begin(), cuts.ranges.end(), address,
                                      [](uint64_t at, const nvidia::Range& range) { return at < range.end; });
  return static_cast<size_t>(found - cuts.ranges.begin());
}

// False: they must be cut for it.
bool MemoryObjects::name_ranges(const Tensor& tensor) {
  if (tensors_.size() > kMostTensors) return false;
  const std::vector<nvidia::Range>& ranges = cuts_->ranges;
  const size_t first = first_range(*cuts_, tensor.begin);
  if (first == ranges.size() || ranges[first].begin >= tensor.end) return true;  // it is in no object
  if (ranges[first].begin != tensor.begin) return false;
  size_t last = first;
  for (uint64_t end = tensor.begin;; ++last) {
    if (last == ranges.size() || ranges[last].begin != end || ranges[last].page_word == nvidia::kUntracked ||
        cuts_->places[last].object_id != cuts_->places[first].object_id) {
      return false;
    }
    end = ranges[last].end;
    if (end >= tensor.end) break;
  }
  if (ranges[last].end != tensor.end || (last != first && tensor.end - tensor.begin > kMostInParts)) return false;
  std::fill(names_.begin() + static_cast<std::ptrdiff_t>(first), names_.begin() + static_cast<std::ptrdiff_t>(last) + 1,
            tensor.tensor_id);
  return true;
}

void MemoryObjects::name(const Tensor& tensor) {
  snapshot_ = nullptr;
  cuts_fit_ = cuts_fit_ && name_ranges(tensor);
}

void MemoryObjects::unname(const Tensor& tensor) {
  snapshot_ = nullptr;
  if (cuts_->tensors_left_out) cuts_fit_ = false;  // there is room for another
  if (!cuts_fit_) return;
  for (size_t i = first_range(*cuts_, tensor.begin); i < names_.size() && cuts_->ranges[i].begin < tensor.end; ++i) {
    if (names_[i] == tensor.tensor_id) names_[i] = kNullI64;
  }
}

void MemoryObjects::add_tensor(int64_t tensor_id, uint64_t address, uint64_t bytes) {
  if (bytes == 0) return;
  std::lock_guard lock(mutex_);
  auto first = first_tensor_from(address);
  if (first != tensors_.begin() && std::prev(first)->end > address) --first;
  auto last = first;
  for (; last != tensors_.end() && last->begin < address + bytes; ++last) unname(*last);
  const Tensor tensor{address, address + bytes, tensor_id};
  tensors_.insert(tensors_.erase(first, last), tensor);
  name(tensor);
}

int64_t MemoryObjects::take_tensor(uint64_t address) {
  std::lock_guard lock(mutex_);
  const auto found = first_tensor_from(address);
  if (found == tensors_.end() || found->begin != address) return kNullI64;
  const Tensor tensor = *found;
  tensors_.erase(found);
  unname(tensor);
  return tensor.tensor_id;
}

std::shared_ptr<const Snapshot> MemoryObjects::snapshot() {
  std::lock_guard lock(mutex_);
  if (!cuts_fit_) cut();
  if (snapshot_ == nullptr) snapshot_ = std::make_shared<Snapshot>(Snapshot{cuts_, names_});
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

// The same cuts, made before, or these from now on.
std::shared_ptr<const Cuts> MemoryObjects::known(Cuts made) {
  const std::string_view bytes(reinterpret_cast<const char*>(made.ranges.data()),
                               made.ranges.size() * sizeof(nvidia::Range));
  const uint64_t hash = std::hash<std::string_view>()(bytes);
  const auto [first, last] = cuts_made_.equal_range(hash);
  for (auto cuts = first; cuts != last; ++cuts) {
    const Cuts& before = *cuts->second;
    const bool same = before.ranges.size() == made.ranges.size() && before.places == made.places &&
                      std::memcmp(before.ranges.data(), made.ranges.data(), bytes.size()) == 0;
    if (same && before.tensors_left_out == made.tensors_left_out) return cuts->second;
  }
  if (hashes_made_.size() == kMostCutsKept) {
    cuts_made_.erase(cuts_made_.find(hashes_made_.front()));
    hashes_made_.pop_front();
  }
  hashes_made_.push_back(hash);
  return cuts_made_.emplace(hash, std::make_shared<Cuts>(std::move(made)))->second;
}

// Where there were cuts before there are some again, unless that makes too many.
void MemoryObjects::cut() {
  const uint64_t smallest = smallest_tensor();
  for (const Cuts* before : {cuts_.get(), static_cast<const Cuts*>(nullptr)}) {
    Cutting cutting(tensors_, smallest, before, cuts_->ranges.size() + kFewCuts);
    auto object = objects_.begin();
    for (const auto& [begin, reservation] : reservations_) {
      for (; object != objects_.end() && object->second.end <= begin; ++object) {
        cutting.add(object->second, object->first, object->second.end, false);
      }
      uint64_t at = begin;
      for (; object != objects_.end() && object->first < reservation.end; ++object) {
        cutting.add(reservation, at, object->first, true);
        cutting.add(object->second, object->first, object->second.end, false);
        at = object->second.end;
      }
      cutting.add(reservation, at, reservation.end, true);
    }
    for (; object != objects_.end(); ++object) {
      cutting.add(object->second, object->first, object->second.end, false);
    }
    const size_t ranges = cutting.cuts.ranges.size();
    if (before != nullptr && ranges > std::min(2 * cutting.needed + kFewCuts, kMostCuts)) continue;
    place_pages(cutting.cuts, cutting.inhabited, max_page_words_);
    if (before != nullptr && cutting.cuts.pages_left_out) continue;
    cuts_ = known(std::move(cutting.cuts));
    names_ = std::move(cutting.names);
    break;
  }
  cuts_fit_ = true;
  snapshot_ = nullptr;
}

}  // namespace pasta::sanitizer
