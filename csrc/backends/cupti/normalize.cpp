#include "backends/cupti/normalize.h"

#include <cstdio>
#include <cstring>

namespace pasta::cupti {
namespace {

// CUPTI's marks of "no value" in 32-bit ids.
int32_t id(uint32_t value) { return value == UINT32_MAX ? kNullI32 : static_cast<int32_t>(value); }
int64_t graph_id(uint64_t value) { return value == 0 ? kNullI64 : static_cast<int64_t>(value); }
int64_t correlation(uint32_t value) { return value == 0 ? kNullI64 : int64_t{value}; }

MemcpyKind to_copy_kind(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA: return MemcpyKind::h2d;
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH: return MemcpyKind::d2h;
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return MemcpyKind::d2d;
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH: return MemcpyKind::h2h;
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return MemcpyKind::p2p;
    default: return MemcpyKind::unknown;
  }
}

UvmKind to_uvm_kind(CUpti_ActivityUnifiedMemoryCounterKind kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD: return UvmKind::migrate_h2d;
    case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOH: return UvmKind::migrate_d2h;
    case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_DTOD: return UvmKind::migrate_d2d;
    case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_CPU_PAGE_FAULT_COUNT: return UvmKind::fault_cpu;
    case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT: return UvmKind::fault_gpu;
    case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_THRASHING: return UvmKind::thrash;
    case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_THROTTLING: return UvmKind::throttle;
    case CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_REMOTE_MAP: return UvmKind::remote_map;
    default: return UvmKind::unknown;
  }
}

// Where a piece of device work ran and what started it: the columns that every such record has.
template <class Row, class Record>
void place(Row& row, const Record& record, const ClockMap& clock) {
  row.start_ns = clock.place(record.start);
  row.end_ns = clock.place(record.end);
  row.device_id = id(record.deviceId);
  row.context_id = id(record.contextId);
  row.stream_id = id(record.streamId);
  row.correlation_id = correlation(record.correlationId);
  row.graph_id = graph_id(record.graphId);
}

// The same for what may be a node of a graph.
template <class Row, class Record>
void place_node(Row& row, const Record& record, const ClockMap& clock) {
  place(row, record, clock);
  row.graph_node_id = graph_id(record.graphNodeId);
}

template <class Record>
MemcpyRecord copy(const Record& record, const ClockMap& clock) {
  MemcpyRecord row;
  place_node(row, record, clock);
  row.kind = to_copy_kind(record.copyKind);
  row.bytes = static_cast<int64_t>(record.bytes);
  row.src_kind = to_memory_kind(record.srcKind);
  row.dst_kind = to_memory_kind(record.dstKind);
  row.asynchronous = to_bool((record.flags & CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC) != 0);
  return row;
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// "LaunchKernel_v7000" for "cudaLaunchKernel_v7000".
std::string_view without_api(std::string_view name) {
  for (const std::string_view prefix : {"__cuda", "cuda", "cu"}) {
    if (starts_with(name, prefix)) return name.substr(prefix.size());
  }
  return name;
}

}  // namespace

int64_t ClockMap::place(uint64_t timestamp) const {
  if (timestamp == 0) return kNullI64;
  const __int128 since = static_cast<__int128>(timestamp) - begin.cupti;
  const int64_t theirs = end.cupti - begin.cupti;
  // Readings that are too close to each other tell the offset and not the slope.
  if (theirs <= 0) return begin.session_ns + static_cast<int64_t>(since);
  return begin.session_ns + static_cast<int64_t>(since * (end.session_ns - begin.session_ns) / theirs);
}

MemoryKind to_memory_kind(uint32_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE: return MemoryKind::pageable;
    case CUPTI_ACTIVITY_MEMORY_KIND_PINNED: return MemoryKind::pinned;
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE:
    case CUPTI_ACTIVITY_MEMORY_KIND_DEVICE_STATIC: return MemoryKind::device;
    case CUPTI_ACTIVITY_MEMORY_KIND_ARRAY: return MemoryKind::array;
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED:
    case CUPTI_ACTIVITY_MEMORY_KIND_MANAGED_STATIC: return MemoryKind::managed;
    default: return MemoryKind::unknown;
  }
}

KernelRecord to_kernel(const CUpti_ActivityKernel9& record, const ClockMap& clock) {
  KernelRecord row;
  place_node(row, record, clock);
  row.queued_ns = clock.place(record.queued);
  row.submitted_ns = clock.place(record.submitted);
  row.grid_x = record.gridX;
  row.grid_y = record.gridY;
  row.grid_z = record.gridZ;
  row.block_x = record.blockX;
  row.block_y = record.blockY;
  row.block_z = record.blockZ;
  if (record.clusterX != 0) {
    row.cluster_x = static_cast<int32_t>(record.clusterX);
    row.cluster_y = static_cast<int32_t>(record.clusterY);
    row.cluster_z = static_cast<int32_t>(record.clusterZ);
  }
  row.registers = record.registersPerThread;
  row.static_shared_bytes = record.staticSharedMemory;
  row.dynamic_shared_bytes = record.dynamicSharedMemory;
  row.local_bytes = record.localMemoryPerThread;
  return row;
}

KernelRecord to_kernel(const CUpti_ActivityGraphTrace& record, const ClockMap& clock) {
  KernelRecord row;
  place(row, record, clock);
  return row;
}

MemcpyRecord to_memcpy(const CUpti_ActivityMemcpy5& record, const ClockMap& clock) {
  MemcpyRecord row = copy(record, clock);
  const bool to_device = row.kind == MemcpyKind::h2d || row.kind == MemcpyKind::d2d;
  const bool from_device = row.kind == MemcpyKind::d2h || row.kind == MemcpyKind::d2d;
  if (from_device) row.src_device_id = row.device_id;
  if (to_device) row.dst_device_id = row.device_id;
  return row;
}

MemcpyRecord to_memcpy(const CUpti_ActivityMemcpyPtoP4& record, const ClockMap& clock) {
  MemcpyRecord row = copy(record, clock);
  row.src_device_id = id(record.srcDeviceId);
  row.dst_device_id = id(record.dstDeviceId);
  return row;
}

MemsetRecord to_memset(const CUpti_ActivityMemset4& record, const ClockMap& clock) {
  MemsetRecord row;
  place_node(row, record, clock);
  row.bytes = static_cast<int64_t>(record.bytes);
  row.value = record.value;
  row.memory_kind = to_memory_kind(record.memoryKind);
  return row;
}

AllocRecord to_alloc(const CUpti_ActivityMemory3& record, const ClockMap& clock) {
  AllocRecord row;
  row.start_ns = clock.place(record.timestamp);
  row.device_id = id(record.deviceId);
  row.context_id = id(record.contextId);
  row.stream_id = id(record.streamId);
  row.correlation_id = correlation(record.correlationId);
  row.action = record.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE ? AllocAction::free
                                                                                          : AllocAction::alloc;
  row.address = static_cast<int64_t>(record.address);
  row.bytes = static_cast<int64_t>(record.bytes);
  const bool pool = record.memoryPoolConfig.memoryPoolType != CUPTI_ACTIVITY_MEMORY_POOL_TYPE_INVALID;
  row.kind = pool ? MemoryKind::pool : to_memory_kind(record.memoryKind);
  return row;
}

UvmRecord to_uvm(const CUpti_ActivityUnifiedMemoryCounter2& record, const ClockMap& clock) {
  UvmRecord row;
  row.start_ns = clock.place(record.start);
  row.end_ns = clock.place(record.end);
  row.kind = to_uvm_kind(record.counterKind);
  row.address = static_cast<int64_t>(record.address);
  const int32_t source = id(record.srcId), target = id(record.dstId);
  switch (row.kind) {
    case UvmKind::migrate_h2d: row.dst_device_id = target; break;
    case UvmKind::migrate_d2h: row.src_device_id = source; break;
    case UvmKind::fault_gpu: row.src_device_id = source; break;
    case UvmKind::migrate_d2d:
      row.src_device_id = source;
      row.dst_device_id = target;
      break;
    default: break;
  }
  const bool moves = row.kind == UvmKind::migrate_h2d || row.kind == UvmKind::migrate_d2h ||
                     row.kind == UvmKind::migrate_d2d;
  if (moves || row.kind == UvmKind::remote_map || row.kind == UvmKind::thrash) {
    row.bytes = static_cast<int64_t>(record.value);
  } else if (row.kind == UvmKind::fault_cpu || row.kind == UvmKind::fault_gpu) {
    row.count = static_cast<int64_t>(record.value);
  }
  if (record.streamId != 0) row.stream_id = id(record.streamId);
  return row;
}

std::string_view uvm_cause(const CUpti_ActivityUnifiedMemoryCounter2& record) {
  switch (to_uvm_kind(record.counterKind)) {
    case UvmKind::migrate_h2d:
    case UvmKind::migrate_d2h:
    case UvmKind::migrate_d2d:
      switch (record.flags) {
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_USER: return "prefetch";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_COHERENCE: return "fault";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_PREFETCH: return "speculative";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_EVICTION: return "eviction";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_ACCESS_COUNTERS: return "access_counter";
        default: return {};
      }
    case UvmKind::fault_gpu:
      switch (record.flags) {
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_READ: return "read";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_WRITE: return "write";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_ATOMIC: return "atomic";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_PREFETCH: return "prefetch";
        default: return {};
      }
    case UvmKind::remote_map:
      switch (record.flags) {
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_REMOTE_MAP_CAUSE_COHERENCE: return "fault";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_REMOTE_MAP_CAUSE_THRASHING: return "thrashing";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_REMOTE_MAP_CAUSE_POLICY: return "policy";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_REMOTE_MAP_CAUSE_OUT_OF_MEMORY: return "out_of_memory";
        case CUPTI_ACTIVITY_UNIFIED_MEMORY_REMOTE_MAP_CAUSE_EVICTION: return "eviction";
        default: return {};
      }
    default: return {};
  }
}

ApiRecord to_api(const CUpti_ActivityAPI& record, const ClockMap& clock) {
  ApiRecord row;
  row.start_ns = clock.place(record.start);
  row.end_ns = clock.place(record.end);
  row.thread_id = id(record.threadId);
  row.api = record.kind == CUPTI_ACTIVITY_KIND_DRIVER ? Api::cuda_driver : Api::cuda_runtime;
  row.result = static_cast<int32_t>(record.returnValue);
  row.correlation_id = correlation(record.correlationId);
  return row;
}

DeviceRecord to_device(const CUpti_ActivityDevice4& record) {
  DeviceRecord row;
  row.device_id = id(record.id);
  row.kind = DeviceKind::gpu;
  row.memory_bytes = static_cast<int64_t>(record.globalMemorySize);
  row.multiprocessors = static_cast<int32_t>(record.numMultiprocessors);
  row.warp_size = static_cast<int32_t>(record.numThreadsPerWarp);
  row.cache_bytes = record.l2CacheSize;
  row.shared_bytes = record.maxSharedMemoryPerMultiprocessor;
  row.clock_khz = static_cast<int32_t>(record.coreClockRate);
  row.timestamps = Bool::yes;
  return row;
}

ContextRecord to_context(const CUpti_ActivityContext& record) {
  ContextRecord row;
  row.context_id = id(record.contextId);
  row.device_id = id(record.deviceId);
  row.api = Api::cuda_driver;
  return row;
}

StreamRecord to_stream(const CUpti_ActivityStream& record) {
  StreamRecord row;
  row.stream_id = id(record.streamId);
  row.context_id = id(record.contextId);
  row.priority = static_cast<int32_t>(record.priority);
  row.out_of_order = Bool::no;
  return row;
}

std::string_view collective_kind(std::string_view kernel_name) {
  constexpr std::string_view kPrefixes[] = {"ncclDevKernel_", "ncclKernel_"};
  struct Kind {
    std::string_view text, kind;
  };
  constexpr Kind kKinds[] = {
      {"AllReduce", "all_reduce"},   {"AllGather", "all_gather"}, {"ReduceScatter", "reduce_scatter"},
      {"Broadcast", "broadcast"},    {"Reduce", "reduce"},        {"SendRecv", "send_recv"},
      {"AllToAll", "all_to_all"},    {"Generic", "generic"},
  };
  for (const std::string_view prefix : kPrefixes) {
    if (!starts_with(kernel_name, prefix)) continue;
    const std::string_view rest = kernel_name.substr(prefix.size());
    for (const Kind& kind : kKinds) {
      if (starts_with(rest, kind.text)) return kind.kind;
    }
    return "other";
  }
  return {};
}

void format_uuid(const CUuuid& uuid, char (&text)[41]) {
  unsigned char b[16];
  std::memcpy(b, uuid.bytes, sizeof(b));
  std::snprintf(text, sizeof(text), "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

SyncKind to_sync_kind(std::string_view name) {
  name = without_api(name);
  if (starts_with(name, "DeviceSynchronize") || starts_with(name, "CtxSynchronize")) return SyncKind::context;
  if (starts_with(name, "StreamSynchronize")) return SyncKind::stream;
  if (starts_with(name, "EventSynchronize")) return SyncKind::event;
  if (starts_with(name, "StreamWaitEvent")) return SyncKind::stream_event;
  return SyncKind::null;
}

std::string_view fault(int32_t result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE: return "uncorrectable ECC error";
    case CUDA_ERROR_ILLEGAL_ADDRESS: return "illegal address";
    case CUDA_ERROR_LAUNCH_TIMEOUT: return "timeout";
    case CUDA_ERROR_ASSERT: return "assertion";
    case CUDA_ERROR_HARDWARE_STACK_ERROR: return "stack error";
    case CUDA_ERROR_ILLEGAL_INSTRUCTION: return "illegal instruction";
    case CUDA_ERROR_MISALIGNED_ADDRESS: return "misaligned address";
    case CUDA_ERROR_INVALID_ADDRESS_SPACE: return "invalid address space";
    case CUDA_ERROR_INVALID_PC: return "invalid program counter";
    case CUDA_ERROR_LAUNCH_FAILED: return "launch failure";
    default: return {};
  }
}

bool is_selected_call(std::string_view name) {
  name = without_api(name);
  constexpr std::string_view kPrefixes[] = {
      "Launch",      "GraphLaunch",  "GraphInstantiate", "GraphUpload", "Memcpy",       "Memset",
      "MemPrefetch", "MemAdvise",    "Malloc",           "MemAlloc",    "MemFree",      "Free",
      "MemHost",     "HostAlloc",    "HostRegister",     "HostUnregis", "MemCreate",    "MemMap",
      "MemUnmap",    "MemRelease",   "DeviceSynchroni",  "StreamSynch", "EventSynchro", "CtxSynchronize",
      "StreamWait",  "StreamCreate", "StreamDestroy",    "ModuleLoad",  "LibraryLoad",  "LinkComplete",
  };
  for (const std::string_view prefix : kPrefixes) {
    if (starts_with(name, prefix)) return true;
  }
  return false;
}

}  // namespace pasta::cupti
