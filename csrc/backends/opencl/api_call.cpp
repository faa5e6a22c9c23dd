#include "backends/opencl/api_call.h"

#include "backends/opencl/guard.h"
#include "backends/opencl/objects.h"

namespace pasta::opencl {
namespace {

StringId name_of(Entry entry) {
  std::atomic<uint32_t>& cached = state().entry_names[static_cast<size_t>(entry)];
  StringId id{cached.load(std::memory_order_relaxed)};
  if (id.value == 0) {
    id = intern(entry_name(entry));
    cached.store(id.value, std::memory_order_relaxed);
  }
  return id;
}

}  // namespace

bool records_calls(Entry entry) {
  const State& known = state();
  return known.wants_api && (interest(entry) == Interest::call || known.wants_all_api);
}

int64_t ApiCall::finish(cl_int result) noexcept {
  const int64_t end_ns = now_ns();
  guard([&] {
    if (!collecting() || !records_calls(entry_)) return;
    ApiRecord row;
    row.start_ns = start_ns_;
    row.end_ns = end_ns;
    row.thread_id = thread_id();
    row.api = Api::opencl;
    row.name = name_of(entry_);
    row.result = result;
    row.correlation_id = correlation_id_;
    row.op_id = op_id_;
    emit(row);
  });
  return end_ns;
}

}  // namespace pasta::opencl
