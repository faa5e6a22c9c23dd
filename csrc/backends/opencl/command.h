// One command that the program enqueues: asks for an event where the program gave none, and keeps
// what is known about the command until its times can be read.
//
//   Command command(Entry::clEnqueueFillBuffer, queue, event, state().wants_fills);
//   const cl_int result = function(queue, ..., command.event());
//   return command.finish(result, [&](const Queue& queue) { return MemsetRecord{...}; });
#pragma once

#include <cstdint>
#include <memory>

#include "backends/opencl/api_call.h"
#include "backends/opencl/cl_api.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/harvest.h"
#include "backends/opencl/objects.h"

namespace pasta::opencl {

class Command {
 public:
  // `wanted`: the command's own table is asked for; without it only the call is recorded.
  Command(Entry entry, cl_command_queue queue, cl_event* event, bool wanted) noexcept;

  // Number of the launch in the tables, if this is one.
  int64_t launch_id() const { return call_.correlation_id(); }

  // What to give the runtime as the event to return.
  cl_event* event() { return event_; }

  // The call returned `result`, which is returned. `describe(queue)` makes the record without what
  // all have in common; it is called only when there is a row to write.
  template <class Describe>
  cl_int finish(cl_int result, Describe&& describe) noexcept {
    const int64_t after_ns = call_.finish(result);
    guard([&] {
      if (queue_ == nullptr || result != CL_SUCCESS) return;
      auto row = describe(*queue_);
      row.thread_id = thread_id();
      row.device_id = queue_->device->id;
      row.context_id = queue_->context->id;
      row.stream_id = queue_->id;
      row.correlation_id = call_.correlation_id();
      row.op_id = call_.op_id();
      set_launch_id(row);
      if (!timed_) {
        emit_without_times(row);
      } else {
        if (event_ != &own_event_) next(*event_).clRetainEvent(*event_);
        const bool is_time = queue_->pending.add(*event_, call_.start_ns(), after_ns, row);
        if (is_time || has_waited(row)) harvest(*queue_);
      }
    });
    return result;
  }

 private:
  // One number serves both: ids of calls go up in the order of the calls.
  void set_launch_id(KernelRecord& row) const { row.launch_id = call_.correlation_id(); }
  template <class Record>
  void set_launch_id(Record&) const {}

  void emit_without_times(const CommandRecord& record);

  // A blocking copy or map has ended when it returns, and in a queue in order so has what came
  // before.
  static bool has_waited(const MemcpyRecord& row) { return row.asynchronous == Bool::no; }
  template <class Record>
  static bool has_waited(const Record&) {
    return false;
  }

  ApiCall call_;
  std::shared_ptr<Queue> queue_;  // null when there is no row to write
  bool timed_ = false;            // its times will be read
  cl_event own_event_ = nullptr;
  cl_event* event_;
};

}  // namespace pasta::opencl
