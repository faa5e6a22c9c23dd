// NCCL's annotations: each of its calls is a range of domain "NCCL" with a payload: bytes, communicator, peer. They
// become rows of `collective`; sealing joins them with the kernels (pasta/trace/collectives.py).
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "backends/nvtx/payload.h"

namespace pasta::nvtx {

// "all_reduce" for "ncclAllReduce"; empty for a call that sends nothing.
std::string_view nccl_kind(std::string_view call);

class Nccl {
 public:
  // True when rows of `collective` are wanted, and the calls by which they find their kernels.
  static bool wanted();

  // A call begins and ends on this thread; calls nest.
  void begin(std::string_view call, Schemas& schemas, const nvtxPayloadData_t* payloads, size_t count);
  void end(Schemas& schemas, const nvtxPayloadData_t* payloads, size_t count);

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, int32_t> group_sizes_;  // by communicator
};

}  // namespace pasta::nvtx
