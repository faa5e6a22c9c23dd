// Where the host waits for the device (the rows of `sync`), and the program's own look at event
// times.
#include <memory>

#include "backends/opencl/api_call.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/harvest.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/query.h"
#include "backends/opencl/queues.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

// A wait of the host that ended at `end_ns`. `queue` may be null: the events are of several, or of
// the program.
void emit_sync(SyncKind kind, const ApiCall& call, int64_t end_ns, const Queue* queue) {
  if (!collecting()) return;
  SyncRecord row;
  row.start_ns = call.start_ns();
  row.end_ns = end_ns;
  row.thread_id = thread_id();
  if (queue != nullptr) {
    row.device_id = queue->device->id;
    row.context_id = queue->context->id;
    row.stream_id = queue->id;
  }
  row.correlation_id = call.correlation_id();
  row.op_id = call.op_id();
  row.kind = kind;
  emit(row);
}

cl_int CL_API_CALL finish(cl_command_queue queue) {
  const auto function = next(queue).clFinish;
  if (!recording()) return function(queue);
  ApiCall call(Entry::clFinish);
  const cl_int result = function(queue);
  const int64_t end_ns = call.finish(result);
  guard([&] {
    const auto known = result == CL_SUCCESS ? find_queue(queue) : nullptr;
    if (known == nullptr) return;
    emit_sync(SyncKind::stream, call, end_ns, known.get());
    harvest(*known);
  });
  return result;
}

// The queue of an event; null for a user event.
std::shared_ptr<Queue> queue_of(cl_event event) {
  const auto handle =
      query<cl_command_queue>(next(event).clGetEventInfo, event, CL_EVENT_COMMAND_QUEUE, nullptr);
  return handle == nullptr ? nullptr : find_queue(handle);
}

cl_int CL_API_CALL wait_for_events(cl_uint count, const cl_event* events) {
  const bool has_event = count > 0 && events != nullptr;
  const auto function = next(has_event ? events[0] : nullptr).clWaitForEvents;
  if (!recording()) return function(count, events);
  ApiCall call(Entry::clWaitForEvents);
  const cl_int result = function(count, events);
  const int64_t end_ns = call.finish(result);
  guard([&] {
    if (result != CL_SUCCESS || !has_event) return;
    const std::shared_ptr<Queue> first = queue_of(events[0]);
    std::shared_ptr<Queue> last = first;
    bool same = true;
    if (first != nullptr) harvest(*first);
    for (cl_uint i = 1; i < count; ++i) {
      const std::shared_ptr<Queue> queue = queue_of(events[i]);
      if (queue != nullptr && queue != last) harvest(*queue);
      same = same && queue == first;
      last = queue;
    }
    emit_sync(SyncKind::event, call, end_ns, same ? first.get() : nullptr);
  });
  return result;
}

// What makes a queue wait for events takes effect later, on the device: the row has the time of the
// call.
void emit_queue_wait(const ApiCall& call, int64_t end_ns, cl_command_queue queue, cl_int result,
                     cl_uint events) {
  guard([&] {
    if (result != CL_SUCCESS || events == 0) return;
    if (const auto known = find_queue(queue))
      emit_sync(SyncKind::stream_event, call, end_ns, known.get());
  });
}

cl_int CL_API_CALL barrier_with_wait_list(cl_command_queue queue, cl_uint count,
                                          const cl_event* events, cl_event* event) {
  const auto function = next(queue).clEnqueueBarrierWithWaitList;
  if (!collecting()) return function(queue, count, events, event);
  ApiCall call(Entry::clEnqueueBarrierWithWaitList);
  const cl_int result = function(queue, count, events, event);
  emit_queue_wait(call, call.finish(result), queue, result, count);
  return result;
}

cl_int CL_API_CALL enqueue_wait(cl_command_queue queue, cl_uint count, const cl_event* events) {
  const auto function = next(queue).clEnqueueWaitForEvents;
  if (!collecting()) return function(queue, count, events);
  ApiCall call(Entry::clEnqueueWaitForEvents);
  const cl_int result = function(queue, count, events);
  emit_queue_wait(call, call.finish(result), queue, result, count);
  return result;
}

cl_int CL_API_CALL get_event_times(cl_event event, cl_profiling_info which, size_t capacity,
                                   void* value, size_t* bytes) {
  const Dispatch& cl = next(event);
  if (!recording()) return cl.clGetEventProfilingInfo(event, which, capacity, value, bytes);
  ApiCall call(Entry::clGetEventProfilingInfo);
  bool hidden = false;
  guard([&] {
    const auto queue =
        query<cl_command_queue>(cl.clGetEventInfo, event, CL_EVENT_COMMAND_QUEUE, nullptr);
    hidden = queue != nullptr && find_hiding_queue(queue) != nullptr;
  });
  const cl_int result = hidden ? CL_PROFILING_INFO_NOT_AVAILABLE
                               : cl.clGetEventProfilingInfo(event, which, capacity, value, bytes);
  call.finish(result);
  return result;
}

}  // namespace

void wrap_waits(Dispatch& table) {
  table.clFinish = finish;
  table.clWaitForEvents = wait_for_events;
  table.clEnqueueBarrierWithWaitList = barrier_with_wait_list;
  table.clEnqueueWaitForEvents = enqueue_wait;
  table.clGetEventProfilingInfo = get_event_times;
}

}  // namespace pasta::opencl
