#include "backends/sanitizer/launches.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

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
constexpr size_t kTraceShare = 10;  // of the memory for results: that each of so many launches may have for its trace

constexpr size_t kMostCopied = size_t{64} << 20;  // of slots, until they are decoded

std::atomic<uint64_t> g_tokens{1};

}  // namespace

Launches::Launches(CUcontext context, const Selection& selection, MemoryObjects& objects, const TensorMaps& maps,
                   uint32_t features)
    : context_(context),
      selection_(selection),
      objects_(objects),
      maps_(maps),
      features_(features),
      trace_bytes_(selection.trace ? selection.buffer_bytes / kTraceShare : 0),
      pool_(selection.buffer_bytes),
      decoding_(kMostCopied) {}

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

// With mutex_ held: for copies, as freeing it might wait for the device.
void Launches::keep(const Buffer& image) {
  if (image.memory != nullptr) staging_.push_back(image);
}

// As long as there is memory for it, what launches left in their slots is kept for the next like them.
Slot Launches::take_slot(const Flight& flight) {
  const SlotSizes& sizes = flight.layout.bytes;
  const Hinted own = flight.hinted();
  size_t wanted = 0;
  std::vector<SlotPool::Retired> retired;
  {
    std::lock_guard lock(mutex_);
    if (const Slot slot = pool_.take(sizes, own); slot.slab != nullptr) return slot;
    wanted = pool_.reserve(sizes);
    if (wanted == 0) {
      for (const Buffer& image : pool_.recut(sizes)) keep(image);
      retired = pool_.retire(sizes);
      if (!retired.empty()) wanted = pool_.reserve(sizes);
      for (const SlotPool::Retired& slab : retired) keep(slab.image);
    }
  }
  for (const SlotPool::Retired& slab : retired) library().call.sanitizerFree(context_, slab.memory);
  void* memory = nullptr;
  const bool allocated =
      wanted != 0 && library().call.sanitizerAlloc(context_, &memory, wanted) == SANITIZER_SUCCESS;
  std::lock_guard lock(mutex_);
  if (allocated) pool_.add(memory, wanted);
  else pool_.cancel(wanted);
  return pool_.take(sizes, own, true);
}

// Without a free slot the launch waits for what is in its stream, without bound, as the driver itself lets a launch
// wait that finds a stream's queue full. Only its own stream is waited for: another one may be waiting for what this
// thread does next.
Slot Launches::slot_for(const Flight& flight) {
  if (const Slot slot = take_slot(flight); slot.slab != nullptr) return slot;
  const Sanitizer_StreamHandle stream = flight.launch.stream;
  if (library().call.sanitizerStreamSynchronize(stream) != SANITIZER_SUCCESS) return {};
  complete(&stream);
  harvest(stream, true);
  return take_slot(flight);
}

// A slot that was never used, or could not be cleared.
SanitizerResult Launches::clean(const Flight& flight) {
  const SlotParts at = flight.slot.parts();
  const SlotSizes& bytes = flight.slot.slab->of_slot;
  constexpr size_t kKept = SlotLayout::kHintsAt;
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

// Those that are of other ranges, or of another kernel: they would leave no room for new ones.
SanitizerResult Launches::forget_hints(const Flight& flight) {
  constexpr size_t kHintsAt = SlotLayout::kHintsAt;
  return library().call.sanitizerMemset(flight.slot.parts().front + kHintsAt, 0, flight.layout.cleared() - kHintsAt,
                                        flight.launch.stream);
}

// What the slot does not have yet.
SanitizerResult Launches::upload_header(const Flight& flight) {
  Slab& slab = *flight.slot.slab;
  const uint32_t index = flight.slot.index;
  const SlotParts at = flight.slot.parts();
  nvidia::SlotHeader header = flight.layout.header(at, static_cast<const nvidia::Range*>(flight.table->memory));
  bool fresh, hinted;
  {
    std::lock_guard lock(mutex_);
    fresh = slab.fresh[index];
    const Hinted own = flight.hinted();
    hinted = std::exchange(slab.hinted[index], own) == own;
  }
  const bool same = !fresh && std::memcmp(&header, &slab.headers[index], sizeof(header)) == 0;
  if (same && hinted) return SANITIZER_SUCCESS;
  SanitizerResult result = SANITIZER_SUCCESS;
  if (fresh) result = clean(flight);
  else if (!hinted) result = forget_hints(flight);
  if (result == SANITIZER_SUCCESS && !same) {
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
  flight.slot = slot_for(flight);
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
  decoding_.finish();
}

void Launches::context_destroyed() {
  wait_and_read();  // as the destruction itself would
  std::lock_guard lock(mutex_);
  if (!in_flight_.empty()) {
    lose(static_cast<int64_t>(in_flight_.size()), "the context was destroyed before these launches ended");
  }
  in_flight_.clear();  // all device memory goes with the context
}

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

}  // namespace pasta::sanitizer
