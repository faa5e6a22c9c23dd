// CUPTI activity records to rows of the schema: pure functions, testable without a GPU.
//
// The structs are those of CUDA 12.0. CUPTI grows them at their end under new names, so that a newer library's
// record begins with one of these, and they build against the headers of any version since.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <string_view>

#include "schema/tables.h"

namespace pasta::cupti {

// Both clocks at one moment; `error_ns` is the time that reading them took.
struct ClockReading {
  int64_t cupti = 0, session_ns = 0, error_ns = 0;
};

// CUPTI's clock to the session's: the line through two readings around the records. CUPTI counts nanoseconds
// unless the program gave it another clock (torch.profiler gives it the TSC), so the slope counts too.
struct ClockMap {
  ClockReading begin, end;

  // CUPTI writes 0 for a time that it did not take.
  int64_t place(uint64_t timestamp) const;
};

// The text columns (name, mangled) are left to the caller: they need the session's string table.
KernelRecord to_kernel(const CUpti_ActivityKernel9& record, const ClockMap& clock);
KernelRecord to_kernel(const CUpti_ActivityGraphTrace& record, const ClockMap& clock);  // a whole graph
MemcpyRecord to_memcpy(const CUpti_ActivityMemcpy5& record, const ClockMap& clock);
MemcpyRecord to_memcpy(const CUpti_ActivityMemcpyPtoP4& record, const ClockMap& clock);
MemsetRecord to_memset(const CUpti_ActivityMemset4& record, const ClockMap& clock);
AllocRecord to_alloc(const CUpti_ActivityMemory3& record, const ClockMap& clock);
UvmRecord to_uvm(const CUpti_ActivityUnifiedMemoryCounter2& record, const ClockMap& clock);
ApiRecord to_api(const CUpti_ActivityAPI& record, const ClockMap& clock);
DeviceRecord to_device(const CUpti_ActivityDevice4& record);
ContextRecord to_context(const CUpti_ActivityContext& record);
StreamRecord to_stream(const CUpti_ActivityStream& record);

MemoryKind to_memory_kind(uint32_t kind);
// Why pages moved or were mapped; empty where the record does not tell.
std::string_view uvm_cause(const CUpti_ActivityUnifiedMemoryCounter2& record);
// "all_reduce" for "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)"; empty for a kernel that is no collective.
std::string_view collective_kind(std::string_view kernel_name);
// "GPU-01234567-89ab-..." as nvidia-smi prints it.
void format_uuid(const CUuuid& uuid, char (&text)[41]);
// What a call waits for; SyncKind::null for a call that waits for nothing. CUPTI_ACTIVITY_KIND_SYNCHRONIZATION would
// also tell the stream, but enabling it costs 2-3 us a launch, synchronisation or not (measured, H200, CUPTI 13.0).
SyncKind to_sync_kind(std::string_view name);
// What a kernel did, of a call's result that ends the context (driver and runtime share the numbers); empty for others.
std::string_view fault(int32_t result);
// The calls that move, launch, create or wait; the others are recorded with -t api=all. `name` is CUPTI's
// callback name, for example cudaLaunchKernel_v7000.
bool is_selected_call(std::string_view name);

}  // namespace pasta::cupti
