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
constexpr size_t kStagingBytes = size_t{8} << 20, kLeastStaging = size_t{256} << 10;
// Up to this size a clean front is copied to the device, together with its neighbours: the bus takes less time for it
// than a call.
constexpr size_t kMostOfImage = size_t{128} << 10;
constexpr size_t kTraceShare = 10;    // of the memory for results: that each of so many launches may have for its trace

// A launch may keep more accesses than the session's buffer holds: from time to time they are written first.
constexpr uint64_t kAccessesAtOnce = 1 << 12;
constexpr int64_t kDrainNs = 2'000'000'000;

std::atomic<uint64_t> g_tokens{1};

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

Launches::Launches(CUcontext context, const Selection& selection, MemoryObjects& objects, const TensorMaps& maps,
                   uint32_t features)
    : context_(context),
      selection_(selection),
      objects_(objects),
      maps_(maps),
      features_(features),
      trace_bytes_(selection.trace ? selection.buffer_bytes / kTraceShare : 0),
      pool_(selection.buffer_bytes) {}

void Launches::lose(int64_t launches, const std::string& why) {
  report_loss("sanitizer", "access_object", launches, why, "--memory-buffer gives more, --sample needs less");
}

// -- A launch begins -------------------------------------------------------------------------------

std::shared_ptr<Launches::Table> Launches::new_table(uint32_t capacity) {
  // Its memory goes back to the free ones when the last launch that uses it was read.
  const auto give_back = [free = free_tables_, mutex = tables_mutex_](Table* table) {
    if (table->memory != nullptr) {
      std::lock_guard lock(*mutex);
      free->push_back({table->memory, table->capacity * sizeof(nvidia::Range)});
    }
    delete table;
  };
  std::shared_ptr<Table> table(new Table, give_back);
  table->capacity = capacity;
  const size_t bytes = capacity * sizeof(nvidia::Range);
  {
    std::lock_guard lock(*tables_mutex_);
    const auto fits = std::find_if(free_tables_->begin(), free_tables_->end(),
                                   [bytes](const Buffer& buffer) { return buffer.bytes >= bytes; });
    if (fits != free_tables_->end()) {
      table->memory = fits->memory;
      table->capacity = static_cast<uint32_t>(fits->bytes / sizeof(nvidia::Range));
      free_tables_->erase(fits);
      return table;
    }
  }
  if (library().call.sanitizerAlloc(context_, &table->memory, bytes) == SANITIZER_SUCCESS) return table;
  table->memory = nullptr;
  return nullptr;
}

// The stream's table, which is to be that of `cuts`; one launch more is expected to use it.
std::shared_ptr<Launches::Table> Launches::table_for(const std::shared_ptr<const Cuts>& cuts, uint32_t capacity,
                                                     Sanitizer_StreamHandle stream) {
  const auto take = [&](const std::shared_ptr<Table>& table) {  // with mutex_ held
    if (table->cuts != cuts) table->cuts = cuts, table->ready = false;
    ++table->expected;
    return table;
  };
  {
    std::lock_guard lock(mutex_);
    const std::shared_ptr<Table>& present = tables_[stream];
    if (present != nullptr && (present->cuts == cuts || (present->expected == 0 && present->capacity >= capacity))) {
      return take(present);
    }
  }
  std::shared_ptr<Table> table = new_table(capacity);
  if (table == nullptr) return nullptr;
  std::lock_guard lock(mutex_);
  tables_[stream] = table;
  return take(table);
}

Slot Launches::take_slot(const SlotSizes& sizes) {
  size_t wanted = 0;
  std::vector<SlotPool::Retired> retired;
  {
    std::lock_guard lock(mutex_);
    if (const Slot slot = pool_.take(sizes); slot.slab != nullptr) return slot;
    wanted = pool_.reserve(sizes);
    if (wanted == 0) {
      retired = pool_.retire(sizes);
      if (!retired.empty()) wanted = pool_.reserve(sizes);
    }
  }
  for (const SlotPool::Retired& slab : retired) {
    library().call.sanitizerFree(context_, slab.memory);
    if (slab.image != nullptr) library().call.sanitizerFreeHost(context_, slab.image);
  }
  if (wanted == 0) return {};
  void* memory = nullptr;
  const bool allocated = library().call.sanitizerAlloc(context_, &memory, wanted) == SANITIZER_SUCCESS;
  std::lock_guard lock(mutex_);
  if (!allocated) {
    pool_.cancel(wanted);
    return {};
  }
  pool_.add(memory, wanted);
  return pool_.take(sizes);
}

// Without a free slot the launch waits for what is in its stream, without bound, as the driver itself lets a launch
// wait that finds a stream's queue full. Only its own stream is waited for: another one may be waiting for what this
// thread does next.
Slot Launches::slot_for(const SlotSizes& sizes, Sanitizer_StreamHandle stream) {
  if (const Slot slot = take_slot(sizes); slot.slab != nullptr) return slot;
  if (library().call.sanitizerStreamSynchronize(stream) != SANITIZER_SUCCESS) return {};
  complete(&stream);
  harvest(stream, true);
  return take_slot(sizes);
}

// A slot that was never used, or could not be cleared.
SanitizerResult Launches::clean(const Flight& flight) {
  const SlotParts at = flight.slot.parts();
  const SlotSizes& bytes = flight.slot.slab->of_slot;
  constexpr size_t kKept = SlotLayout::kCleared;
  SanitizerResult result = SANITIZER_SUCCESS;
  for (const auto& [part, size] : {std::pair(at.front + kKept, bytes.front - kKept), std::pair(at.marks, bytes.marks),
                                   std::pair(at.tables, bytes.tables), std::pair(at.objects, bytes.objects)}) {
    if (result == SANITIZER_SUCCESS) result = library().call.sanitizerMemset(part, 0, size, flight.launch.stream);
  }
  return result;
}

// What of the table is not in it yet.
SanitizerResult Launches::upload_table(const Flight& flight) {
  Table& table = *flight.table;
  const Cuts& cuts = *flight.snapshot->cuts;
  std::vector<nvidia::Range> content;
  size_t first = 0;
  {
    std::lock_guard lock(mutex_);
    if (table.ready) return SANITIZER_SUCCESS;
    content.reserve(flight.layout.range_count);
    content = cuts.ranges;
    content.resize(flight.layout.range_count, kNoRange);
    const size_t both = std::min(content.size(), table.content.size());
    const auto is_same = [&](size_t i) { return std::memcmp(&content[i], &table.content[i], sizeof(content[i])) == 0; };
    while (first < both && is_same(first)) ++first;
  }
  if (cuts.pages_left_out) {
    report_loss("sanitizer", "access_object", kNullI64, "pages of very large memory objects are not counted",
                "--memory-buffer gives them room");
  }
  if (cuts.tensors_left_out) {
    report_loss("sanitizer", "access_object", kNullI64, "accesses to the smallest tensors count for their allocation",
                "--memory measures the 8192 largest tensors that live at a time");
  }
  SanitizerResult result = SANITIZER_SUCCESS;
  if (first < content.size()) {
    result = library().call.sanitizerMemcpyHostToDeviceAsync(
        static_cast<nvidia::Range*>(table.memory) + first, content.data() + first,
        (content.size() - first) * sizeof(nvidia::Range), flight.launch.stream);
  }
  std::lock_guard lock(mutex_);
  table.ready = result == SANITIZER_SUCCESS;
  table.content = table.ready ? std::move(content) : std::vector<nvidia::Range>();
  return result;
}

// What the slot does not have yet.
SanitizerResult Launches::upload_header(const Flight& flight) {
  Slab& slab = *flight.slot.slab;
  const uint32_t index = flight.slot.index;
  const SlotParts at = flight.slot.parts();
  nvidia::SlotHeader header = flight.layout.header(at, static_cast<const nvidia::Range*>(flight.table->memory));
  bool fresh;
  {
    std::lock_guard lock(mutex_);
    fresh = slab.fresh[index];
  }
  if (!fresh && std::memcmp(&header, &slab.headers[index], sizeof(header)) == 0) return SANITIZER_SUCCESS;
  SanitizerResult result = fresh ? clean(flight) : SANITIZER_SUCCESS;
  if (result == SANITIZER_SUCCESS) {
    result = library().call.sanitizerMemcpyHostToDeviceAsync(at.front, &header, sizeof(header), flight.launch.stream);
  }
  slab.headers[index] = header;  // its launch has the slot for itself
  std::lock_guard lock(mutex_);
  slab.fresh[index] = result != SANITIZER_SUCCESS;
  return result;
}

bool Launches::prepare(Flight& flight) {
  flight.table = table_for(flight.snapshot->cuts, flight.layout.range_count, flight.launch.stream);
  if (flight.table == nullptr) {
    lose(1, "no device memory for the table of memory objects");
    return false;
  }
  flight.slot = slot_for(flight.layout.bytes, flight.launch.stream);
  if (flight.slot.slab == nullptr) {
    lose(1, "no room for the results of a launch");
    return false;
  }
  SanitizerResult result = upload_table(flight);
  if (result == SANITIZER_SUCCESS) result = upload_header(flight);
  if (result != SANITIZER_SUCCESS) lose(1, "a launch could not be prepared: " + describe(result));
  return result == SANITIZER_SUCCESS;
}

void* Launches::begin(const NewLaunch& launch, uint64_t& token) {
  Flight flight;
  flight.launch = launch;
  flight.snapshot = objects_.snapshot();
  flight.layout = SlotLayout::of(*flight.snapshot->cuts, features_, trace_bytes_);
  const bool prepared = prepare(flight);
  std::lock_guard lock(mutex_);
  if (!prepared) {
    if (flight.table != nullptr) --flight.table->expected;
    if (flight.slot.slab != nullptr) pool_.give(flight.slot);
    return nullptr;
  }
  token = g_tokens.fetch_add(1, std::memory_order_relaxed);
  void* const header = flight.slot.parts().front;
  in_flight_.emplace_hint(in_flight_.end(), token, std::move(flight));
  return header;
}

void Launches::launched(uint64_t token) {
  std::lock_guard lock(mutex_);
  const auto flight = in_flight_.find(token);
  if (flight == in_flight_.end() || flight->second.launched) return;
  flight->second.launched = true;
  --flight->second.table->expected;
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
  tables_.erase(stream);  // another stream may get its handle
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
  size_t bytes() const { return count_ * bytes_of_one() + slab_.of_slot.objects + slab_.of_slot.trace; }

  // Everything by way of `staging`: copied, cleared, decoded.
  SanitizerResult read(uint8_t* staging) {
    place(staging);
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
    if (result != SANITIZER_SUCCESS) {
      launches_.lose(static_cast<int64_t>(count_), "results could not be read: " + describe(result));
      return result;
    }
    for (size_t i = 0; i < count_; ++i) {
      const SanitizerResult of_one = read_one(i);
      if (result == SANITIZER_SUCCESS) result = of_one;
    }
    return result == SANITIZER_SUCCESS ? clear_fronts() : result;
  }

 private:
  static bool follows(const Slot& slot, const Slot& next) {
    return next.slab == slot.slab && next.index == slot.index + 1;
  }
  size_t bytes_of_one() const { return slab_.of_slot.front + slab_.of_slot.marks + slab_.of_slot.tables; }
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
    host_.objects = host_.tables + count_ * slab_.of_slot.tables;
    host_.trace = host_.objects + slab_.of_slot.objects;
  }

  // What few launches use is read for each.
  SanitizerResult read_one(size_t i) {
    const Flight& flight = flights_[i];
    const SlotSizes& each = slab_.of_slot;
    SlotParts parts;
    parts.front = host_.front + i * each.front;
    parts.marks = host_.marks + i * each.marks;
    if (totals(i).tables_used != 0) parts.tables = host_.tables + i * each.tables;
    SanitizerResult result = SANITIZER_SUCCESS;
    if (totals(i).objects_used != 0) {
      parts.objects = host_.objects;
      result = copy(host_.objects, device(i).objects, flight.layout.bytes.objects);
      if (result == SANITIZER_SUCCESS) result = clear(device(i).objects, flight.layout.bytes.objects);
    }
    if (const uint64_t wanted = totals(i).trace_wanted; result == SANITIZER_SUCCESS && wanted != 0) {
      parts.trace = host_.trace;
      const uint64_t records = std::min<uint64_t>(wanted, flight.layout.trace_capacity);
      result = copy(host_.trace, device(i).trace, records * sizeof(nvidia::TraceRecord));
    }
    if (result == SANITIZER_SUCCESS) launches_.emit(flight, parts);
    else launches_.lose(1, "results could not be read: " + describe(result));
    return result;
  }

  SanitizerResult clear_fronts() {
    const size_t each = slab_.of_slot.front;
    uint8_t* const image = launches_.image_of(slab_);
    if (image != nullptr) {
      const uint32_t index = flights_[0].slot.index;
      for (size_t i = 0; i < count_; ++i) {
        std::memcpy(image + (index + i) * each, &slab_.headers[index + i], sizeof(nvidia::SlotHeader));
      }
      const size_t bytes = (count_ - 1) * each + flights_[count_ - 1].layout.bytes.front;
      return library().call.sanitizerMemcpyHostToDeviceAsync(device(0).front, image + index * each, bytes, stream_);
    }
    constexpr size_t kKept = SlotLayout::kCleared;
    SanitizerResult result = SANITIZER_SUCCESS;
    for (size_t i = 0; i < count_ && result == SANITIZER_SUCCESS; ++i) {
      result = clear(device(i).front + kKept, flights_[i].layout.bytes.front - kKept);
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
  std::vector<Run> runs;
  size_t bytes = 0;
  for (size_t first = 0; first < flights.size(); first += runs.back().count()) {
    runs.emplace_back(*this, flights, first, stream);
    bytes = std::max(bytes, runs.back().bytes());
  }
  Staging staging(*this, bytes);
  size_t first = 0;
  for (Run& run : runs) {
    const bool clean = run.read(staging.data()) == SANITIZER_SUCCESS;
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

void Launches::emit(const Flight& flight, const SlotParts& slot) {
  DecodedSlot decoded =
      decode_slot(slot, flight.layout, *flight.snapshot, maps_, flight.launch.launch_id, flight.launch.queued_ns);
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
