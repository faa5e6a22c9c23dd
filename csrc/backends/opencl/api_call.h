// One call of OpenCL by the program: its row of `api`.
#pragma once

#include <cstdint>

#include "backends/opencl/cl_api.h"
#include "backends/opencl/entry.h"
#include "session/session.h"

namespace pasta::opencl {

// True when -t/--trace asks for rows of this function.
bool records_calls(Entry entry);

class ApiCall {
 public:
  explicit ApiCall(Entry entry)
      : entry_(entry), op_id_(current_op()), correlation_id_(next_id()), start_ns_(now_ns()) {}

  int64_t start_ns() const { return start_ns_; }
  int64_t correlation_id() const { return correlation_id_; }
  int64_t op_id() const { return op_id_; }

  // The call returned. Writes its row while collecting, and returns the time.
  int64_t finish(cl_int result) noexcept;

 private:
  Entry entry_;
  int64_t op_id_, correlation_id_, start_ns_;
};

}  // namespace pasta::opencl
