#include "backends/opencl/command.h"

namespace pasta::opencl {

Command::Command(Entry entry, cl_command_queue queue, cl_event* event, bool wanted) noexcept
    : call_(entry), event_(event) {
  guard([&] {
    if (!wanted) return;
    queue_ = find_queue(queue);
    timed_ = queue_ != nullptr && queue_->profiled && queue_->pending.has_room();
    if (timed_ && event == nullptr) event_ = &own_event_;
  });
}

void Command::emit_without_times(const CommandRecord& record) {
  emit_untimed(record, call_.start_ns());
  if (queue_->profiled) {
    report_loss("opencl", "", 1, "no times: too many commands waited for their end",
                "call clFinish now and then");
  } else {
    report_loss("opencl", "", 1, "no times: the driver made the queue without profiling");
  }
}

}  // namespace pasta::opencl
