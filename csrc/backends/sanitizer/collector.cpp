#include "backends/sanitizer/collector.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "backends/sanitizer/backend.h"
#include "backends/sanitizer/library.h"
#include "backends/sanitizer/normalize.h"
#include "session/session.h"

namespace pasta::sanitizer {
namespace {

// Our own calls to the library make the driver call us back: nothing of that is the program's.
thread_local bool t_inside = false;

class Inside {
 public:
  Inside() { t_inside = true; }
  ~Inside() { t_inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// Launches that this thread began and that are not yet known to be in their stream.
struct Begun {
  std::shared_ptr<Launches> launches;
  uint64_t token;
  bool in_graph;
};
thread_local std::vector<Begun> t_begun;

// The nodes of a graph are launched when the whole graph is.
void mark_launched(bool graphs_too) {
  const auto launched = [graphs_too](const Begun& begun) {
    if (begun.in_graph && !graphs_too) return false;
    begun.launches->launched(begun.token);
    return true;
  };
  t_begun.erase(std::remove_if(t_begun.begin(), t_begun.end(), launched), t_begun.end());
}

// Page bitmaps may take an eighth of the memory for results, so that several launches fit.
uint32_t max_page_words(const Selection& selection) {
  return static_cast<uint32_t>(std::min<size_t>(selection.buffer_bytes / 8 / sizeof(uint32_t), UINT32_MAX / 2));
}

uint32_t features_of(const Selection& selection) {
  uint32_t features = 0;
  if (selection.objects) features |= nvidia::kObjects;
  if (selection.sites) features |= nvidia::kSites;
  if (selection.blocks) features |= nvidia::kBlocks;
  if (library().version >= 13003) features |= nvidia::kBulkMasks;
  if (library().version >= 13005) features |= nvidia::kZeroFills;
  return features;
}

const Backend kBackend = {
    "sanitizer",
    "never run on its hardware",
    [](int64_t deadline_ns) { Collector::instance().harvest(deadline_ns); },
    [] { Collector::instance().forget(); },
    nullptr,
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
      sampler_(selection.sample_first, selection.sample_every) {}

// -- Start and end ---------------------------------------------------------------------------------

void Collector::fail(const std::string& why, const char* remedy) {
  report_loss("sanitizer", "", kNullI64, why, remedy);
  std::fprintf(stderr, "pasta: CUDA memory accesses are not recorded: %s; %s\n", why.c_str(), remedy);
}

bool Collector::start() {
  if (active_.load() || !ensure_session()) return active_.load();
  if (!selection_.unknown.empty()) {
    report_loss("sanitizer", "access_object", kNullI64, "--memory=" + selection_.unknown + " means nothing here",
                "objects, sites, blocks, shared, local, divergence or all");
  }
  if (selection_.nothing()) return false;
  if (!library().error.empty()) {
    fail(library().error, "install it (pip install nvidia-cuda-sanitizer-api) or set PASTA_SANITIZER_PATH");
    return false;
  }
  features_ = features_of(selection_);
  instrumenter_ = std::make_unique<Instrumenter>(selection_);
  if (!subscribe()) return false;
  active_.store(true, std::memory_order_release);
  register_backend(kBackend);
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
  return true;
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
  mark_launched(true);
  std::unique_lock lock(finish_mutex_);
  if (!finishing_) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      finishing_ = true;
      std::thread([this] {
        const Inside inside;
        finish_all();
        std::lock_guard done(finish_mutex_);
        finishing_ = false;
        finished_.notify_all();
      }).detach();
    } catch (const std::system_error& error) {
      finishing_ = false;
      report_loss("sanitizer", "access_object", kNullI64, std::string("cannot start a thread: ") + error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  const std::chrono::nanoseconds left(std::max<int64_t>(deadline_ns - now_ns(), 0));
  if (!finished_.wait_for(lock, left, [this] { return !finishing_; })) {
    report_loss("sanitizer", "access_object", kNullI64, "kernels were still running when the program ended");
  }
}

void Collector::forget() { active_.store(false, std::memory_order_release); }

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
      if (id == SANITIZER_CBID_LAUNCH_END || id == SANITIZER_CBID_LAUNCH_BEGIN) mark_launched(false);
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

void Collector::on_resource(Sanitizer_CallbackId id, const void* data) {
  const auto memory = [data]() -> const Sanitizer_ResourceMemoryData& {
    return *static_cast<const Sanitizer_ResourceMemoryData*>(data);
  };
  switch (id) {
    case SANITIZER_CBID_RESOURCE_MODULE_LOADED:
      on_module(*static_cast<const Sanitizer_ResourceModuleData*>(data));
      break;
    case SANITIZER_CBID_RESOURCE_MODULE_UNLOAD_STARTING: {
      std::lock_guard lock(mutex_);
      code_.clear();  // its functions' handles may be given to others
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
      // Only the first field lies at the same place in every version of this struct.
      const CUcontext context = *static_cast<const CUcontext*>(data);
      if (const auto launches = known_launches(context)) launches->context_destroyed();
      instrumenter_->forget(context);
      std::lock_guard lock(mutex_);
      launches_.erase(context);
      break;
    }
    default: break;
  }
}

// The struct got a field in its middle in 13.1. A library whose version is not known to be on either side is not
// asked: what was in the stream then counts as complete when the context is.
void Collector::on_stream_destroyed(const void* data) {
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
  const CUcontext context = *static_cast<const CUcontext*>(data);
  Sanitizer_StreamHandle handle = nullptr;
  if (library().version >= 13001) handle = static_cast<const Since*>(data)->handle;
  else if (library().version_known) handle = static_cast<const Before*>(data)->handle;
  if (handle == nullptr) return;
  if (const auto launches = known_launches(context)) launches->stream_destroyed(handle);
}

void Collector::on_module(const Sanitizer_ResourceModuleData& data) {
  const int64_t start = now_ns();
  const std::string covered = instrumenter_->instrument(data.context, data.module);
  if (!traces(TableId::build)) return;
  BuildRecord row;
  row.start_ns = start;
  row.end_ns = now_ns();
  row.thread_id = thread_id();
  row.program_id = next_id();
  row.source = BuildSource::binary;
  row.log = intern(covered.empty() ? "not instrumented" : "instrumented: " + covered);
  emit(row);
}

// -- Memory ----------------------------------------------------------------------------------------

void Collector::on_alloc(const Sanitizer_ResourceMemoryData& data, const char* allocator) {
  if ((data.flags & SANITIZER_MEMORY_FLAG_PEER) != 0) return;  // known where it was allocated
  AllocRecord row = to_alloc(data);
  row.start_ns = now_ns();
  row.thread_id = thread_id();
  row.context_id = names_.context(data.context, data.device);
  row.stream_id = names_.stream(data.hStream, row.context_id, data.device);
  row.op_id = current_op();
  row.action = AllocAction::alloc;
  row.object_id = next_id();
  row.allocator = intern((data.flags & SANITIZER_MEMORY_FLAG_MODULE) != 0 ? "module" : allocator);
  objects_.add({row.object_id, data.address, data.address + data.size, row.kind, row.device_id});
  if (traces(TableId::alloc)) emit(row);
}

void Collector::on_free(uint64_t address, bool reservation) {
  const std::optional<MemoryObject> object = objects_.take(address, reservation);
  if (!object || !traces(TableId::alloc)) return;
  AllocRecord row;
  row.start_ns = now_ns();
  row.thread_id = thread_id();
  row.device_id = object->device_id;
  row.op_id = current_op();
  row.action = AllocAction::free;
  row.object_id = object->object_id;
  row.address = static_cast<int64_t>(address);
  row.bytes = static_cast<int64_t>(object->end - object->begin);
  row.kind = object->kind;
  emit(row);
}

void Collector::on_reserve(const Sanitizer_ResourceVirtualRange& data) {
  AllocRecord row;
  row.start_ns = now_ns();
  row.thread_id = thread_id();
  row.op_id = current_op();
  row.action = AllocAction::alloc;
  row.object_id = next_id();
  row.address = static_cast<int64_t>(data.address);
  row.bytes = static_cast<int64_t>(data.size);
  row.kind = MemoryKind::virtual_;
  row.allocator = intern("reservation");
  objects_.add({row.object_id, data.address, data.address + data.size, row.kind, kNullI32}, true);
  if (traces(TableId::alloc)) emit(row);
}

// An array has no address, and its size is in elements of an unknown size: its life is all there is to tell.
void Collector::on_array(const Sanitizer_ResourceArrayData& data, AllocAction action) {
  if (!traces(TableId::alloc)) return;
  AllocRecord row;
  row.start_ns = now_ns();
  row.thread_id = thread_id();
  row.op_id = current_op();
  row.action = action;
  {
    std::lock_guard lock(mutex_);
    if (action == AllocAction::alloc) arrays_[data.hArray] = next_id();
    const auto array = arrays_.find(data.hArray);
    if (array == arrays_.end()) return;
    row.object_id = array->second;
    if (action == AllocAction::free) arrays_.erase(array);
  }
  row.kind = MemoryKind::array;
  row.allocator = intern("array");
  emit(row);
}

void Collector::on_memcpy(const Sanitizer_MemcpyData& data, const GraphNode& node) {
  if (!collecting() || !traces(TableId::memcpy)) return;
  MemcpyRecord row = to_memcpy(data);
  row.queued_ns = now_ns();
  row.thread_id = thread_id();
  row.op_id = current_op();
  row.graph_id = node.graph_id, row.graph_node_id = node.node_id;
  if (const auto source = objects_.find(data.srcAddress)) {
    row.src_kind = source->kind, row.src_object_id = source->object_id, row.src_device_id = source->device_id;
  }
  if (const auto target = objects_.find(data.dstAddress)) {
    row.dst_kind = target->kind, row.dst_object_id = target->object_id, row.dst_device_id = target->device_id;
  }
  row.device_id = row.dst_device_id != kNullI32 ? row.dst_device_id : row.src_device_id;
  if (data.apiContext != nullptr && row.device_id != kNullI32) {
    row.context_id = names_.context(data.apiContext, row.device_id);
    row.stream_id = names_.stream(data.hApiStream, row.context_id, row.device_id);
  }
  emit(row);
}

void Collector::on_memset(const Sanitizer_MemsetData& data, const GraphNode& node) {
  if (!collecting() || !traces(TableId::memset)) return;
  MemsetRecord row = to_memset(data);
  row.queued_ns = now_ns();
  row.thread_id = thread_id();
  row.op_id = current_op();
  row.graph_id = node.graph_id, row.graph_node_id = node.node_id;
  if (const auto object = objects_.find(data.address)) {
    row.memory_kind = object->kind, row.object_id = object->object_id, row.device_id = object->device_id;
    row.context_id = names_.context(data.context, row.device_id);
    row.stream_id = names_.stream(data.hStream, row.context_id, row.device_id);
  }
  emit(row);
}

// -- Launches --------------------------------------------------------------------------------------

std::shared_ptr<Launches> Collector::known_launches(CUcontext context) {
  std::lock_guard lock(mutex_);
  const auto found = launches_.find(context);
  return found == launches_.end() ? nullptr : found->second;
}

std::shared_ptr<Launches> Collector::launches(CUcontext context) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Launches>& launches = launches_[context];
  if (launches == nullptr) {
    launches = std::make_shared<Launches>(context, selection_, objects_, tensor_maps_, features_);
  }
  return launches;
}

KernelCode Collector::kernel_code(const Sanitizer_LaunchData& data, const KernelName& name) {
  KernelCode code{name.readable_id, 0};
  if (!selection_.sites) return code;
  {
    std::lock_guard lock(mutex_);
    const auto known = code_.find(data.function);
    if (known != code_.end()) {
      code.pc = known->second;
      return code;
    }
  }
  uint64_t size = 0;
  if (library().call.sanitizerGetFunctionPcAndSize(data.module, data.functionName, &code.pc, &size) !=
      SANITIZER_SUCCESS) {
    code.pc = 0;
  }
  std::lock_guard lock(mutex_);
  code_[data.function] = code.pc;
  return code;
}

void Collector::set_slot(const Sanitizer_LaunchData& data, Sanitizer_StreamHandle stream, void* slot) {
  const SanitizerResult result =
      library().call.sanitizerSetLaunchCallbackData(data.hLaunch, data.function, stream, slot);
  if (result != SANITIZER_SUCCESS && slot != nullptr) {
    report_loss("sanitizer", "access_object", 1, "a launch was not given its slot: " + describe(result));
  }
}

void Collector::on_launch(const Sanitizer_LaunchData& data, Sanitizer_StreamHandle stream, const GraphNode& node) {
  const KernelName& name = names_.kernel(data.functionName);
  if (!select_launch(name.readable)) {
    set_slot(data, stream, nullptr);
    return;
  }
  KernelRecord row = to_kernel(data);
  row.queued_ns = now_ns();
  row.thread_id = thread_id();
  row.context_id = names_.context(data.context, data.device);
  row.stream_id = names_.stream(stream, row.context_id, data.device);
  row.op_id = current_op();
  row.launch_id = next_id();
  row.name = name.readable_id;
  row.mangled = name.mangled_id;
  row.graph_id = node.graph_id, row.graph_node_id = node.node_id;
  if (traces(TableId::kernel)) emit(row);

  const bool measured = !selection_.floor && sampler_.take(name.readable_id.value,
                                                           {data.gridDim_x, data.gridDim_y, data.gridDim_z});
  if (!measured) {
    set_slot(data, stream, nullptr);
    return;
  }
  const std::shared_ptr<Launches> launches = this->launches(data.context);
  uint64_t token = 0;
  void* const slot = launches->begin({row.launch_id, row.queued_ns, kernel_code(data, name), stream}, token);
  set_slot(data, stream, slot);
  if (slot != nullptr) t_begun.push_back({launches, token, node.node_id != kNullI64});
}

void Collector::on_graph_node(const Sanitizer_GraphNodeLaunchData& data) {
  if (data.isGraphUpload != 0) return;  // nothing runs
  const GraphNode node = names_.node(data.graphExec, data.node);
  switch (data.nodeType) {
    case CU_GRAPH_NODE_TYPE_KERNEL: on_launch(data.launchData, data.launchData.hApiStream, node); break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: on_memcpy(data.memcpyData, node); break;
    case CU_GRAPH_NODE_TYPE_MEMSET: on_memset(data.memsetData, node); break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: on_alloc(data.memAllocData, "graph"); break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE: on_free(data.memFreeAddress); break;
    default: break;
  }
}

void Collector::on_graph(Sanitizer_CallbackId id, const void* data) {
  switch (id) {
    case SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN:
      on_graph_node(*static_cast<const Sanitizer_GraphNodeLaunchData*>(data));
      break;
    case SANITIZER_CBID_GRAPHS_LAUNCH_END: mark_launched(true); break;
    case SANITIZER_CBID_GRAPHS_GRAPHEXEC_CREATED:
      if (static_cast<const Sanitizer_GraphExecData*>(data)->containsDeviceGraphLaunches != 0) {
        report_loss("sanitizer", "access_object", kNullI64, "graphs that are launched from the device are not measured",
                    "launch them from the host");
      }
      break;
    default: break;
  }
}

void Collector::on_synchronize(Sanitizer_CallbackId id, const Sanitizer_SynchronizeData& data) {
  mark_launched(true);
  const std::shared_ptr<Launches> launches = known_launches(data.context);
  if (launches == nullptr) return;
  if (id == SANITIZER_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED) launches->synchronized(data.hStream);
  if (id == SANITIZER_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED) launches->context_synchronized();
}

void Collector::on_driver_call(Sanitizer_CallbackId id, const Sanitizer_CallbackData& data) {
  if (data.callbackSite != SANITIZER_API_EXIT || data.functionParams == nullptr) return;
  if (data.functionReturnValue == nullptr ||
      *static_cast<const CUresult*>(data.functionReturnValue) != CUDA_SUCCESS) {
    return;
  }
  const auto add = [this](const auto& operands) {
    if (operands.encoded == nullptr || operands.dimensions == nullptr) return;
    uint64_t encoded[16];
    std::memcpy(encoded, operands.encoded, sizeof(encoded));
    tensor_maps_.add(encoded, to_tensor_map(operands));
  };
  if (id == SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeTiled) {
    add(*static_cast<const EncodeTiledOperands*>(data.functionParams));
  } else if (id == SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeIm2col) {
    add(*static_cast<const EncodeIm2colOperands*>(data.functionParams));
  }
}

}  // namespace pasta::sanitizer
