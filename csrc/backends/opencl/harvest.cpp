#include "backends/opencl/harvest.h"

#include <algorithm>
#include <memory>
#include <string>

#include <time.h>

#include "backends/opencl/dispatch.h"
#include "backends/opencl/memory_results.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/query.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

enum class Outcome { running, timed, untimed, failed };

struct Observation {
  Outcome outcome;
  cl_int status;    // when it is running or failed
  cl_ulong queued;  // 0: not asked for
  cl_ulong submitted, start, end;
};

bool read_time(const Dispatch& cl, cl_event event, cl_profiling_info which, cl_ulong& value) {
  return cl.clGetEventProfilingInfo(event, which, sizeof(value), &value, nullptr) == CL_SUCCESS;
}

bool read_times(const Dispatch& cl, cl_event event, Observation& seen) {
  // END first: while a command runs, that is the only question. A command that never started has
  // START 0.
  return read_time(cl, event, CL_PROFILING_COMMAND_END, seen.end) &&
         read_time(cl, event, CL_PROFILING_COMMAND_START, seen.start) &&
         read_time(cl, event, CL_PROFILING_COMMAND_SUBMIT, seen.submitted) && seen.start != 0 &&
         seen.start <= seen.end;
}

// What the runtime tells about a command now. `queued_too`: for the clock.
Observation observe(cl_event event, bool queued_too) {
  const Dispatch& cl = next(event);
  Observation seen{};
  bool timed = read_times(cl, event, seen);
  if (!timed) {
    const auto status =
        query<cl_int>(cl.clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_COMPLETE);
    seen.status = status;
    seen.outcome = status > CL_COMPLETE ? Outcome::running : Outcome::failed;
    if (status != CL_COMPLETE) return seen;
    timed = read_times(cl, event, seen);  // it may have ended between the two questions
  }
  if (timed && queued_too)
    timed = read_time(cl, event, CL_PROFILING_COMMAND_QUEUED, seen.queued) && seen.queued != 0;
  seen.outcome = timed ? Outcome::timed : Outcome::untimed;
  return seen;
}

const char* table_of(const CommandRecord& record) {
  constexpr const char* names[] = {"kernel", "memcpy", "memset"};
  return names[record.index()];
}

void lose(const PendingCommand& command, std::string_view cause, std::string_view remedy = {}) {
  emit_untimed(command.record, command.before_ns);
  report_loss("opencl", table_of(command.record), 1, cause, remedy);
}

// A pair of readings a second is enough to place the device's clock.
constexpr int64_t kClockRowIntervalNs = 1'000'000'000;

void emit_clock(Device& device, int64_t device_ns) {
  const int64_t session_ns = device.clock.to_session(device_ns);
  if (session_ns < device.next_clock_row_ns) return;
  device.next_clock_row_ns = session_ns + kClockRowIntervalNs;
  ClockRecord row;
  row.start_ns = session_ns;
  row.source = intern("opencl:" + std::to_string(device.id));
  row.source_ns = device_ns;
  row.error_ns = device.clock.error_ns();
  emit(row);
}

void observe_clock(DeviceClock& clock, const PendingCommand& command, const Observation& seen) {
  if (seen.outcome != Outcome::timed || seen.queued == 0) return;
  clock.observe(static_cast<int64_t>(seen.queued), command.before_ns, command.after_ns);
}

// The rows of commands that have times, placed on the session's clock. The clock sees all readings
// before the first row is written, so that a queue's first commands are placed as well as its last;
// then each once more, so that every row lies in its own window even while the clocks drift.
void emit_timed(Device& device, CommandList& commands,
                const std::vector<Observation>& observations) {
  std::lock_guard lock(device.clock_mutex);
  DeviceClock& clock = device.clock;
  for (size_t i = 0; i < observations.size(); ++i)
    observe_clock(clock, commands[i], observations[i]);
  for (size_t i = 0; i < observations.size(); ++i) {
    const Observation& seen = observations[i];
    if (seen.outcome != Outcome::timed) continue;
    observe_clock(clock, commands[i], seen);
    std::visit(
        [&](auto& row) {
          row.queued_ns = commands[i].before_ns;
          row.submitted_ns = clock.to_session(static_cast<int64_t>(seen.submitted));
          row.start_ns = clock.to_session(static_cast<int64_t>(seen.start));
          row.end_ns = clock.to_session(static_cast<int64_t>(seen.end));
          emit(row);
        },
        commands[i].record);
    if (seen.queued != 0) emit_clock(device, static_cast<int64_t>(seen.queued));
  }
}

void emit_lost(const PendingCommand& command, const Observation& seen) {
  if (seen.outcome == Outcome::failed) {
    lose(command, "the command failed on the device with status " + std::to_string(seen.status));
  } else if (seen.outcome == Outcome::untimed) {
    lose(command, "the device reported no usable times", "update the OpenCL driver");
  }
}

// Looks at the commands; `to_first_running`: none behind the first one that runs is expected to
// have ended.
std::vector<Observation> observe_commands(Queue& queue, const CommandList& commands,
                                          bool to_first_running) {
  DeviceClock clock;
  {
    std::lock_guard lock(queue.device->clock_mutex);
    clock = queue.device->clock;
  }
  std::vector<Observation> observations;
  observations.reserve(commands.size());
  for (size_t i = 0; i < commands.size(); ++i) {
    const PendingCommand& command = commands[i];
    observations.push_back(
        observe(command.event, clock.wants(command.before_ns, command.after_ns)));
    observe_clock(clock, command, observations.back());
    if (to_first_running && observations.back().outcome == Outcome::running) break;
  }
  return observations;
}

// Writes what has ended. True when something had, or runs now: when waiting makes sense.
bool harvest_ended(Queue& queue, bool to_first_running) {
  CommandList commands = queue.pending.take();
  const std::vector<Observation> observations = observe_commands(queue, commands, to_first_running);
  emit_timed(*queue.device, commands, observations);

  // From the back, so that what goes on running moves towards the end, in its order.
  bool running = false;
  size_t ended = observations.size();
  for (size_t i = observations.size(); i-- > 0;) {
    const Observation& seen = observations[i];
    if (seen.outcome == Outcome::running) {
      running = running || seen.status == CL_RUNNING;
      --ended;
      if (ended != i) commands[ended] = commands[i];
    } else {
      emit_lost(commands[i], seen);
      next(commands[i].event).clReleaseEvent(commands[i].event);
    }
  }
  commands.remove_front(ended);
  queue.pending.put_back(std::move(commands), now_ns());
  return ended > 0 || running;
}

// The end: writes what can still be known, and that the rest is lost.
void abandon(Queue& queue) {
  if (queue.pending.idle()) return;
  harvest_ended(queue, false);
  CommandList commands = queue.pending.take();
  for (size_t i = 0; i < commands.size(); ++i) {
    const PendingCommand& command = commands[i];
    lose(command, "the command had not ended when the recording did",
         "wait for it (clFinish) before the end");
    next(command.event).clReleaseEvent(command.event);
  }
  commands.remove_front(commands.size());
  queue.pending.put_back(std::move(commands), now_ns());
}

void sleep_ns(int64_t duration) {
  timespec time{duration / 1'000'000'000, duration % 1'000'000'000};
  nanosleep(&time, nullptr);
}

// Without progress for so long, the rest waits for something that the program no longer does.
constexpr int64_t kStalledNs = 200'000'000;
constexpr int64_t kPollNs = 500'000;

}  // namespace

void emit_untimed(const CommandRecord& record, int64_t queued_ns) {
  std::visit(
      [&](auto row) {
        row.queued_ns = queued_ns;
        emit(row);
      },
      record);
}

void harvest(Queue& queue) {
  harvest_ended(queue, !queue.out_of_order);
  harvest_results(queue);
}

void harvest_all(int64_t deadline_ns) {
  const std::vector<std::shared_ptr<Queue>> queues = state().queues.values();
  int64_t progress_ns = now_ns();
  while (true) {
    bool idle = true;
    for (const std::shared_ptr<Queue>& queue : queues) {
      if (queue->pending.idle()) continue;
      if (harvest_ended(*queue, !queue->out_of_order)) progress_ns = now_ns();
      idle = idle && queue->pending.idle();
    }
    const int64_t now = now_ns();
    if (idle || now >= deadline_ns || now - progress_ns >= kStalledNs) break;
    sleep_ns(kPollNs);
  }
  for (const std::shared_ptr<Queue>& queue : queues) {
    abandon(*queue);
    finish_results(*queue);
  }
}

}  // namespace pasta::opencl
