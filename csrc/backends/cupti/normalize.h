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

// CUPTI's clock to the session's: both count nanoseconds, so one offset places them.
struct ClockOffset {
  int64_t ns = 0;
  // CUPTI writes 0 for a time that it did not take.
  int64_t place(uint64_t timestamp) const {
    return timestamp == 0 ? kNullI64 : static_cast<int64_t>(timestamp) + ns;
  }
};

// The text columns (name, mangled) are left to the caller: they need the session's string table.
KernelRecord to_kernel(const CUpti_ActivityKernel9& record, ClockOffset clock);
MemcpyRecord to_memcpy(const CUpti_ActivityMemcpy5& record, ClockOffset clock);
MemcpyRecord to_memcpy(const CUpti_ActivityMemcpyPtoP4& record, ClockOffset clock);
MemsetRecord to_memset(const CUpti_ActivityMemset4& record, ClockOffset clock);
SyncRecord to_sync(const CUpti_ActivitySynchronization& record, ClockOffset clock);
AllocRecord to_alloc(const CUpti_ActivityMemory3& record, ClockOffset clock);
UvmRecord to_uvm(const CUpti_ActivityUnifiedMemoryCounter2& record, ClockOffset clock);
ApiRecord to_api(const CUpti_ActivityAPI& record, ClockOffset clock);
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
// The calls that move, launch, create or wait; the others are recorded with -t api=all. `name` is CUPTI's
// callback name, for example cudaLaunchKernel_v7000.
bool is_selected_call(std::string_view name);

}  // namespace pasta::cupti
