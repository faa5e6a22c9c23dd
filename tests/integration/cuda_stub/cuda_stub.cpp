// A CUDA driver and a CUPTI in one library, for tests of the whole CUDA path without a GPU. It does no work: each call
// leaves the activity records that the real one leaves, through the buffers that a CUPTI client gives. Loaded as
// libcuda.so.1 by the program and, through PASTA_CUPTI_PATH, as CUPTI by pasta.
//
// What goes wrong on request:
//   STUB_INIT, STUB_CONTEXT, STUB_SYNCHRONIZE   what cuInit, cuCtxCreate and cuCtxSynchronize return
//   STUB_SUBSCRIBE, STUB_ENABLE                 what cuptiSubscribe, and cuptiActivityEnable of kernels, return
//   STUB_LATENCY                                what cuptiActivityEnableLatencyTimestamps returns
//   STUB_DROPPED                                number of records that CUPTI says it dropped
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>
#include <set>

namespace {

int requested_failure(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? 0 : std::atoi(value);
}

// CUPTI's clock is not the session's: seconds since 1970.
uint64_t now() {
  timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

// Driver calls by callback id, 1 upwards.
enum Call { kMemAlloc = 1, kMemFree, kMemcpy, kMemset, kLaunch, kGraphLaunch, kSynchronize, kGetDevice, kCalls };
constexpr const char* kNames[kCalls] = {"INVALID",           "cuMemAlloc_v2",  "cuMemFree_v2",     "cuMemcpyHtoD_v2",
                                        "cuMemsetD8_v2",     "cuLaunchKernel", "cuGraphLaunch",    "cuCtxSynchronize",
                                        "cuCtxGetDevice"};

std::mutex g_mutex;
CUpti_CallbackFunc g_callback = nullptr;
bool g_context_callback = false, g_profiler_callbacks = false;
CUpti_BuffersCallbackRequestFunc g_request = nullptr;
CUpti_BuffersCallbackCompleteFunc g_complete = nullptr;
std::set<int> g_kinds;
std::set<uint32_t> g_calls;  // of the driver, enabled one by one
// Calls of the runtime by callback id, 1 upwards.
enum RuntimeCall { kRuntimeSynchronize = 1, kRuntimeLaunch, kRuntimeCalls };
constexpr const char* kRuntimeNames[kRuntimeCalls] = {"INVALID", "cudaDeviceSynchronize_v3020",
                                                      "cudaLaunchKernel_v7000"};
std::set<uint32_t> g_runtime_calls;  // enabled one by one
bool g_latency_timestamps = false;
uint8_t* g_buffer = nullptr;
size_t g_bytes = 0, g_used = 0, g_dropped = 0;
uint32_t g_correlation = 0;
CUcontext const kContext = reinterpret_cast<CUcontext>(0x1000);
constexpr uint32_t kContextId = 1, kStreamId = 7;

size_t record_bytes(CUpti_ActivityKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(CUpti_ActivityKernel9);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy5);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_MEMORY2: return sizeof(CUpti_ActivityMemory3);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_DEVICE: return sizeof(CUpti_ActivityDevice4);
    case CUPTI_ACTIVITY_KIND_CONTEXT: return sizeof(CUpti_ActivityContext);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return sizeof(CUpti_ActivityGraphTrace);
    default: return 0;
  }
}

void complete_buffer() {
  if (g_buffer == nullptr) return;
  g_complete(kContext, kStreamId, g_buffer, g_bytes, g_used);
  g_buffer = nullptr;
}

template <class Record>
Record empty(CUpti_ActivityKind kind) {
  Record record;
  std::memset(&record, 0, sizeof(record));
  record.kind = kind;
  return record;
}

template <class Record>
void deliver(const Record& record) {
  if (g_complete == nullptr || g_kinds.count(record.kind) == 0) return;
  if (g_buffer != nullptr && g_used + sizeof(Record) > g_bytes) complete_buffer();
  if (g_buffer == nullptr) {
    size_t max_records = 0;
    g_request(&g_buffer, &g_bytes, &max_records);
    g_used = 0;
  }
  if (g_buffer == nullptr) {
    ++g_dropped;
    return;
  }
  std::memcpy(g_buffer + g_used, &record, sizeof(Record));
  g_used += sizeof(Record);
}

// One driver call: its own record, written when it returns.
class CallScope {
 public:
  explicit CallScope(Call call) : lock_(g_mutex), call_(call), start_(now()), correlation(++g_correlation) {}
  ~CallScope() {
    if (g_calls.count(call_) == 0) return;
    auto record = empty<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_DRIVER);
    record.cbid = call_;
    record.start = start_;
    record.end = now();
    record.threadId = static_cast<uint32_t>(gettid());
    record.correlationId = correlation;
    record.returnValue = static_cast<uint32_t>(result);
    g_kinds.insert(CUPTI_ACTIVITY_KIND_DRIVER);  // enabling single calls enables the kind
    deliver(record);
  }

 private:
  std::lock_guard<std::mutex> lock_;
  const Call call_;
  const uint64_t start_;

 public:
  const uint32_t correlation;
  CUresult result = CUDA_SUCCESS;
};

// Device work of 1 us that starts now.
template <class Record>
Record work(CUpti_ActivityKind kind, uint32_t correlation) {
  auto record = empty<Record>(kind);
  record.start = now();
  record.end = record.start + 1000;
  record.contextId = kContextId;
  record.streamId = kStreamId;
  record.correlationId = correlation;
  return record;
}

void deliver_kernel(uint32_t correlation, const unsigned (&shape)[6], uint32_t graph = 0, uint64_t node = 0) {
  auto record = work<CUpti_ActivityKernel9>(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, correlation);
  record.gridX = static_cast<int32_t>(shape[0]), record.gridY = static_cast<int32_t>(shape[1]);
  record.gridZ = static_cast<int32_t>(shape[2]);
  record.blockX = static_cast<int32_t>(shape[3]), record.blockY = static_cast<int32_t>(shape[4]);
  record.blockZ = static_cast<int32_t>(shape[5]);
  // Mangled, as CUPTI gives it; a program may ask for another.
  const char* name = std::getenv("STUB_KERNEL");
  record.name = name == nullptr ? "_Z3addPKfS0_Pfi" : name;
  record.graphId = graph;
  record.graphNodeId = node;
  if (g_latency_timestamps) {
    record.queued = record.start - 200;
    record.submitted = record.start - 100;
  }
  deliver(record);
}

void deliver_memory(CUpti_ActivityMemoryOperationType type, CUdeviceptr address, size_t bytes) {
  auto record = empty<CUpti_ActivityMemory3>(CUPTI_ACTIVITY_KIND_MEMORY2);
  record.memoryOperationType = type;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.address = address;
  record.bytes = bytes;
  record.timestamp = now();
  record.contextId = kContextId;
  record.correlationId = g_correlation;
  deliver(record);
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// -- The driver ------------------------------------------------------------------------------------

EXPORT CUresult cuInit(unsigned) {
  if (const int failure = requested_failure("STUB_INIT")) return static_cast<CUresult>(failure);
  static bool initialised = false;
  if (initialised) return CUDA_SUCCESS;
  initialised = true;
  const char* path = std::getenv("CUDA_INJECTION64_PATH");
  if (path == nullptr) return CUDA_SUCCESS;
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) return CUDA_SUCCESS;
  auto* entry = reinterpret_cast<int (*)()>(dlsym(library, "InitializeInjection"));
  return entry != nullptr && entry() == 1 ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = 12020;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice* device, int) {
  *device = 0;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice) {
  if (const int failure = requested_failure("STUB_CONTEXT")) return static_cast<CUresult>(failure);
  *context = kContext;
  if (g_callback != nullptr && g_context_callback) {
    CUpti_ResourceData data{};
    data.context = kContext;
    g_callback(nullptr, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED, &data);
  }
  std::lock_guard lock(g_mutex);
  auto record = empty<CUpti_ActivityContext>(CUPTI_ACTIVITY_KIND_CONTEXT);
  record.contextId = kContextId;
  deliver(record);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  CallScope call(kMemAlloc);
  static CUdeviceptr next = 0x7f0000000000;
  *address = next;
  next += bytes;
  deliver_memory(CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION, *address, bytes);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  CallScope call(kMemFree);
  deliver_memory(CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE, address, 0);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void*, size_t bytes) {
  CallScope call(kMemcpy);
  auto record = work<CUpti_ActivityMemcpy5>(CUPTI_ACTIVITY_KIND_MEMCPY, call.correlation);
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  record.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE;
  record.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.bytes = bytes;
  deliver(record);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char value, size_t bytes) {
  CallScope call(kMemset);
  auto record = work<CUpti_ActivityMemset4>(CUPTI_ACTIVITY_KIND_MEMSET, call.correlation);
  record.value = value;
  record.bytes = bytes;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  deliver(record);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned, CUstream, void**, void**) {
  CallScope call(kLaunch);
  deliver_kernel(call.correlation, {gx, gy, gz, bx, by, bz});
  return CUDA_SUCCESS;
}

void profiler_call(CUpti_CallbackId id) {
  if (g_callback == nullptr || !g_profiler_callbacks) return;
  CUpti_CallbackData data{};
  for (const CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
    data.callbackSite = site;
    g_callback(nullptr, CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  }
}

EXPORT CUresult cuProfilerStart() {
  profiler_call(CUPTI_DRIVER_TRACE_CBID_cuProfilerStart);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuProfilerStop() {
  profiler_call(CUPTI_DRIVER_TRACE_CBID_cuProfilerStop);
  return CUDA_SUCCESS;
}

// A graph of 4 kernels: one record for the whole where a client asked for these, else one for each node.
EXPORT CUresult cuGraphLaunch(CUgraphExec, CUstream) {
  CallScope call(kGraphLaunch);
  if (g_kinds.count(CUPTI_ACTIVITY_KIND_GRAPH_TRACE) != 0) {
    auto record = work<CUpti_ActivityGraphTrace>(CUPTI_ACTIVITY_KIND_GRAPH_TRACE, call.correlation);
    record.graphId = 5;
    deliver(record);
    return CUDA_SUCCESS;
  }
  for (uint64_t node = 1; node <= 4; ++node) {
    deliver_kernel(call.correlation, {8, 1, 1, 32, 1, 1}, 5, uint64_t{5} << 32 | node);
  }
  return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize() {
  CallScope call(kSynchronize);
  return call.result = static_cast<CUresult>(requested_failure("STUB_SYNCHRONIZE"));
}

// Calls of the runtime, which calls the driver: both records have one correlation id.
template <class Driver>
cudaError_t runtime_call(RuntimeCall call, Driver&& driver) {
  auto record = empty<CUpti_ActivityAPI>(CUPTI_ACTIVITY_KIND_RUNTIME);
  record.cbid = call;
  record.start = now();
  record.threadId = static_cast<uint32_t>(gettid());
  driver();
  std::lock_guard lock(g_mutex);
  record.end = now();
  record.correlationId = g_correlation;
  if (g_runtime_calls.count(call) != 0) {
    g_kinds.insert(CUPTI_ACTIVITY_KIND_RUNTIME);
    deliver(record);
  }
  return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceSynchronize() {
  return runtime_call(kRuntimeSynchronize, [] { cuCtxSynchronize(); });
}

EXPORT cudaError_t cudaLaunchKernel(const void*, dim3 grid, dim3 block, void**, size_t, cudaStream_t) {
  return runtime_call(kRuntimeLaunch, [&] {
    cuLaunchKernel(nullptr, grid.x, grid.y, grid.z, block.x, block.y, block.z, 0, nullptr, nullptr, nullptr);
  });
}

EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  CallScope call(kGetDevice);
  return cuDeviceGet(device, 0);
}

// -- CUPTI -----------------------------------------------------------------------------------------

EXPORT CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void*) {
  if (const int failure = requested_failure("STUB_SUBSCRIBE")) return static_cast<CUptiResult>(failure);
  g_callback = callback;
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(0x2000);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t on, CUpti_SubscriberHandle, CUpti_CallbackDomain domain,
                                                CUpti_CallbackId id) {
  if (domain == CUPTI_CB_DOMAIN_RESOURCE && id == CUPTI_CBID_RESOURCE_CONTEXT_CREATED) g_context_callback = on != 0;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) g_profiler_callbacks = on != 0;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                           CUpti_BuffersCallbackCompleteFunc complete) {
  std::lock_guard lock(g_mutex);
  g_request = request;
  g_complete = complete;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
    if (const int failure = requested_failure("STUB_ENABLE")) return static_cast<CUptiResult>(failure);
  }
  std::lock_guard lock(g_mutex);
  g_kinds.insert(kind);
  for (uint32_t call = 1; kind == CUPTI_ACTIVITY_KIND_DRIVER && call < kCalls; ++call) g_calls.insert(call);
  for (uint32_t call = 1; kind == CUPTI_ACTIVITY_KIND_RUNTIME && call < kRuntimeCalls; ++call) {
    g_runtime_calls.insert(call);
  }
  if (kind == CUPTI_ACTIVITY_KIND_DEVICE) {
    auto record = empty<CUpti_ActivityDevice4>(kind);
    record.name = "Stub GPU";
    record.globalMemorySize = uint64_t{16} << 30;
    record.computeCapabilityMajor = 9;
    deliver(record);
  }
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
  std::lock_guard lock(g_mutex);
  g_kinds.erase(kind);
  if (kind == CUPTI_ACTIVITY_KIND_DRIVER) g_calls.clear();
  if (kind == CUPTI_ACTIVITY_KIND_RUNTIME) g_runtime_calls.clear();
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t on) {
  std::lock_guard lock(g_mutex);
  if (on != 0) g_calls.insert(id);
  else g_calls.erase(id);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t on) {
  std::lock_guard lock(g_mutex);
  if (on != 0) g_runtime_calls.insert(id);
  else g_runtime_calls.erase(id);
  return CUPTI_SUCCESS;
}

// As the real one: CUDA must not be in use yet.
EXPORT CUptiResult CUPTIAPI cuptiActivityEnableLatencyTimestamps(uint8_t on) {
  if (const int failure = requested_failure("STUB_LATENCY")) return static_cast<CUptiResult>(failure);
  std::lock_guard lock(g_mutex);
  if (g_correlation != 0) return CUPTI_ERROR_INVALID_OPERATION;
  g_latency_timestamps = on != 0;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t) {
  std::lock_guard lock(g_mutex);
  complete_buffer();
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNextRecord(uint8_t* buffer, size_t bytes, CUpti_Activity** record) {
  uint8_t* next = buffer;
  if (*record != nullptr) next = reinterpret_cast<uint8_t*>(*record) + record_bytes((*record)->kind);
  if (next >= buffer + bytes) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* dropped) {
  static size_t requested = static_cast<size_t>(requested_failure("STUB_DROPPED"));
  std::lock_guard lock(g_mutex);
  *dropped = requested + g_dropped;
  requested = g_dropped = 0;  // reading sets the count back
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char** name) {
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && id > 0 && id < kRuntimeCalls) {
    *name = kRuntimeNames[id];
    return CUPTI_SUCCESS;
  }
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API || id == 0 || id >= kCalls) return CUPTI_ERROR_INVALID_PARAMETER;
  *name = kNames[id];
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult result, const char** text) {
  switch (result) {
    case CUPTI_ERROR_NOT_COMPATIBLE: *text = "CUPTI_ERROR_NOT_COMPATIBLE"; break;
    case CUPTI_ERROR_NOT_INITIALIZED: *text = "CUPTI_ERROR_NOT_INITIALIZED"; break;
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: *text = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"; break;
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
      break;
    default: return CUPTI_ERROR_INVALID_PARAMETER;
  }
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetTimestamp(uint64_t* timestamp) {
  *timestamp = now();
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetVersion(uint32_t* version) {
  *version = 130000;
  return CUPTI_SUCCESS;
}

EXPORT CUptiResult CUPTIAPI cuptiGetDeviceId(CUcontext, uint32_t* device) {
  *device = 0;
  return CUPTI_SUCCESS;
}
