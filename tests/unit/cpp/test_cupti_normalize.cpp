// CUPTI records to rows, column by column, from structs built by hand: no GPU needed.
#include "check.h"

#if __has_include(<cupti.h>)

#include <cstring>

#include "backends/cupti/normalize.h"

using namespace pasta;
using namespace pasta::cupti;

namespace {

constexpr ClockMap kClock{{1000, 0, 0}, {1000, 0, 0}};  // one reading: an offset of -1000

template <class Record>
Record zeroed() {
  Record record;
  std::memset(&record, 0, sizeof(record));
  return record;
}

void test_clock() {
  // A counter of 2.5 GHz: 2.5 ticks a nanosecond, read twice, a minute apart.
  const ClockMap tsc{{7'000'000'000'000, 100, 0}, {7'150'000'000'000, 60'000'000'100, 0}};
  CHECK(tsc.place(7'000'000'000'000) == 100);
  CHECK(tsc.place(7'000'000'002'500) == 1100);
  CHECK(tsc.place(7'150'000'000'000) == 60'000'000'100);
  CHECK(tsc.place(0) == kNullI64);
  // Clocks since 1970 and since boot, equal rates: the nanosecond survives.
  const ClockMap realtime{{1'790'000'000'000'000'001, 5'000, 0}, {1'790'003'600'000'000'001, 3'600'000'005'000, 0}};
  CHECK(realtime.place(1'790'000'000'000'000'124) == 5'123);
}

void test_kernel() {
  auto record = zeroed<CUpti_ActivityKernel9>();
  record.start = 5000;
  record.end = 7500;
  record.submitted = 4500;  // queued stays 0: not taken
  record.deviceId = 1;
  record.contextId = 2;
  record.streamId = 13;
  record.correlationId = 99;
  record.gridX = 128, record.gridY = 2, record.gridZ = 3;
  record.blockX = 256, record.blockY = 4, record.blockZ = 1;
  record.clusterX = 2, record.clusterY = 1, record.clusterZ = 1;
  record.registersPerThread = 40;
  record.staticSharedMemory = 1024;
  record.dynamicSharedMemory = 2048;
  record.localMemoryPerThread = 16;
  record.graphId = 5;
  record.graphNodeId = 0x500000007;
  const KernelRecord row = to_kernel(record, kClock);
  CHECK(row.start_ns == 4000 && row.end_ns == 6500 && row.submitted_ns == 3500);
  CHECK(row.queued_ns == kNullI64);
  CHECK(row.device_id == 1 && row.context_id == 2 && row.stream_id == 13 && row.correlation_id == 99);
  CHECK(row.grid_x == 128 && row.grid_y == 2 && row.grid_z == 3);
  CHECK(row.block_x == 256 && row.block_y == 4 && row.block_z == 1);
  CHECK(row.cluster_x == 2 && row.cluster_y == 1 && row.cluster_z == 1);
  CHECK(row.registers == 40 && row.static_shared_bytes == 1024 && row.dynamic_shared_bytes == 2048);
  CHECK(row.local_bytes == 16);
  CHECK(row.graph_id == 5 && row.graph_node_id == 0x500000007);
  CHECK(row.thread_id == kNullI32 && row.op_id == kNullI64);  // filled when the trace is sealed
}

void test_kernel_without_graph_or_cluster() {
  const KernelRecord row = to_kernel(zeroed<CUpti_ActivityKernel9>(), kClock);
  CHECK(row.graph_id == kNullI64 && row.graph_node_id == kNullI64);
  CHECK(row.cluster_x == kNullI32);
  CHECK(row.start_ns == kNullI64);
}

void test_whole_graph() {
  auto record = zeroed<CUpti_ActivityGraphTrace>();
  record.start = 5000;
  record.end = 7500;
  record.deviceId = 1, record.contextId = 2, record.streamId = 13, record.correlationId = 99, record.graphId = 5;
  const KernelRecord row = to_kernel(record, kClock);
  CHECK(row.start_ns == 4000 && row.end_ns == 6500);
  CHECK(row.device_id == 1 && row.context_id == 2 && row.stream_id == 13 && row.correlation_id == 99);
  CHECK(row.graph_id == 5 && row.graph_node_id == kNullI64 && row.grid_x == kNullI32);
}

#if CUPTI_API_VERSION >= 130500
// A newer library's record begins with the older one: the fields that are read lie where they lay.
#define SAME(newer, older, field) static_assert(offsetof(newer, field) == offsetof(older, field))
SAME(CUpti_ActivityKernel13, CUpti_ActivityKernel9, clusterZ);
SAME(CUpti_ActivityKernel13, CUpti_ActivityKernel9, graphId);
SAME(CUpti_ActivityKernel13, CUpti_ActivityKernel9, correlationId);
SAME(CUpti_ActivityMemcpy7, CUpti_ActivityMemcpy5, graphId);
SAME(CUpti_ActivityMemset5, CUpti_ActivityMemset4, graphId);
SAME(CUpti_ActivityMemory4, CUpti_ActivityMemory3, memoryPoolConfig);
SAME(CUpti_ActivityUnifiedMemoryCounter3, CUpti_ActivityUnifiedMemoryCounter2, flags);
SAME(CUpti_ActivityDevice6, CUpti_ActivityDevice4, name);
SAME(CUpti_ActivityGraphTrace2, CUpti_ActivityGraphTrace, streamId);
SAME(CUpti_ActivityContext4, CUpti_ActivityContext, computeApiKind);
#endif

void test_copies() {
  auto record = zeroed<CUpti_ActivityMemcpy5>();
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
  record.srcKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  record.dstKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.flags = CUPTI_ACTIVITY_FLAG_MEMCPY_ASYNC;
  record.bytes = uint64_t{5} << 30;
  record.deviceId = 3;
  MemcpyRecord row = to_memcpy(record, kClock);
  CHECK(row.kind == MemcpyKind::h2d && row.src_kind == MemoryKind::pinned && row.dst_kind == MemoryKind::device);
  CHECK(row.asynchronous == Bool::yes && row.bytes == int64_t{5} << 30);
  CHECK(row.src_device_id == kNullI32 && row.dst_device_id == 3);
  record.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_DTOH;
  record.flags = 0;
  row = to_memcpy(record, kClock);
  CHECK(row.kind == MemcpyKind::d2h && row.src_device_id == 3 && row.dst_device_id == kNullI32);
  CHECK(row.asynchronous == Bool::no);

  auto peer = zeroed<CUpti_ActivityMemcpyPtoP4>();
  peer.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_PTOP;
  peer.srcDeviceId = 0;
  peer.dstDeviceId = 1;
  row = to_memcpy(peer, kClock);
  CHECK(row.kind == MemcpyKind::p2p && row.src_device_id == 0 && row.dst_device_id == 1);
}

void test_memory() {
  auto record = zeroed<CUpti_ActivityMemory3>();
  record.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
  record.address = 0x7f0000000000;
  record.bytes = 4096;
  record.timestamp = 2000;
  AllocRecord row = to_alloc(record, kClock);
  CHECK(row.action == AllocAction::alloc && row.kind == MemoryKind::managed);
  CHECK(row.address == 0x7f0000000000 && row.bytes == 4096 && row.start_ns == 1000);
  record.memoryOperationType = CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  record.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  row = to_alloc(record, kClock);
  CHECK(row.action == AllocAction::free && row.kind == MemoryKind::pool);
}

void test_unified_memory() {
  auto record = zeroed<CUpti_ActivityUnifiedMemoryCounter2>();
  record.counterKind = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_BYTES_TRANSFER_HTOD;
  record.value = 65536;
  record.address = 0x10000;
  record.srcId = UINT32_MAX;
  record.dstId = 0;
  record.flags = CUPTI_ACTIVITY_UNIFIED_MEMORY_MIGRATION_CAUSE_USER;
  UvmRecord row = to_uvm(record, kClock);
  CHECK(row.kind == UvmKind::migrate_h2d && row.bytes == 65536 && row.address == 0x10000);
  CHECK(row.src_device_id == kNullI32 && row.dst_device_id == 0 && row.count == kNullI64);
  CHECK(uvm_cause(record) == "prefetch");
  record.counterKind = CUPTI_ACTIVITY_UNIFIED_MEMORY_COUNTER_KIND_GPU_PAGE_FAULT;
  record.value = 12;
  record.srcId = 0;
  record.flags = CUPTI_ACTIVITY_UNIFIED_MEMORY_ACCESS_TYPE_WRITE;
  row = to_uvm(record, kClock);
  CHECK(row.kind == UvmKind::fault_gpu && row.count == 12 && row.bytes == kNullI64 && row.src_device_id == 0);
  CHECK(uvm_cause(record) == "write");
}

void test_api() {
  auto call = zeroed<CUpti_ActivityAPI>();
  call.kind = CUPTI_ACTIVITY_KIND_DRIVER;
  call.threadId = 4711;
  call.correlationId = 8;
  call.returnValue = 2;
  const ApiRecord api = to_api(call, kClock);
  CHECK(api.api == Api::cuda_driver && api.thread_id == 4711 && api.correlation_id == 8 && api.result == 2);
}

void test_names() {
  CHECK(collective_kind("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)") == "all_reduce");
  CHECK(collective_kind("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)") == "send_recv");
  CHECK(collective_kind("void vectorAdd(float*)").empty());
  for (const char* name : {"cudaLaunchKernel_v7000", "cuLaunchKernelEx", "__cudaLaunchKernel_v13000", "cudaMalloc_v3020",
                           "cudaMemcpyAsync_v3020", "cudaGraphLaunch_v10000", "cuMemAlloc_v2",
                           "cudaDeviceSynchronize_v3020", "cudaFree_v3020", "cuModuleLoadData"}) {
    CHECK(is_selected_call(name));
  }
  // torch makes these around every launch.
  for (const char* name : {"cudaGetDevice_v3020", "cudaSetDevice_v3020", "cudaGetLastError_v3020",
                           "cudaStreamIsCapturing_v10000", "cudaPeekAtLastError_v3020", "cuGetProcAddress_v2"}) {
    CHECK(!is_selected_call(name));
  }
  CHECK(to_sync_kind("cudaDeviceSynchronize_v3020") == SyncKind::context);
  CHECK(to_sync_kind("cuStreamSynchronize") == SyncKind::stream);
  CHECK(to_sync_kind("cudaEventSynchronize_v3020") == SyncKind::event);
  CHECK(to_sync_kind("cudaStreamWaitEvent_v3020") == SyncKind::stream_event);
  CHECK(to_sync_kind("cudaLaunchKernel_v7000") == SyncKind::null);
  CHECK(fault(700) == "illegal address" && fault(719) == "launch failure");  // cudaErrorIllegalAddress, -LaunchFailure
  CHECK(fault(0).empty() && fault(2).empty() && fault(600).empty());  // success, out of memory, not ready
  CUuuid uuid;
  for (int i = 0; i < 16; ++i) uuid.bytes[i] = static_cast<char>(i * 17);
  char text[41];
  format_uuid(uuid, text);
  CHECK(std::strcmp(text, "GPU-00112233-4455-6677-8899-aabbccddeeff") == 0);
}

}  // namespace

int main() {
  test_clock();
  test_kernel();
  test_kernel_without_graph_or_cluster();
  test_whole_graph();
  test_copies();
  test_memory();
  test_unified_memory();
  test_api();
  test_names();
  return g_failures == 0 ? 0 : 1;
}

#else

int main() { return 77; }  // built without CUPTI's headers

#endif
