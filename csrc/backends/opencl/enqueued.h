// The wrapper of a function that enqueues a command, made from the one thing that differs: what its
// record says.
//
//   MemsetRecord fill_buffer(const Queue& queue, cl_mem buffer, ...) { ... }  // as the function's
//   table.clEnqueueFillBuffer = PASTA_ENQUEUED(clEnqueueFillBuffer, fill_buffer);
#pragma once

#include <tuple>
#include <type_traits>

#include "backends/opencl/command.h"
#include "backends/opencl/dispatch.h"
#include "session/session.h"

namespace pasta::opencl {

template <class Record>
bool wants() {
  if constexpr (std::is_same_v<Record, MemcpyRecord>) return state().wants_copies;
  if constexpr (std::is_same_v<Record, MemsetRecord>) return state().wants_fills;
  if constexpr (std::is_same_v<Record, KernelRecord>) return state().wants_kernels;
}

// Where a wrapper finds the function that it stands in front of: in the table of the queue's
// runtime.
template <auto Member>
struct InTable {
  static auto find(cl_command_queue queue) { return next(queue).*Member; }
};

template <class Source, Entry entry, auto describe, class Function>
struct Enqueued;

// `Arguments` end with the event to return.
template <class Source, Entry entry, auto describe, class... Arguments>
struct Enqueued<Source, entry, describe, cl_int(CL_API_CALL*)(cl_command_queue, Arguments...)> {
  static cl_int CL_API_CALL call(cl_command_queue queue, Arguments... arguments) {
    const auto function = Source::find(queue);
    if (!collecting()) return function(queue, arguments...);
    using Record = std::invoke_result_t<decltype(describe), const Queue&, Arguments...>;
    std::tuple<Arguments...> passed(arguments...);
    cl_event*& event = std::get<sizeof...(Arguments) - 1>(passed);
    Command command(entry, queue, event, wants<Record>());
    event = command.event();
    const cl_int result =
        std::apply([&](Arguments... each) { return function(queue, each...); }, passed);
    return command.finish(result,
                          [&](const Queue& known) { return describe(known, arguments...); });
  }
};

#define PASTA_ENQUEUED(name, describe) \
  (Enqueued<InTable<&Dispatch::name>, Entry::name, describe, decltype(Dispatch::name)>::call)

}  // namespace pasta::opencl
