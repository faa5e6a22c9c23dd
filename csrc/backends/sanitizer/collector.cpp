#include "backends/sanitizer/collector.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <utility>
#include <vector>

#include "backends/sanitizer/backend.h"
#include "backends/sanitizer/begun.h"
#include "backends/sanitizer/driver.h"
#include "backends/sanitizer/library.h"
#include "session/background_thread.h"
#include "session/memory_parts.h"
#include "session/session.h"

namespace pasta::sanitizer {
namespace {

// Our own calls to the library make the driver call us back: nothing of that is the program's.
thread_local bool t_inside = false;

class Inside {
 public:
  explicit Inside(bool inside = true) : before_(std::exchange(t_inside, inside)) {}
  ~Inside() { t_inside = before_; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const bool before_;
};

// The page bitmaps of a launch may take a part of the memory for results, so that many launches fit: 8 MiB of 256,
// which is 256 GiB of memory objects.
uint32_t max_page_words(const Selection& selection) {
  return static_cast<uint32_t>(std::min<size_t>(selection.buffer_bytes / 32 / sizeof(uint32_t), UINT32_MAX / 2));
}

uint32_t features_of(const Selection& selection) {
  uint32_t features = 0;
  if (selection.objects) features |= nvidia::kObjects;
  if (selection.sites) features |= nvidia::kSites;
  if (selection.blocks) features |= nvidia::kBlocks;
  if (selection.trace) features |= nvidia::kTrace;
  if (library().version >= 13003) features |= nvidia::kBulkMasks;
  return features;
}

// On a thread that does nothing else.
Encoders find_encoders(CUcontext context) {
  t_inside = true;
  make_current(context);
  return driver_encoders();
}

const Backend kBackend = {
    "sanitizer",
    "run on NVIDIA H200 (driver 580, CUDA 13.0, Sanitizer 13.5)",
    [](int64_t deadline_ns) { Collector::instance().harvest(deadline_ns); },
    [] { Collector::instance().forget(); },
    nullptr,
};

const MemoryParts kTensors = {
    [](uint64_t address, uint64_t bytes) { return Collector::instance().on_tensor_made(address, bytes); },
    [](uint64_t address) { return Collector::instance().on_tensor_gone(address); },
};

void callback(void*, Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id, const void* data) {
  if (t_inside) return;
  const Inside inside;
  Collector::instance().on_callback(domain, id, data);
}

}  // namespace

bool requested() { return !Selection::from_environment().nothing() || !Selection::from_environment().unknown.empty(); }

bool start() { return Collector::instance().start(); }

Collector& Collector::instance() {
  static Collector* const collector = new Collector(Selection::from_environment());
  return *collector;
}

Collector::Collector(const Selection& selection)
    : selection_(selection),
      objects_(max_page_words(selection)),
      tensor_maps_(find_encoders),
      sampler_(selection.sampling) {}

// -- Start and end ---------------------------------------------------------------------------------

void Collector::fail(const std::string& why, const char* remedy) {
  report_loss("sanitizer", "", kNullI64, why, remedy);
  std::fprintf(stderr, "pasta: CUDA memory accesses are not recorded: %s; %s\n", why.c_str(), remedy);
}

bool Collector::start() {
  if (active_.load() || !ensure_session()) return active_.load();
  if (!selection_.unknown.empty()) {
    report_loss("sanitizer", "access_object", kNullI64, "--memory=" + selection_.unknown + " means nothing here",
                "objects, sites, blocks, shared, local, divergence, trace or all");
  }
  if (selection_.nothing()) return false;
  if (!library().error.empty()) {
    fail(library().error, "install it (pip install nvidia-cuda-sanitizer-api) or set PASTA_SANITIZER_PATH");
    return false;
  }
  features_ = features_of(selection_);
  const bool sampled = selection_.sampling.leaves_out();
  instrumenter_ = std::make_unique<Instrumenter>(selection_, sampled || selects_launches());
  if (!subscribe()) return false;
  active_.store(true, std::memory_order_release);
  register_backend(kBackend);
  if (selection_.objects || selection_.blocks || selection_.trace) {
    memory_parts.store(&kTensors, std::memory_order_release);
  }
  return true;
}

bool Collector::subscribe() {
  const Functions& call = library().call;
  SanitizerResult result = call.sanitizerSubscribe(&subscriber_, callback, nullptr);
  if (result != SANITIZER_SUCCESS) {
    const bool taken = result == SANITIZER_ERROR_MAX_LIMIT_REACHED;
    fail(taken ? "another tool uses the Sanitizer in this process" : "Sanitizer: " + describe(result),
         taken ? "run one tool at a time" : "pasta doctor checks the driver");
    return false;
  }
  for (const Sanitizer_CallbackDomain domain :
       {SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CB_DOMAIN_SYNCHRONIZE, SANITIZER_CB_DOMAIN_LAUNCH,
        SANITIZER_CB_DOMAIN_MEMCPY, SANITIZER_CB_DOMAIN_MEMSET, SANITIZER_CB_DOMAIN_GRAPHS}) {
    result = call.sanitizerEnableDomain(1, subscriber_, domain);
    if (result != SANITIZER_SUCCESS) {
      fail("Sanitizer domain " + std::to_string(static_cast<int>(domain)) + ": " + describe(result),
           "install the newest nvidia-cuda-sanitizer-api");
      return false;
    }
  }
  for (const Sanitizer_CallbackId encode :
       {SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeTiled, SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeIm2col}) {
    call.sanitizerEnableCallback(1, subscriber_, SANITIZER_CB_DOMAIN_DRIVER_API, encode);
  }
  if (!instrumenter_->changes_code()) return true;
  const auto enable = [&](Sanitizer_CallbackId id) {
    call.sanitizerEnableCallback(1, subscriber_, SANITIZER_CB_DOMAIN_DRIVER_API, id);
  };
  std::for_each(std::begin(kLaunchCalls), std::end(kLaunchCalls), enable);
  std::for_each(std::begin(kCaptureCalls), std::end(kCaptureCalls), enable);
  return true;
}

// As the launch would: what the driver calls back for is the program's.
KernelFacts Collector::load(CUfunction kernel) {
  const Inside inside(false);
  return describe_kernel(kernel);
}

void Collector::finish_all() {
  names_.describe_devices();
  std::vector<std::shared_ptr<Launches>> contexts;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [context, launches] : launches_) contexts.push_back(launches);
  }
  for (const std::shared_ptr<Launches>& launches : contexts) launches->finish();
}

// Waiting for kernels has no time limit in the library: it is done on a thread that is left alone when time is up,
// with whatever never ends.
void Collector::harvest(int64_t deadline_ns) {
  if (!active_.load(std::memory_order_acquire)) return;
  Begun::launched(true);
  std::unique_lock lock(finish_mutex_);
  if (!finishing_) {
    finishing_ = true;
    const std::string error = start_background_thread("pasta-harvest", [this] {
      const Inside inside;
      finish_all();
      std::lock_guard done(finish_mutex_);
      finishing_ = false;
      finished_.notify_all();
    });
    if (!error.empty()) {
      finishing_ = false;
      report_loss("sanitizer", "access_object", kNullI64, error);
    }
  }
  const std::chrono::nanoseconds left(std::max<int64_t>(deadline_ns - now_ns(), 0));
  if (!finished_.wait_for(lock, left, [this] { return !finishing_; })) {
    report_loss("sanitizer", "access_object", kNullI64, "kernels were still running when the program ended");
  }
}

void Collector::forget() {
  active_.store(false, std::memory_order_release);
  memory_parts.store(nullptr, std::memory_order_release);
}

// -- Callbacks -------------------------------------------------------------------------------------

void Collector::on_callback(Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id, const void* data) {
  if (!active_.load(std::memory_order_acquire) || data == nullptr || !recording()) return;
  switch (domain) {
    case SANITIZER_CB_DOMAIN_RESOURCE: on_resource(id, data); break;
    case SANITIZER_CB_DOMAIN_SYNCHRONIZE:
      on_synchronize(id, *static_cast<const Sanitizer_SynchronizeData*>(data));
      break;
    case SANITIZER_CB_DOMAIN_LAUNCH:
      // At the end of a launch and, should that not come, at the thread's next.
      if (id == SANITIZER_CBID_LAUNCH_END || id == SANITIZER_CBID_LAUNCH_BEGIN) Begun::launched(false);
      if (id == SANITIZER_CBID_LAUNCH_BEGIN) {
        const auto& launch = *static_cast<const Sanitizer_LaunchData*>(data);
        on_launch(launch, launch.hStream, {});
      }
      break;
    case SANITIZER_CB_DOMAIN_MEMCPY:
      if (id == SANITIZER_CBID_MEMCPY_STARTING) on_memcpy(*static_cast<const Sanitizer_MemcpyData*>(data), {});
      break;
    case SANITIZER_CB_DOMAIN_MEMSET:
      if (id == SANITIZER_CBID_MEMSET_STARTING) on_memset(*static_cast<const Sanitizer_MemsetData*>(data), {});
      break;
    case SANITIZER_CB_DOMAIN_GRAPHS: on_graph(id, data); break;
    case SANITIZER_CB_DOMAIN_DRIVER_API:
      on_driver_call(id, *static_cast<const Sanitizer_CallbackData*>(data));
      break;
    default: break;
  }
}

namespace {

// Of a context or a stream: the first field lies at the same place in every version of these structs.
CUcontext context_of(const void* data) { return *static_cast<const CUcontext*>(data); }

// The struct got a field in its middle in 13.1. Null for a library whose version is not known to be on either side.
Sanitizer_StreamHandle stream_of(const void* data) {
  struct Before {
    CUcontext context;
    CUstream stream;
    Sanitizer_StreamHandle handle;
  };
  struct Since {
    CUcontext context;
    CUgreenCtx green_context;
    CUstream stream;
    Sanitizer_StreamHandle handle;
  };
  if (library().version >= 13001) return static_cast<const Since*>(data)->handle;
  return library().version_known ? static_cast<const Before*>(data)->handle : nullptr;
}

}  // namespace

void Collector::on_resource(Sanitizer_CallbackId id, const void* data) {
  const auto memory = [data]() -> const Sanitizer_ResourceMemoryData& {
    return *static_cast<const Sanitizer_ResourceMemoryData*>(data);
  };
  switch (id) {
    case SANITIZER_CBID_RESOURCE_MODULE_LOADED: {
      const auto& module = *static_cast<const Sanitizer_ResourceModuleData*>(data);
      instrumenter_->loaded(module.context, module.module);
      if (selection_.tells_instructions()) cubins_.loaded(module.module, module.pCubin, module.cubinSize);
      break;
    }
    case SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING: {
      const CUmodule module = static_cast<const Sanitizer_ResourceModuleData*>(data)->module;
      instrumenter_->unloaded(module);
      cubins_.unloaded(module);
      std::lock_guard lock(mutex_);
      code_.clear(), kernels_.clear();  // its functions' handles may be given to others
      break;
    }
    case SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC: on_alloc(memory(), "device"); break;
    case SANITIZER_CBID_RESOURCE_HOST_MEMORY_ALLOC: on_alloc(memory(), "host"); break;
    case SANITIZER_CBID_RESOURCE_MEMORY_ALLOC_ASYNC: on_alloc(memory(), "stream-ordered"); break;
    case SANITIZER_CBID_RESOURCE_MEMPOOL_IMPORT_POINTER: on_alloc(memory(), "imported pool"); break;
    case SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_FREE:
    case SANITIZER_CBID_RESOURCE_HOST_MEMORY_FREE:
    case SANITIZER_CBID_RESOURCE_MEMORY_FREE_ASYNC: on_free(memory().address); break;
    case SANITIZER_CBID_RESOURCE_VIRTUAL_RESERVE:
      on_reserve(*static_cast<const Sanitizer_ResourceVirtualRange*>(data));
      break;
    case SANITIZER_CBID_RESOURCE_VIRTUAL_RELEASE:
      on_free(static_cast<const Sanitizer_ResourceVirtualRange*>(data)->address, true);
      break;
    case SANITIZER_CBID_RESOURCE_ARRAY_CREATED:
      on_array(*static_cast<const Sanitizer_ResourceArrayData*>(data), AllocAction::alloc);
      break;
    case SANITIZER_CBID_RESOURCE_ARRAY_DESTROYED:
      on_array(*static_cast<const Sanitizer_ResourceArrayData*>(data), AllocAction::free);
      break;
    case SANITIZER_CBID_RESOURCE_STREAM_DESTROY_STARTING: on_stream_destroyed(data); break;
    case SANITIZER_CBID_RESOURCE_CONTEXT_DESTROY_STARTING: {
      const CUcontext context = context_of(data);
      if (const auto launches = known_launches(context)) launches->context_destroyed();
      instrumenter_->forget(context);
      std::lock_guard lock(mutex_);
      launches_.erase(context);
      break;
    }
    default: break;
  }
}

// Without its handle, what was in the stream counts as complete when the context is.
void Collector::on_stream_destroyed(const void* data) {
  const Sanitizer_StreamHandle stream = stream_of(data);
  if (stream == nullptr) return;
  instrumenter_->stream_destroyed(context_of(data), stream);
  if (const auto launches = known_launches(context_of(data))) launches->stream_destroyed(stream);
}

}  // namespace pasta::sanitizer
