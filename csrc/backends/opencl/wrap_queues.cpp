// Command queues. Device times need profiling; where the program does not ask for it, we do, and
// its questions are answered as if we had not.
#include <cstring>
#include <memory>

#include "backends/opencl/api_call.h"
#include "backends/opencl/creation.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/harvest.h"
#include "backends/opencl/memory_results.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/queues.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

// Device times are wanted, and the program's queue would not have them. A queue on the device takes
// no commands from the host.
bool adds_profiling(cl_command_queue_properties flags) {
  const State& known = state();
  const bool wants_times = known.wants_kernels || known.wants_copies || known.wants_fills;
  return wants_times && (flags & (CL_QUEUE_PROFILING_ENABLE | CL_QUEUE_ON_DEVICE)) == 0;
}

cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                          cl_command_queue_properties flags, cl_int* error) {
  const auto function = next(context).clCreateCommandQueue;
  if (!recording()) return function(context, device, flags, error);
  Creation creation(Entry::clCreateCommandQueue, error);
  cl_command_queue queue = nullptr;
  bool hides = adds_profiling(flags);
  if (hides) queue = function(context, device, flags | CL_QUEUE_PROFILING_ENABLE, creation.error());
  if (queue == nullptr) {
    hides = false;
    queue = function(context, device, flags, creation.error());
  }
  return creation.finish(queue, [&] { add_queue(queue, hides, {}); });
}

cl_command_queue CL_API_CALL create_queue_with_properties(cl_context context, cl_device_id device,
                                                          const cl_queue_properties* properties,
                                                          cl_int* error) {
  return create_queue_by_list(Entry::clCreateCommandQueueWithProperties,
                              next(context).clCreateCommandQueueWithProperties, context, device,
                              properties, error);
}

cl_int CL_API_CALL retain_queue(cl_command_queue queue) {
  const auto function = next(queue).clRetainCommandQueue;
  if (!recording()) return function(queue);
  ApiCall call(Entry::clRetainCommandQueue);
  const cl_int result = function(queue);
  call.finish(result);
  guard([&] {
    const auto known = result == CL_SUCCESS ? find_queue(queue) : nullptr;
    if (known != nullptr) ++known->references;
  });
  return result;
}

cl_int CL_API_CALL release_queue(cl_command_queue queue) {
  const auto function = next(queue).clReleaseCommandQueue;
  if (!recording()) return function(queue);
  std::shared_ptr<Queue> known;
  guard([&] {
    known = state().queues.find(queue).value_or(nullptr);
    if (known != nullptr) harvest(*known);
  });
  ApiCall call(Entry::clReleaseCommandQueue);
  const cl_int result = function(queue);
  call.finish(result);
  guard([&] {
    if (known == nullptr || result != CL_SUCCESS || --known->references != 0) return;
    StreamRecord row;
    row.stream_id = known->id;
    row.end_ns = now_ns();
    emit(row);
    release_results(*known);
  });
  return result;
}

// Answers as the clGet*Info functions do.
cl_int answer(const void* value, size_t bytes, size_t capacity, void* out, size_t* bytes_out) {
  if (out != nullptr && capacity < bytes) return CL_INVALID_VALUE;
  if (out != nullptr && bytes > 0) std::memcpy(out, value, bytes);
  if (bytes_out != nullptr) *bytes_out = bytes;
  return CL_SUCCESS;
}

cl_int CL_API_CALL get_queue_info(cl_command_queue queue, cl_command_queue_info which,
                                  size_t capacity, void* value, size_t* bytes) {
  const auto function = next(queue).clGetCommandQueueInfo;
  if (!recording()) return function(queue, which, capacity, value, bytes);
  std::shared_ptr<Queue> hiding;
  if (which == CL_QUEUE_PROPERTIES || which == CL_QUEUE_PROPERTIES_ARRAY) {
    guard([&] { hiding = find_hiding_queue(queue); });
  }
  ApiCall call(Entry::clGetCommandQueueInfo);
  cl_int result = function(queue, which, capacity, value, bytes);
  if (hiding != nullptr && which == CL_QUEUE_PROPERTIES && result == CL_SUCCESS &&
      value != nullptr) {
    *static_cast<cl_command_queue_properties*>(value) &=
        ~cl_command_queue_properties{CL_QUEUE_PROFILING_ENABLE};
  }
  if (hiding != nullptr && which == CL_QUEUE_PROPERTIES_ARRAY) {
    // Our list is longer than the program's: the runtime may have found the program's buffer too
    // small. A runtime before 3.0 does not know the question at all.
    size_t known_bytes = 0;
    if (function(queue, which, 0, nullptr, &known_bytes) == CL_SUCCESS) {
      const QueueProperties& list = hiding->properties;
      result = answer(list.data(), list.size() * sizeof(list[0]), capacity, value, bytes);
    }
  }
  call.finish(result);
  return result;
}

}  // namespace

cl_command_queue create_queue_by_list(Entry entry, CreateQueueByList function, cl_context context,
                                      cl_device_id device, const cl_queue_properties* properties,
                                      cl_int* error) {
  if (!recording()) return function(context, device, properties, error);
  Creation creation(entry, error);
  cl_command_queue queue = nullptr;
  bool hides = false;
  QueueProperties list;
  guard([&] {
    list = copy_properties(properties);
    if (!adds_profiling(queue_flags(list))) return;
    queue = function(context, device, with_profiling(list).data(), creation.error());
    hides = queue != nullptr;
  });
  if (!hides) queue = function(context, device, properties, creation.error());
  return creation.finish(queue, [&] { add_queue(queue, hides, std::move(list)); });
}

std::shared_ptr<Queue> find_hiding_queue(cl_command_queue queue) {
  const auto known = state().queues.find(queue);
  return known && (*known)->hides_profiling ? *known : nullptr;
}

void wrap_queues(Dispatch& table) {
  table.clCreateCommandQueue = create_queue;
  table.clCreateCommandQueueWithProperties = create_queue_with_properties;
  table.clRetainCommandQueue = retain_queue;
  table.clReleaseCommandQueue = release_queue;
  table.clGetCommandQueueInfo = get_queue_info;
}

}  // namespace pasta::opencl
