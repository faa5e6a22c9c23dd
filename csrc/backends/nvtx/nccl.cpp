#include "backends/nvtx/nccl.h"

#include <cstdio>
#include <vector>

#include "session/session.h"

namespace pasta::nvtx {
namespace {

// Names of fields in NCCL's schemas (src/include/nvtx_payload_schemas.h of NCCL 2.28).
constexpr std::string_view kCommunicator = "NCCL communicator ID", kBytes = "Message size [bytes]",
                           kPeer = "Peer rank", kRanks = "No. of ranks";

// Calls of this thread that have not returned; `kind` is empty for those that are no row.
thread_local std::vector<CollectiveRecord> t_open;

}  // namespace

std::string_view nccl_kind(std::string_view call) {
  struct Kind {
    std::string_view call, kind;
  };
  constexpr Kind kKinds[] = {
      {"ncclAllReduce", "all_reduce"}, {"ncclAllGather", "all_gather"}, {"ncclReduceScatter", "reduce_scatter"},
      {"ncclBroadcast", "broadcast"},  {"ncclReduce", "reduce"},        {"ncclAlltoAll", "all_to_all"},
      {"ncclGather", "gather"},        {"ncclScatter", "scatter"},      {"ncclSend", "send"},
      {"ncclRecv", "recv"},
  };
  for (const Kind& kind : kKinds) {
    if (kind.call == call) return kind.kind;
  }
  return {};
}

bool Nccl::wanted() { return traces(TableId::collective) && traces(TableId::api); }

void Nccl::begin(std::string_view call, Schemas& schemas, const nvtxPayloadData_t* payloads, size_t count) {
  CollectiveRecord& row = t_open.emplace_back();
  const std::string_view kind = nccl_kind(call);
  const auto bytes = schemas.integer(payloads, count, kBytes);
  if (kind.empty() || !bytes || !collecting() || !wanted()) return;
  row.start_ns = now_ns();
  row.thread_id = thread_id();
  row.op_id = current_op();
  row.kind = intern(kind);
  row.bytes = static_cast<int64_t>(*bytes);
  if (const auto peer = schemas.integer(payloads, count, kPeer)) row.peer = static_cast<int32_t>(*peer);
  if (const auto communicator = schemas.integer(payloads, count, kCommunicator)) {
    char text[17];
    std::snprintf(text, sizeof(text), "%llx", static_cast<unsigned long long>(*communicator));
    row.group = intern(text);
    std::lock_guard lock(mutex_);
    if (const auto size = group_sizes_.find(*communicator); size != group_sizes_.end()) row.group_size = size->second;
  }
}

void Nccl::end(Schemas& schemas, const nvtxPayloadData_t* payloads, size_t count) {
  // The call that makes a communicator tells its id when it returns.
  const auto communicator = schemas.integer(payloads, count, kCommunicator);
  const auto ranks = schemas.integer(payloads, count, kRanks);
  if (communicator && ranks) {
    std::lock_guard lock(mutex_);
    group_sizes_[*communicator] = static_cast<int32_t>(*ranks);
  }
  if (t_open.empty()) return;
  CollectiveRecord row = t_open.back();
  t_open.pop_back();
  if (row.bytes == kNullI64) return;
  row.end_ns = now_ns();
  emit(row);
}

}  // namespace pasta::nvtx
