// The trace -> the same tables as the counters give, and what only a trace can say.
//
// This is the reference analysis on the CPU: it looks at every access, and shares no code with the
// reduction on the device.
#pragma once

#include <cstdint>

#include "device/opencl/binding.h"
#include "device/opencl/decode.h"
#include "device/opencl/layout.h"
#include "device/opencl/plan.h"

namespace pasta::memory {

// Of sub-groups, see Reducers.
struct TraceOptions {
  uint32_t width = 32;
  uint32_t banks = kBanks;
};

// Fills all of LaunchAccess. Accesses that found no room in the trace are missing, and counted in
// trace_lost.
LaunchAccess reduce_trace(const KernelPlan& plan, const Binding& binding, const uint8_t* slot,
                          uint64_t bytes, const TraceOptions& options);

}  // namespace pasta::memory
