#include "backends/sanitizer/launches.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "backends/sanitizer/decode.h"
#include "backends/sanitizer/driver.h"
#include "backends/sanitizer/library.h"

namespace pasta::sanitizer {
namespace {

// A stream that is gone: its launches end with the context's.
const Sanitizer_StreamHandle kNoStream = nullptr;
// Complete launches are read when there are this many, or when the last were read this long ago: a program that
// dies keeps all but the last tenth of a second.
constexpr size_t kBatch = 32;
constexpr int64_t kMaxAgeNs = 100'000'000;
constexpr size_t kStagingBytes = size_t{8} << 20;
constexpr size_t kLeastRanges = 256;  // that a table has room for
constexpr size_t kTraceShare = 10;    // of the memory for results: that each of so many launches may have for its trace

// A launch may keep more accesses than the session's buffer holds: from time to time they are written first.
constexpr uint64_t kAccessesAtOnce = 1 << 12;
constexpr int64_t kDrainNs = 2'000'000'000;

std::atomic<uint64_t> g_tokens{1};

bool same_ranges(const Snapshot& a, const Snapshot& b) {
  return a.ranges.size() == b.ranges.size() &&
         (a.ranges.empty() ||
          std::memcmp(a.ranges.data(), b.ranges.data(), a.ranges.size() * sizeof(nvidia::Range)) == 0);
}

}  // namespace

// Host memory for copies: pinned, so that they run at the bus's speed, where there is some. Kept for the next time.
class Launches::Staging {
 public:
  Staging(Launches& launches, size_t bytes) : launches_(launches), buffer_{nullptr, bytes} {
    {
      std::lock_guard lock(launches.mutex_);
      while (!launches.staging_.empty()) {
        const Buffer kept = launches.staging_.back();
        launches.staging_.pop_back();
        if (kept.bytes < bytes) continue;  // it stays allocated, until the context goes: slots seldom grow
        buffer_ = kept;
        return;
      }
    }
    if (library().call.sanitizerAllocHost(launches.context_, &buffer_.memory, bytes) != SANITIZER_SUCCESS) {
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

Launches::Launches(CUcontext context, const Selection& selection, MemoryObjects& objects, const TensorMaps& maps,
                   uint32_t features)
    : context_(context),
      selection_(selection),
      objects_(objects),
      maps_(maps),
      features_(features),
      trace_bytes_(selection.trace ? selection.buffer_bytes / kTraceShare : 0),
      pool_(selection.buffer_bytes, SlotLayout::of({}, features, trace_bytes_).back_bytes) {}

void Launches::lose(int64_t launches, const std::string& why) {
  report_loss("sanitizer", "access_object", launches, why, "--memory-buffer gives more, --sample needs less");
}

// -- A launch begins -------------------------------------------------------------------------------

std::shared_ptr<Launches::Table> Launches::table_for(const std::shared_ptr<const Snapshot>& snapshot) {
  {
    std::lock_guard lock(mutex_);
    // Tensors that come where others were cut memory as they did.
    if (table_ != nullptr && table_->snapshot == snapshot) return table_;
    if (table_ != nullptr && same_ranges(*table_->snapshot, *snapshot)) return table_;
  }
  if (snapshot->pages_left_out) {
    report_loss("sanitizer", "access_object", kNullI64, "pages of very large memory objects are not counted",
                "--memory-buffer gives them room");
  }
  if (snapshot->tensors_left_out) {
    report_loss("sanitizer", "access_object", kNullI64, "accesses to the smallest tensors count for their allocation",
                "--memory measures the 8192 largest tensors that live at a time");
  }
  // Its memory goes back to the free ones when the last launch that uses it was read.
  const auto give_back = [free = free_tables_, mutex = tables_mutex_](Table* table) {
    if (table->memory != nullptr) {
      std::lock_guard lock(*mutex);
      free->push_back({table->memory, table->bytes});
    }
    delete table;
  };
  std::shared_ptr<Table> table(new Table, give_back);
  table->snapshot = snapshot;
  const size_t needed = std::max(snapshot->ranges.size(), kLeastRanges) * sizeof(nvidia::Range);
  {
    std::lock_guard lock(*tables_mutex_);
    const auto fits = std::find_if(free_tables_->begin(), free_tables_->end(),
                                   [needed](const Buffer& buffer) { return buffer.bytes >= needed; });
    if (fits != free_tables_->end()) {
      table->memory = fits->memory;
      table->bytes = fits->bytes;
      free_tables_->erase(fits);
    }
  }
  if (table->memory == nullptr) {
    table->bytes = needed + needed / 2;
    if (library().call.sanitizerAlloc(context_, &table->memory, table->bytes) != SANITIZER_SUCCESS) {
      table->memory = nullptr;
      return nullptr;
    }
  }
  std::lock_guard lock(mutex_);
  table_ = table;
  return table;
}

Slot Launches::take_slot(size_t bytes) {
  size_t wanted = 0;
  std::vector<void*> retired;
  {
    std::lock_guard lock(mutex_);
    if (const Slot slot = pool_.take(bytes); slot.slab != nullptr) return slot;
    wanted = pool_.reserve(bytes);
    if (wanted == 0) {
      retired = pool_.retire(bytes);
      if (!retired.empty()) wanted = pool_.reserve(bytes);
    }
  }
  for (void* memory : retired) library().call.sanitizerFree(context_, memory);
  if (wanted == 0) return {};
  void* memory = nullptr;
  const bool allocated = library().call.sanitizerAlloc(context_, &memory, wanted) == SANITIZER_SUCCESS;
  std::lock_guard lock(mutex_);
  if (!allocated) {
    pool_.cancel(wanted);
    return {};
  }
  pool_.add(memory, wanted);
  return pool_.take(bytes);
}

Slot Launches::slot_for(size_t bytes, Sanitizer_StreamHandle stream) {
  if (const Slot slot = take_slot(bytes); slot.slab != nullptr) return slot;
  // Only this launch's own stream is waited for: another one may be waiting for what this thread does next.
  if (library().call.sanitizerStreamSynchronize(stream) != SANITIZER_SUCCESS) return {};
  complete(&stream);
  harvest(stream, true);
  return take_slot(bytes);
}

bool Launches::upload(Flight& flight) {
  const Functions& call = library().call;
  const Sanitizer_StreamHandle stream = flight.launch.stream;
  Slab& slab = *flight.slot.slab;
  const uint32_t index = flight.slot.index;
  const Snapshot& snapshot = *flight.table->snapshot;
  bool table_ready, fresh;
  nvidia::SlotHeader present;
  {
    std::lock_guard lock(mutex_);
    table_ready = flight.table->complete || flight.table->streams.count(stream) != 0;
    fresh = slab.fresh[index];
    present = slab.headers[index];
  }
  SanitizerResult result = SANITIZER_SUCCESS;
  if (!table_ready && !snapshot.ranges.empty()) {
    result = call.sanitizerMemcpyHostToDeviceAsync(
        flight.table->memory, const_cast<nvidia::Range*>(snapshot.ranges.data()),
        snapshot.ranges.size() * sizeof(nvidia::Range), stream);
  }
  uint8_t *const front = slab.front(index), *const back = slab.back(index);
  if (result == SANITIZER_SUCCESS && fresh) {
    constexpr size_t kKept = SlotLayout::kCleared;
    const size_t back_kept = flight.layout.back_cleared();
    result = call.sanitizerMemset(front + kKept, 0, slab.slot_bytes - kKept, stream);
    if (result == SANITIZER_SUCCESS) {
      result = call.sanitizerMemset(back + back_kept, 0, slab.back_bytes - back_kept, stream);
    }
  }
  nvidia::SlotHeader header =
      flight.layout.header(front, back, static_cast<const nvidia::Range*>(flight.table->memory));
  const bool same = std::memcmp(&header, &present, sizeof(header)) == 0;
  if (result == SANITIZER_SUCCESS && (fresh || !same)) {
    result = call.sanitizerMemcpyHostToDeviceAsync(front, &header, sizeof(header), stream);
  }
  if (result != SANITIZER_SUCCESS) {
    lose(1, "a launch could not be prepared: " + describe(result));
    return false;
  }
  std::lock_guard lock(mutex_);
  flight.table->streams.insert(stream);
  slab.fresh[index] = false;
  slab.headers[index] = header;
  return true;
}

void* Launches::begin(const NewLaunch& launch, uint64_t& token) {
  Flight flight;
  flight.launch = launch;
  flight.snapshot = objects_.snapshot();
  flight.layout = SlotLayout::of(*flight.snapshot, features_, trace_bytes_);
  flight.table = table_for(flight.snapshot);
  if (flight.table == nullptr) {
    lose(1, "no device memory for the table of memory objects");
    return nullptr;
  }
  flight.slot = slot_for(flight.layout.bytes, launch.stream);
  if (flight.slot.slab == nullptr) {
    lose(1, "no room for the results of a launch");
    return nullptr;
  }
  if (!upload(flight)) {
    std::lock_guard lock(mutex_);
    flight.slot.slab->fresh[flight.slot.index] = true;
    pool_.give(flight.slot);
    return nullptr;
  }
  token = g_tokens.fetch_add(1, std::memory_order_relaxed);
  void* const header = flight.slot.slab->front(flight.slot.index);
  std::lock_guard lock(mutex_);
  in_flight_.emplace(token, std::move(flight));
  return header;
}

void Launches::launched(uint64_t token) {
  std::lock_guard lock(mutex_);
  const auto flight = in_flight_.find(token);
  if (flight != in_flight_.end()) flight->second.launched = true;
}

// -- Launches end ----------------------------------------------------------------------------------

// Those of one stream, or of all when it is null.
void Launches::complete(const Sanitizer_StreamHandle* stream) {
  std::lock_guard lock(mutex_);
  for (auto flight = in_flight_.begin(); flight != in_flight_.end();) {
    const bool here = stream == nullptr || flight->second.launch.stream == *stream;
    if (!here || !flight->second.launched) {
      ++flight;
      continue;
    }
    flight->second.table->complete = true;
    complete_.push_back(std::move(flight->second));
    flight = in_flight_.erase(flight);
  }
}

void Launches::synchronized(Sanitizer_StreamHandle stream) {
  complete(&stream);
  harvest(stream, false);
}

void Launches::context_synchronized() {
  complete(nullptr);
  Sanitizer_StreamHandle stream = nullptr;
  if (library().call.sanitizerGetStreamHandle(context_, nullptr, &stream) == SANITIZER_SUCCESS) harvest(stream, false);
}

void Launches::stream_destroyed(Sanitizer_StreamHandle stream) {
  std::lock_guard lock(mutex_);
  for (auto& [token, flight] : in_flight_) {
    if (flight.launch.stream == stream) flight.launch.stream = kNoStream;
  }
  if (table_ != nullptr) table_->streams.erase(stream);
}

void Launches::finish() {
  make_current(context_);
  wait_and_read();
}

void Launches::wait_and_read() {
  std::set<Sanitizer_StreamHandle> streams;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [token, flight] : in_flight_) streams.insert(flight.launch.stream);
  }
  Sanitizer_StreamHandle any = nullptr;
  SanitizerResult result = library().call.sanitizerGetStreamHandle(context_, nullptr, &any);
  for (const Sanitizer_StreamHandle stream : streams) {
    if (result == SANITIZER_SUCCESS) {
      result = library().call.sanitizerStreamSynchronize(stream == kNoStream ? any : stream);
    }
    complete(&stream);
  }
  harvest(any, true);  // where a kernel faulted, this fails too, and says so
}

void Launches::context_destroyed() {
  wait_and_read();  // as the destruction itself would
  std::lock_guard lock(mutex_);
  if (!in_flight_.empty()) {
    lose(static_cast<int64_t>(in_flight_.size()), "the context was destroyed before these launches ended");
  }
  in_flight_.clear();  // all device memory goes with the context
}

// -- Reading slots ---------------------------------------------------------------------------------

void Launches::harvest(Sanitizer_StreamHandle stream, bool now) {
  std::vector<Flight> flights;
  {
    std::lock_guard lock(mutex_);
    const int64_t time = now_ns();
    if (complete_.empty()) return;
    if (!now && complete_.size() < kBatch && time - harvested_ns_ < kMaxAgeNs) return;
    harvested_ns_ = time;
    flights.swap(complete_);
  }
  read(flights, stream);
  std::lock_guard lock(mutex_);
  for (const Flight& flight : flights) pool_.give(flight.slot);
}

void Launches::read(std::vector<Flight>& flights, Sanitizer_StreamHandle stream) {
  std::sort(flights.begin(), flights.end(), [](const Flight& a, const Flight& b) {
    return std::pair(a.slot.slab->memory, a.slot.index) < std::pair(b.slot.slab->memory, b.slot.index);
  });
  size_t largest = kStagingBytes;
  for (const Flight& flight : flights) largest = std::max(largest, flight.slot.slab->slot_bytes);
  Staging staging(*this, largest + flights[0].slot.slab->back_bytes);
  for (size_t first = 0; first < flights.size();) {
    first += read_run(flights, first, stream, staging.data(), staging.data() + largest);
  }
  library().call.sanitizerStreamSynchronize(stream);  // of the zeroing: the slots may go to any stream next
}

// Reads neighbouring fronts with one copy. Returns how many.
size_t Launches::read_run(std::vector<Flight>& flights, size_t first, Sanitizer_StreamHandle stream,
                          uint8_t* fronts, uint8_t* back) {
  const Functions& call = library().call;
  const Slot slot = flights[first].slot;
  const size_t slot_bytes = slot.slab->slot_bytes;
  size_t count = 1;
  while (first + count < flights.size() && (count + 1) * slot_bytes <= kStagingBytes &&
         flights[first + count].slot.slab == slot.slab && flights[first + count].slot.index == slot.index + count) {
    ++count;
  }
  const size_t bytes = (count - 1) * slot_bytes + flights[first + count - 1].layout.bytes;
  SanitizerResult result = call.sanitizerMemcpyDeviceToHost(fronts, slot.slab->front(slot.index), bytes, stream);
  if (result != SANITIZER_SUCCESS) {
    lose(static_cast<int64_t>(count), "results could not be read: " + describe(result));
  }
  for (size_t i = 0; i < count && result == SANITIZER_SUCCESS; ++i) {
    const Flight& flight = flights[first + i];
    uint8_t* const front = fronts + i * slot_bytes;
    const auto& totals = *reinterpret_cast<const nvidia::Totals*>(front + flight.layout.totals);
    const bool used = totals.back_used != 0 || totals.trace_wanted != 0;
    if (used) result = read_back(flight, totals, stream, back);
    if (result == SANITIZER_SUCCESS) {
      emit(flight, front, used ? back : nullptr);
      result = clear(flight, used, stream);
    } else {
      lose(1, "results could not be read: " + describe(result));
    }
  }
  if (result != SANITIZER_SUCCESS) {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count; ++i) slot.slab->fresh[slot.index + i] = true;
  }
  return count;
}

// The back of a slot whose front was read, and as much of the trace as was written.
SanitizerResult Launches::read_back(const Flight& flight, const nvidia::Totals& totals, Sanitizer_StreamHandle stream,
                                    uint8_t* to) {
  const auto copy = library().call.sanitizerMemcpyDeviceToHost;
  uint8_t* const back = flight.slot.slab->back(flight.slot.index);
  const size_t kept = flight.layout.back_cleared();
  const uint64_t records = std::min<uint64_t>(totals.trace_wanted, flight.layout.trace_capacity);
  SanitizerResult result = copy(to + kept, back + kept, flight.layout.back_bytes - kept, stream);
  if (result != SANITIZER_SUCCESS || records == 0) return result;
  return copy(to, back, records * sizeof(nvidia::TraceRecord), stream);
}

SanitizerResult Launches::clear(const Flight& flight, bool back_too, Sanitizer_StreamHandle stream) {
  const auto fill = library().call.sanitizerMemset;
  const SlotLayout& layout = flight.layout;
  const Slab& slab = *flight.slot.slab;
  constexpr size_t kKept = SlotLayout::kCleared;
  const SanitizerResult result = fill(slab.front(flight.slot.index) + kKept, 0, layout.bytes - kKept, stream);
  if (result != SANITIZER_SUCCESS || !back_too) return result;
  const size_t back_kept = layout.back_cleared();
  return fill(slab.back(flight.slot.index) + back_kept, 0, layout.back_bytes - back_kept, stream);
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

void Launches::emit(const Flight& flight, uint8_t* front, uint8_t* back) {
  DecodedSlot decoded = decode_slot(front, back, flight.layout, *flight.snapshot, maps_, flight.launch.launch_id,
                                    flight.launch.queued_ns);
  for (const AccessObjectRecord& row : decoded.objects) pasta::emit(row);
  for (const AccessBlockRecord& row : decoded.blocks) pasta::emit(row);
  for (SiteRow& site : decoded.sites) {
    site.row.site_id = site_id(flight.launch.kernel, site.pc);
    pasta::emit(site.row);
  }
  for (AccessRow& access : decoded.accesses) {
    access.row.site_id = site_id(flight.launch.kernel, access.pc);
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
}

}  // namespace pasta::sanitizer
