#include "backends/opencl/memory_launch.h"

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/guard.h"
#include "backends/opencl/memory_kernel.h"
#include "backends/opencl/memory_options.h"
#include "backends/opencl/memory_results.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/query.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

using Launched = std::optional<cl_int>;

std::atomic<const std::string*> g_stopped{nullptr};  // why nothing is measured any more

// `after`: what the launch waits for beside the program's own events; may be null.
cl_int enqueue(const KernelLaunch& launch, decltype(Dispatch::clEnqueueNDRangeKernel) function,
               cl_kernel kernel, cl_event after, cl_event* event) {
  std::vector<cl_event> list;
  cl_uint count = launch.wait_count;
  const cl_event* waits = launch.wait_list;
  if (after != nullptr && (count == 0 || waits != nullptr)) {
    list.assign(waits, waits + count);
    list.push_back(after);
    waits = list.data();
    ++count;
  }
  return function(launch.queue, kernel, launch.dimensions, launch.offset, launch.global,
                  launch.local, count, waits, event);
}

ResultBuffer* results_of(Queue& queue, cl_command_queue handle, Unmeasured* why) {
  if (queue.results == nullptr) queue.results = ResultBuffer::make(handle, why);
  if (queue.results != nullptr) return queue.results.get();
  for (const std::shared_ptr<Queue>& other : state().queues.values()) {
    if (other->references <= 0) release_results(*other);
  }
  queue.results = ResultBuffer::make(handle, why);
  return queue.results.get();
}

bool set_hidden_arguments(const MeasuredKernel& kernel, const ResultBuffer& results,
                          uint64_t launch_word) {
  const memory::KernelPlan& plan = kernel.function()->plan();
  const cl_mem buffer = results.handle();
  const auto set = next(kernel.handle()).clSetKernelArg;
  return set(kernel.handle(), plan.buffer_argument(), sizeof(buffer), &buffer) == CL_SUCCESS &&
         set(kernel.handle(), plan.launch_argument(), sizeof(launch_word), &launch_word) ==
             CL_SUCCESS;
}

// Null when the program's own kernel is to run; `*why` has a cause if that is a loss.
Launched try_measured(const KernelLaunch& launch,
                      decltype(Dispatch::clEnqueueNDRangeKernel) function, Unmeasured* why) {
  const auto kernel = find_measured_kernel(launch.kernel);
  const std::shared_ptr<Queue> queue = find_queue(launch.queue);
  if (launch.global == nullptr || launch.dimensions == 0 || launch.dimensions > 3) return {};
  if (const std::string* stopped = g_stopped.load()) {
    why->cause = *stopped;
    return {};
  }
  if (kernel == nullptr || queue == nullptr) {
    why->cause = "the kernel was made before the recording could see it";
    return {};
  }
  if (kernel->function() == nullptr) {
    *why = kernel->why();
    return {};
  }
  std::array<size_t, 3> global = {1, 1, 1};
  for (cl_uint i = 0; i < launch.dimensions; ++i) global[i] = launch.global[i];
  if (!kernel->function()->samples(global)) return {};

  std::lock_guard kernel_lock(kernel->mutex());
  if (!kernel->why().cause.empty()) {
    *why = kernel->why();
    return {};
  }
  std::lock_guard results_lock(queue->results_mutex);
  ResultBuffer* const results = results_of(*queue, launch.queue, why);
  if (results == nullptr) return {};
  *why = {};
  const auto binding = kernel->binding(results->limits());
  const auto place = results->place(binding);
  if (!place) {
    *why = {"the counts of a launch found no room", "raise --memory-buffer"};
    return {};
  }

  cl_event own_event = nullptr;
  cl_event* const event = launch.event != nullptr ? launch.event : &own_event;
  cl_int result = CL_INVALID_KERNEL_ARGS;
  if (set_hidden_arguments(*kernel, *results, place->launch_word)) {
    cl_event after = queue->out_of_order ? results->ready() : nullptr;
    result = enqueue(launch, function, kernel->handle(), after, event);
  }
  const bool launched = result == CL_SUCCESS;
  if (launched) {
    const uint64_t work_items = uint64_t{global[0]} * global[1] * global[2];
    if (own_event == nullptr) next(*event).clRetainEvent(*event);
    results->add({launch.id, kernel->function(), binding, place->slot_offset, work_items, *event});
  } else {
    *why = {"the driver does not launch the measured kernel: status " + std::to_string(result), ""};
  }
  return launched ? Launched(result) : Launched();
}

std::shared_ptr<const MeasuredProgram> measured_program(cl_program handle) {
  const std::shared_ptr<Program> program = find_program(handle);
  // Two threads that make the first kernels of a program: the second waits for the build.
  std::lock_guard lock(program->measured_mutex);
  if (program->measured == nullptr) {
    program->measured = MeasuredProgram::make(handle, program->constants, program->parts);
  }
  return program->measured;
}

}  // namespace

bool measures_memory() {
  static const bool measures = memory_options().measures_anything();
  return measures;
}

void stop_measuring(std::string cause) {
  const std::string* const known = new std::string(std::move(cause));
  const std::string* none = nullptr;
  if (!g_stopped.compare_exchange_strong(none, known)) delete known;
}

std::shared_ptr<MeasuredKernel> find_measured_kernel(cl_kernel kernel) {
  return state().measured_kernels.find(kernel).value_or(nullptr);
}

cl_int launch_measured(const KernelLaunch& launch,
                       decltype(Dispatch::clEnqueueNDRangeKernel) function) noexcept {
  Launched launched;
  Unmeasured why;
  guard([&] { launched = try_measured(launch, function, &why); });
  if (launched) return *launched;
  const cl_int result = enqueue(launch, function, launch.kernel, nullptr, launch.event);
  if (result == CL_SUCCESS && !why.cause.empty()) {
    report_loss("opencl", "access_object", 1, why.cause, why.remedy);
  }
  return result;
}

void add_measured_kernel(cl_kernel kernel) {
  if (!measures_memory()) return;
  state().measured_kernels.take(kernel);
  const auto info = next(kernel).clGetKernelInfo;
  const auto program = query<cl_program>(info, kernel, CL_KERNEL_PROGRAM, nullptr);
  if (program == nullptr) return;
  state().measured_kernels.set(
      kernel, MeasuredKernel::make(measured_program(program),
                                   query_text(info, kernel, CL_KERNEL_FUNCTION_NAME)));
}

void add_measured_clone(cl_kernel source, cl_kernel copy) {
  if (!measures_memory()) return;
  state().measured_kernels.take(copy);
  if (const auto known = find_measured_kernel(source))
    state().measured_kernels.set(copy, known->clone());
}

}  // namespace pasta::opencl
