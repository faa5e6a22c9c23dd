#include "backends/cupti/collector.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "backends/cupti/client.h"
#include "backends/cupti/library.h"
#include "session/background_thread.h"
#include "session/session.h"

namespace pasta::cupti {

// CUPTI's three ways to call us.
struct BufferCallbacks {
  static void CUPTIAPI requested(uint8_t** buffer, size_t* bytes, size_t* max_records) {
    *max_records = 0;
    *buffer = Collector::instance().buffers_->take();
    *bytes = *buffer == nullptr ? 0 : ActivityBuffers::kBufferBytes;
  }

  static void CUPTIAPI completed(CUcontext context, uint32_t stream, uint8_t* buffer, size_t, size_t valid_bytes) {
    if (buffer == nullptr) return;
    Client::instance().deliver(context, stream, buffer, valid_bytes);
    Collector::instance().buffers_->push({buffer, valid_bytes, context, stream});
  }

  static void CUPTIAPI callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                const void* data) {
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) Collector::instance().on_resource(id, data);
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API) Collector::instance().on_driver_call(id, data);
    Client::instance().forward(domain, id, data);
  }
};

namespace {

// What the gate opens and closes. CUPTI decides at launch, so that what is launched while the gate is open is
// recorded whenever it ends.
constexpr CUpti_ActivityKind kGated[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_GRAPH_TRACE};
// Identity, and where memory is, whenever recording.
constexpr CUpti_ActivityKind kAlways[] = {CUPTI_ACTIVITY_KIND_DEVICE, CUPTI_ACTIVITY_KIND_CONTEXT,
                                          CUPTI_ACTIVITY_KIND_STREAM, CUPTI_ACTIVITY_KIND_MEMORY2};
// A killed program loses what CUPTI holds back; it gives up full buffers this often.
constexpr uint32_t kFlushPeriodMs = 250;
// When it gave none for so long, it is asked for the others, and the decoder for the calls that it holds.
constexpr std::chrono::milliseconds kIdle(500);
// A harvest may be the last: what is left of the process then is not the time to call CUPTI.
constexpr int64_t kQuietNs = 2'000'000'000;

TableId table_of(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return TableId::kernel;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return TableId::memcpy;
    case CUPTI_ACTIVITY_KIND_MEMSET: return TableId::memset;
    case CUPTI_ACTIVITY_KIND_MEMORY2: return TableId::alloc;
    default: return TableId::process;
  }
}

struct Callback {
  CUpti_CallbackDomain domain;
  CUpti_CallbackId id;
};
constexpr Callback kCallbacks[] = {{CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED},
                                   {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuProfilerStart},
                                   {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuProfilerStop}};

const Backend kBackend = {
    "cupti",
    "run on NVIDIA H200 (driver 580, CUDA 13.0)",
    [](int64_t deadline_ns) { Collector::instance().harvest(deadline_ns); },
    [] { Collector::instance().forget(); },
    [](bool) { Collector::instance().set_collecting(counting_launches()); },
};

}  // namespace

Collector& Collector::instance() {
  static Collector* const collector = new Collector;
  return *collector;
}

void Collector::fail(const char* table, const std::string& why, const char* remedy) {
  report_loss("cupti", table, kNullI64, why, remedy);
  if (told_.exchange(true)) return;
  const char* what = *table == '\0' ? "CUDA" : table;
  std::fprintf(stderr, "pasta: %s is not recorded: %s; %s\n", what, why.c_str(), remedy);
}

bool Collector::start() {
  if (active() || !ensure_session()) return active();
  const Library& cupti = library();
  if (!cupti.error.empty()) {
    fail("", cupti.error, "install it (pip install nvidia-cuda-cupti) or set PASTA_CUPTI_PATH");
    return false;
  }
  buffers_ = std::make_unique<ActivityBuffers>(buffer_bytes());
  CUptiResult result = cupti.call.cuptiSubscribe(&subscriber_, BufferCallbacks::callback, nullptr);
  if (result == CUPTI_SUCCESS) {
    result = cupti.call.cuptiActivityRegisterCallbacks(BufferCallbacks::requested, BufferCallbacks::completed);
  }
  if (result != CUPTI_SUCCESS) {
    fail("", describe(result), remedy(result));
    return false;
  }
  enable_callbacks();
  // OS thread ids, as everywhere in a trace, instead of pthread handles.
  if (cupti.call.cuptiSetThreadIdType != nullptr) {
    cupti.call.cuptiSetThreadIdType(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
  }
  enable_latency_timestamps();
  if (cupti.call.cuptiActivityFlushPeriod != nullptr) cupti.call.cuptiActivityFlushPeriod(kFlushPeriodMs);
  clock_.begin = clock_.end = read_clock();

  if (const std::string error = start_background_thread("pasta-cupti", [this] { run_decoder(); }); !error.empty()) {
    fail("", error, "raise the limit of threads");
    return false;
  }

  active_.store(true, std::memory_order_release);
  for (const CUpti_ActivityKind kind : kAlways) enable(kind, true);
  register_backend(kBackend);
  set_collecting(counting_launches());
  return true;
}

// CUPTI takes this only before CUDA is initialised, for the whole run.
void Collector::enable_latency_timestamps() {
  if (!traces_latency_timestamps() || !traces(TableId::kernel)) return;
  const auto enable_timestamps = library().call.cuptiActivityEnableLatencyTimestamps;
  const CUptiResult result = enable_timestamps == nullptr ? CUPTI_ERROR_NOT_SUPPORTED : enable_timestamps(1);
  if (result == CUPTI_SUCCESS) return;
  report_loss("cupti", "kernel", kNullI64, "times of queueing and submission are not taken: " + describe(result),
              remedy(result));
}

void Collector::enable(CUpti_ActivityKind kind, bool on) {
  if (!traces(table_of(kind))) return;
  std::lock_guard lock(mutex_);
  if (on == (ours_.count(kind) != 0)) return;
  if (on) ours_.insert(kind);
  else ours_.erase(kind);
  if (Client::instance().wants(kind)) return;
  const auto call = on ? library().call.cuptiActivityEnable : library().call.cuptiActivityDisable;
  const CUptiResult result = call(kind);
  if (result != CUPTI_SUCCESS && on) {
    fail(table_info(static_cast<uint16_t>(table_of(kind)))->name, describe(result), remedy(result));
  }
}

void Collector::enable_calls(bool on) {
  if (!traces(TableId::api) && !traces(TableId::sync)) return;
  std::lock_guard lock(mutex_);
  calls_on_ = on;
  const Functions& call = library().call;
  struct Domain {
    CUpti_CallbackDomain domain;
    CUpti_ActivityKind kind;
    decltype(call.cuptiActivityEnableRuntimeApi) enable_one;
  };
  const Domain domains[] = {
      {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_ACTIVITY_KIND_RUNTIME, call.cuptiActivityEnableRuntimeApi},
      {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_ACTIVITY_KIND_DRIVER, call.cuptiActivityEnableDriverApi}};
  for (const Domain& domain : domains) {
    if (Client::instance().wants(domain.kind)) continue;
    if (traces_all_api() || domain.enable_one == nullptr) {
      (on ? call.cuptiActivityEnable : call.cuptiActivityDisable)(domain.kind);
      continue;
    }
    // By name, so that calls of libraries newer than our headers count too. The list ends where names end.
    const char* name = nullptr;
    for (CUpti_CallbackId id = 1; call.cuptiGetCallbackName(domain.domain, id, &name) == CUPTI_SUCCESS; ++id) {
      if (name == nullptr || !is_selected_call(name)) continue;
      if (on || !Client::instance().wants_call(domain.kind, id)) domain.enable_one(id, on ? 1 : 0);
    }
  }
}

bool Collector::is_ours(CUpti_ActivityKind kind, CUpti_CallbackId id) {
  const auto domain = kind == CUPTI_ACTIVITY_KIND_DRIVER ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
  const char* name = nullptr;
  library().call.cuptiGetCallbackName(domain, id, &name);
  std::lock_guard lock(mutex_);
  return calls_on_ && (traces_all_api() || (name != nullptr && is_selected_call(name)));
}

void Collector::set_collecting(bool on) {
  if (!active()) return;
  for (const CUpti_ActivityKind kind : kGated) {
    // Enabling records of whole graphs ends those of their nodes.
    if (kind != CUPTI_ACTIVITY_KIND_GRAPH_TRACE || traces_whole_graphs()) enable(kind, on);
  }
  enable_calls(on);
}

CUptiResult Collector::client_changed(CUpti_ActivityKind kind, bool wanted) {
  const Functions& call = library().call;
  // What is in CUPTI's buffers was recorded before the client asked for it.
  if (wanted && !Client::instance().wants(kind)) call.cuptiActivityFlushAll(0);
  Client::instance().want(kind, wanted);
  bool ours;
  {
    std::lock_guard lock(mutex_);
    ours = ours_.count(kind) != 0;
  }
  if (wanted) return call.cuptiActivityEnable(kind);
  const bool is_calls = kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER;
  if (is_calls && keep_only_our_calls(kind)) return CUPTI_SUCCESS;
  return ours ? CUPTI_SUCCESS : call.cuptiActivityDisable(kind);
}

// After cuptiActivityDisable of a kind of calls, enabling single calls has no effect (measured, CUPTI 13.0). So
// the kind stays enabled and the calls that are not ours are switched off one by one.
bool Collector::keep_only_our_calls(CUpti_ActivityKind kind) {
  const Functions& call = library().call;
  const bool driver = kind == CUPTI_ACTIVITY_KIND_DRIVER;
  const auto enable_one = driver ? call.cuptiActivityEnableDriverApi : call.cuptiActivityEnableRuntimeApi;
  const auto domain = driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
  std::lock_guard lock(mutex_);
  if (!calls_on_ || enable_one == nullptr) return false;
  if (traces_all_api()) return true;
  const char* name = nullptr;
  for (CUpti_CallbackId id = 1; call.cuptiGetCallbackName(domain, id, &name) == CUPTI_SUCCESS; ++id) {
    enable_one(id, name != nullptr && is_selected_call(name) ? 1 : 0);
  }
  return true;
}

CUptiResult Collector::client_changed_call(CUpti_ActivityKind kind, CUpti_CallbackId id, bool wanted) {
  Client::instance().want_call(kind, id, wanted);
  if (!wanted && is_ours(kind, id)) return CUPTI_SUCCESS;
  const Functions& call = library().call;
  const auto enable = kind == CUPTI_ACTIVITY_KIND_DRIVER ? call.cuptiActivityEnableDriverApi
                                                         : call.cuptiActivityEnableRuntimeApi;
  return enable == nullptr ? CUPTI_ERROR_NOT_SUPPORTED : enable(id, wanted ? 1 : 0);
}

bool Collector::needs_callback(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  for (const Callback& callback : kCallbacks) {
    if (callback.domain != domain || callback.id != id) continue;
    return domain != CUPTI_CB_DOMAIN_DRIVER_API || captures_profiler_range();
  }
  return false;
}

void Collector::enable_callbacks() {
  for (const Callback& callback : kCallbacks) {
    if (!needs_callback(callback.domain, callback.id)) continue;
    library().call.cuptiEnableCallback(1, subscriber_, callback.domain, callback.id);
  }
}

void Collector::on_driver_call(CUpti_CallbackId id, const void* data) {
  if (!captures_profiler_range()) return;  // the program's own callbacks
  const auto site = static_cast<const CUpti_CallbackData*>(data)->callbackSite;
  if (id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStart && site == CUPTI_API_EXIT) collection_start();
  if (id == CUPTI_DRIVER_TRACE_CBID_cuProfilerStop && site == CUPTI_API_ENTER) collection_stop();
}

void Collector::on_resource(CUpti_CallbackId id, const void* data) {
  if (id != CUPTI_CBID_RESOURCE_CONTEXT_CREATED || !traces(TableId::uvm)) return;
  const auto& resource = *static_cast<const CUpti_ResourceData*>(data);
  uint32_t device = 0;
  const Functions& call = library().call;
  if (call.cuptiGetDeviceId == nullptr || call.cuptiActivityConfigureUnifiedMemoryCounter == nullptr) return;
  if (call.cuptiGetDeviceId(resource.context, &device) == CUPTI_SUCCESS) enable_unified_memory(device);
}

// Works only once a context exists (measured: CUPTI_ERROR_NOT_READY before).
void Collector::enable_unified_memory(uint32_t device) {
  std::lock_guard lock(mutex_);
  if (!unified_memory_devices_.insert(device).second) return;
  const Functions& call = library().call;
  for (int kind = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD;
       kind < CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_COUNT; ++kind) {
    CUpti_ActivityUnifiedMemoryCounterConfig config{};
    config.scope = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_SCOPE_PROCESS_SINGLE_DEVICE;
    config.kind = static_cast<CUpti_ActivityUnifiedMemoryCounterKind>(kind);
    config.deviceId = device;
    config.enable = 1;
    call.cuptiActivityConfigureUnifiedMemoryCounter(&config, 1);  // a kind that this GPU lacks is refused
  }
  if (unified_memory_on_) return;
  const CUptiResult result = call.cuptiActivityEnable(CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER);
  unified_memory_on_ = result == CUPTI_SUCCESS;
  if (!unified_memory_on_) report_loss("cupti", "uvm", kNullI64, describe(result), remedy(result));
}

ClockReading Collector::read_clock() {
  // The shortest of a few readings is the best.
  ClockReading best;
  best.error_ns = INT64_MAX;
  for (int i = 0; i < 7; ++i) {
    uint64_t timestamp = 0;
    const int64_t before = now_ns();
    if (library().call.cuptiGetTimestamp(&timestamp) != CUPTI_SUCCESS) return best;
    const int64_t error = now_ns() - before;
    if (error < best.error_ns) best = {static_cast<int64_t>(timestamp), before + error / 2, error};
  }
  ClockRecord row;
  row.start_ns = best.session_ns;
  row.source_ns = best.cupti;
  row.error_ns = best.error_ns;
  row.source = intern("cupti");
  emit(row);
  return best;
}

void Collector::run_decoder() {
  while (true) {
    const FilledBuffer buffer = buffers_->pop(kIdle);
    ClockMap clock;
    {
      std::lock_guard lock(clock_mutex_);
      if (buffer.data != nullptr) clock_.end = read_clock();  // the records lie between the two readings
      clock = clock_;
    }
    if (buffer.data != nullptr) decoder_.decode(buffer, clock);
    else decoder_.release_calls(clock);
    buffers_->decoded(buffer);
    if (buffer.data == nullptr) flush_idle();
  }
}

// Buffers that are not full but complete. Another client gets them when it expects them.
void Collector::flush_idle() {
  if (!active() || !recording() || !buffers_->lent() || Client::instance().listens()) return;
  const std::unique_lock flushing(flush_mutex_, std::try_to_lock);
  if (!flushing || now_ns() - harvested_ns_.load(std::memory_order_relaxed) < kQuietNs) return;
  library().call.cuptiActivityFlushAll(0);
}

void Collector::finish_records(int64_t deadline_ns) {
  buffers_->push({});
  buffers_->wait_decoded(deadline_ns);
}

void Collector::harvest(int64_t deadline_ns) {
  if (!active()) return;
  harvested_ns_.store(now_ns(), std::memory_order_relaxed);
  {
    // In time or not, what CUPTI has is worth more than an order of the two flushes.
    const std::unique_lock flushing(flush_mutex_,
                                    std::chrono::nanoseconds(std::max<int64_t>(deadline_ns - now_ns(), 0)));
    library().call.cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  }
  finish_records(deadline_ns);
}

void Collector::forget() { active_.store(false, std::memory_order_release); }

}  // namespace pasta::cupti
