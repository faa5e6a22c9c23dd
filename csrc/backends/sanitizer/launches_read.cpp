// The part of Launches that reads slots: copied and cleared here, decoded by another thread.
#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/sanitizer/decode.h"
#include "backends/sanitizer/launches.h"
#include "backends/sanitizer/library.h"

namespace pasta::sanitizer {
namespace {

constexpr size_t kStagingBytes = size_t{8} << 20, kLeastStaging = size_t{256} << 10;
// Up to this size a clean front is copied to the device, together with its neighbours: the bus takes less time for it
// than a call.
constexpr size_t kMostOfImage = size_t{128} << 10;

// A launch may keep more accesses than the session's buffer holds: from time to time they are written first.
constexpr uint64_t kAccessesAtOnce = 1 << 12;
constexpr int64_t kDrainNs = 2'000'000'000;

}  // namespace

// Host memory for copies: pinned, so that they run at the bus's speed, where there is some. Kept for the next time.
class Launches::Staging {
 public:
  Staging(Launches& launches, size_t bytes) : launches_(launches), buffer_{nullptr, kLeastStaging} {
    while (buffer_.bytes < bytes) buffer_.bytes *= 2;
    {
      std::lock_guard lock(launches.mutex_);
      const auto fits = std::find_if(launches.staging_.begin(), launches.staging_.end(),
                                     [bytes](const Buffer& kept) { return kept.bytes >= bytes; });
      if (fits != launches.staging_.end()) {
        buffer_ = *fits;
        launches.staging_.erase(fits);
        return;
      }
    }
    if (library().call.sanitizerAllocHost(launches.context_, &buffer_.memory, buffer_.bytes) != SANITIZER_SUCCESS) {
      buffer_.memory = nullptr;
      ordinary_.resize(bytes);
    }
  }
  ~Staging() {
    if (buffer_.memory == nullptr) return;
    std::lock_guard lock(launches_.mutex_);
    launches_.staging_.push_back(buffer_);
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  uint8_t* data() { return buffer_.memory != nullptr ? static_cast<uint8_t*>(buffer_.memory) : ordinary_.data(); }

 private:
  Launches& launches_;
  Buffer buffer_;
  std::vector<uint8_t> ordinary_;
};

// Launches in slots that lie side by side: a call for each part of them together.
class Launches::Run {
 public:
  // As many of `flights`, which are sorted by slot, as the staging has room for.
  Run(Launches& launches, const std::vector<Flight>& flights, size_t first, Sanitizer_StreamHandle stream)
      : launches_(launches), flights_(flights.data() + first), slab_(*flights_[0].slot.slab), stream_(stream) {
    const size_t most = std::min(flights.size() - first, std::max(kStagingBytes / bytes_of_one(), size_t{1}));
    while (count_ < most && follows(flights_[count_ - 1].slot, flights_[count_].slot)) ++count_;
  }

  size_t count() const { return count_; }

  // Everything is copied, cleared, and left to be decoded.
  SanitizerResult read() {
    size_t bytes = count_ * bytes_of_one();
    const auto batch = std::make_shared<Batch>(launches_, bytes);
    place(batch->staging.data());
    SanitizerResult result = copy_together();
    if (result != SANITIZER_SUCCESS) {
      launches_.lose(static_cast<int64_t>(count_), "results could not be read: " + describe(result));
      return result;
    }
    batch->launches.reserve(count_);
    for (size_t i = 0; i < count_; ++i) {
      Copied copied{flights_[i].launch, flights_[i].layout, flights_[i].snapshot, {}, {}};
      const SanitizerResult of_one = read_one(i, copied);
      bytes += copied.objects.size();
      if (of_one == SANITIZER_SUCCESS) batch->launches.push_back(std::move(copied));
      else launches_.lose(1, "results could not be read: " + describe(of_one));
      if (result == SANITIZER_SUCCESS) result = of_one;
    }
    if (result == SANITIZER_SUCCESS) result = clear_fronts();
    launches_.decoding_.add(bytes, [batch, &launches = launches_] {
      for (const Copied& copied : batch->launches) launches.emit(copied);
    });
    return result;
  }

 private:
  struct Batch {
    Batch(Launches& of, size_t bytes) : staging(of, bytes) {}

    Staging staging;
    std::vector<Copied> launches;
  };

  static bool follows(const Slot& slot, const Slot& next) {
    return next.slab == slot.slab && next.index == slot.index + 1;
  }
  size_t bytes_of_one() const {
    return slab_.of_slot.front + slab_.of_slot.marks + slab_.of_slot.tables + slab_.of_slot.trace;
  }
  SlotParts device(size_t i) const { return slab_.parts(flights_[0].slot.index + static_cast<uint32_t>(i)); }
  const nvidia::Totals& totals(size_t i) const {
    return *reinterpret_cast<const nvidia::Totals*>(host_.front + i * slab_.of_slot.front + flights_[i].layout.totals);
  }
  SanitizerResult copy(uint8_t* to, uint8_t* from, size_t bytes) const {
    return bytes == 0 ? SANITIZER_SUCCESS : library().call.sanitizerMemcpyDeviceToHost(to, from, bytes, stream_);
  }
  SanitizerResult clear(uint8_t* at, size_t bytes) const {
    return bytes == 0 ? SANITIZER_SUCCESS : library().call.sanitizerMemset(at, 0, bytes, stream_);
  }

  void place(uint8_t* staging) {
    host_.front = staging;
    host_.marks = host_.front + count_ * slab_.of_slot.front;
    host_.tables = host_.marks + count_ * slab_.of_slot.marks;
    host_.trace = host_.tables + count_ * slab_.of_slot.tables;
  }

  // What all launches have, and the tables of those that used them, which are clear then, as are the marks.
  SanitizerResult copy_together() {
    const SlotSizes last = flights_[count_ - 1].layout.bytes;
    const SlotSizes& each = slab_.of_slot;
    SanitizerResult result = copy(host_.front, device(0).front, (count_ - 1) * each.front + last.front);
    const size_t marks = (count_ - 1) * each.marks + last.marks;
    if (result == SANITIZER_SUCCESS) result = copy(host_.marks, device(0).marks, marks);
    size_t begin = count_, end = 0;  // of those that used their tables
    for (size_t i = 0; i < count_ && result == SANITIZER_SUCCESS; ++i) {
      if (totals(i).tables_used == 0) continue;
      begin = std::min(begin, i), end = i + 1;
    }
    const size_t tables = begin < end ? (end - begin) * each.tables : 0;
    if (result == SANITIZER_SUCCESS && tables != 0) {
      result = copy(host_.tables + begin * each.tables, device(begin).tables, tables);
      if (result == SANITIZER_SUCCESS) result = clear(device(begin).tables, tables);
    }
    if (result == SANITIZER_SUCCESS) result = clear(device(0).marks, marks);
    return result;
  }

  // Where a launch's results are now, and a copy of what few launches use.
  SanitizerResult read_one(size_t i, Copied& copied) {
    const SlotSizes& each = slab_.of_slot;
    SlotParts& parts = copied.slot;
    parts.front = host_.front + i * each.front;
    parts.marks = host_.marks + i * each.marks;
    if (totals(i).tables_used != 0) parts.tables = host_.tables + i * each.tables;
    SanitizerResult result = SANITIZER_SUCCESS;
    if (totals(i).objects_used != 0) {
      copied.objects.resize(copied.layout.bytes.objects);
      parts.objects = copied.objects.data();
      result = copy(parts.objects, device(i).objects, copied.objects.size());
      if (result == SANITIZER_SUCCESS) result = clear(device(i).objects, copied.objects.size());
    }
    if (const uint64_t wanted = totals(i).trace_wanted; result == SANITIZER_SUCCESS && wanted != 0) {
      parts.trace = host_.trace + i * each.trace;
      const uint64_t records = std::min<uint64_t>(wanted, copied.layout.trace_capacity);
      result = copy(parts.trace, device(i).trace, records * sizeof(nvidia::TraceRecord));
    }
    return result;
  }

  // Not when the quick keys, which those of launches to come are added to, have little room left.
  bool keeps_hints(size_t i) const {
    const SlotLayout& layout = flights_[i].layout;
    const auto* const keys =
        reinterpret_cast<const uint64_t*>(host_.front + i * slab_.of_slot.front + layout.quick().keys_at);
    return std::count(keys, keys + layout.quick().keys, uint64_t{0}) >= layout.quick().keys / 2;
  }

  SanitizerResult clear_fronts() {
    constexpr size_t kHintsAt = SlotLayout::kHintsAt;
    const size_t each = slab_.of_slot.front;
    uint8_t* const image = launches_.image_of(slab_);
    if (image != nullptr) {
      const uint32_t index = flights_[0].slot.index;
      for (size_t i = 0; i < count_; ++i) {
        uint8_t* const front = image + (index + i) * each;
        const size_t hints = flights_[i].layout.cleared() - SlotLayout::kHintsAt;
        std::memcpy(front, &slab_.headers[index + i], sizeof(nvidia::SlotHeader));
        if (keeps_hints(i)) std::memcpy(front + kHintsAt, host_.front + i * each + kHintsAt, hints);
        else std::memset(front + kHintsAt, 0, hints);
      }
      const size_t bytes = (count_ - 1) * each + flights_[count_ - 1].layout.bytes.front;
      return library().call.sanitizerMemcpyHostToDeviceAsync(device(0).front, image + index * each, bytes, stream_);
    }
    SanitizerResult result = SANITIZER_SUCCESS;
    for (size_t i = 0; i < count_ && result == SANITIZER_SUCCESS; ++i) {
      const size_t kept = keeps_hints(i) ? flights_[i].layout.cleared() : kHintsAt;
      result = clear(device(i).front + kept, flights_[i].layout.bytes.front - kept);
    }
    return result;
  }

  Launches& launches_;
  const Flight* const flights_;
  Slab& slab_;
  const Sanitizer_StreamHandle stream_;
  size_t count_ = 1;
  SlotParts host_;
};

void Launches::read(std::vector<Flight>& flights, Sanitizer_StreamHandle stream) {
  std::sort(flights.begin(), flights.end(), [](const Flight& a, const Flight& b) {
    return std::pair(a.slot.slab->memory, a.slot.index) < std::pair(b.slot.slab->memory, b.slot.index);
  });
  for (size_t first = 0; first < flights.size();) {
    Run run(*this, flights, first, stream);
    const bool clean = run.read() == SANITIZER_SUCCESS;
    std::lock_guard lock(mutex_);
    for (const size_t end = first + run.count(); first < end; ++first) {
      const Slot& slot = flights[first].slot;
      if (!clean) slot.slab->fresh[slot.index] = true;
    }
  }
  library().call.sanitizerStreamSynchronize(stream);  // of the zeroing: the slots may go to any stream next
}

// Zeros for the fronts of a slab; null where they are too large for it, or there is no memory that the device can read.
uint8_t* Launches::image_of(Slab& slab) {
  {
    std::lock_guard lock(mutex_);
    if (slab.image_tried || slab.of_slot.front > kMostOfImage) return slab.image;
    slab.image_tried = true;
  }
  const size_t bytes = slab.used.size() * slab.of_slot.front;
  void* memory = nullptr;
  if (library().call.sanitizerAllocHost(context_, &memory, bytes) != SANITIZER_SUCCESS) return nullptr;
  std::memset(memory, 0, bytes);
  std::lock_guard lock(mutex_);
  slab.image = static_cast<uint8_t*>(memory);
  return slab.image;
}

int64_t Launches::site_id(const KernelCode& kernel, uint64_t pc) {
  std::lock_guard lock(sites_mutex_);
  const auto [site, fresh] = sites_.try_emplace({kernel.symbol.value, kernel.binary.value, pc - kernel.pc}, 0);
  if (!fresh) return site->second;
  site->second = next_id();
  LineRecord row;
  row.site_id = site->second;
  row.kernel = kernel.name;
  row.pc = static_cast<int64_t>(pc - kernel.pc);
  row.symbol = kernel.symbol;
  row.binary = kernel.binary;
  pasta::emit(row);
  return site->second;
}

void Launches::emit(const Copied& copied) {
  const NewLaunch& launch = copied.launch;
  DecodedSlot decoded =
      decode_slot(copied.slot, copied.layout, *copied.snapshot, maps_, launch.launch_id, launch.queued_ns);
  for (const AccessObjectRecord& row : decoded.objects) pasta::emit(row);
  for (const AccessBlockRecord& row : decoded.blocks) pasta::emit(row);
  for (SiteRow& site : decoded.sites) {
    site.row.site_id = site_id(launch.kernel, site.pc);
    pasta::emit(site.row);
  }
  for (AccessRow& access : decoded.accesses) {
    access.row.site_id = site_id(launch.kernel, access.pc);
    pasta::emit(access.row);
    if (++kept_accesses_ % kAccessesAtOnce == 0) drain(kDrainNs);
  }
  const auto lost = [](const char* table, uint64_t count, const char* cause, const char* remedy = "") {
    if (count != 0) report_loss("sanitizer", table, static_cast<int64_t>(count), cause, remedy);
  };
  lost("access_site", decoded.lost_sites, "a launch has more instructions that access memory than fit");
  lost("access_object", decoded.lost_tensor_maps, "a launch loads through more tensor maps than fit");
  lost("access_object", decoded.unknown_tensor_maps,
       "TMA loads through tensor maps that could not be read: their bytes are not known");
  lost("access_object", decoded.coarse_tensor_maps,
       "TMA loads whose pages are not exact: im2col, gather, packed types or very many rows");
  lost("access", decoded.lost_accesses, "a launch makes more accesses than its part of the trace holds",
       "--memory-buffer gives more, --sample measures fewer launches");
  lost("access", decoded.untraced_tensors, "TMA loads have no rows in the trace");
  lost("access_object", decoded.damaged, "counters of a launch make no sense: a kernel may write where it should not",
       "compute-sanitizer finds such kernels");
}

}  // namespace pasta::sanitizer
