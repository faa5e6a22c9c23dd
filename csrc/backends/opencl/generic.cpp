// The wrapper of a function of which only the call itself is of interest.
#include <type_traits>

#include "backends/opencl/api_call.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/entry.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

// The object by which the runtime is found: a function's first argument, where that is one.
template <class First>
struct IsHandle : std::false_type {};
template <>
struct IsHandle<cl_platform_id> : std::true_type {};
template <>
struct IsHandle<cl_device_id> : std::true_type {};
template <>
struct IsHandle<cl_context> : std::true_type {};
template <>
struct IsHandle<cl_command_queue> : std::true_type {};
template <>
struct IsHandle<cl_mem> : std::true_type {};
template <>
struct IsHandle<cl_program> : std::true_type {};
template <>
struct IsHandle<cl_kernel> : std::true_type {};
template <>
struct IsHandle<cl_event> : std::true_type {};
template <>
struct IsHandle<cl_sampler> : std::true_type {};

template <auto Member, Entry entry, class Function>
struct Traced {
  static void fill(Dispatch&) {}  // no object among its arguments: not wrapped here
};

template <auto Member, Entry entry, class Result, class First, class... Rest>
struct Traced<Member, entry, Result(CL_API_CALL*)(First, Rest...)> {
  static Result CL_API_CALL call(First first, Rest... rest) {
    const auto function = next(first).*Member;
    if (!collecting()) return function(first, rest...);
    ApiCall call(entry);
    if constexpr (std::is_void_v<Result>) {
      function(first, rest...);
      call.finish(CL_SUCCESS);
    } else {
      // Functions that return an object put their error code elsewhere; an object that is not there
      // failed.
      const Result result = function(first, rest...);
      if constexpr (std::is_same_v<Result, cl_int>) {
        call.finish(result);
      } else {
        call.finish(result != nullptr ? CL_SUCCESS : kNullI32);
      }
      return result;
    }
  }

  static void fill(Dispatch& table) {
    if constexpr (IsHandle<First>::value) table.*Member = &call;
  }
};

}  // namespace

void wrap_generic(Dispatch& table) {
  const bool calls = traces(TableId::api);
  const bool queries = calls && traces_all_api();
  const auto wanted = [&](Interest interest) {
    return interest == Interest::call ? calls : interest == Interest::query && queries;
  };
#define PASTA_CL(version, interest, name)                                        \
  if (wanted(Interest::interest)) {                                              \
    Traced<&Dispatch::name, Entry::name, decltype(Dispatch::name)>::fill(table); \
  }
#define PASTA_CL_SLOT(version, name)
#include "backends/opencl/dispatch.def"
#undef PASTA_CL
#undef PASTA_CL_SLOT
}

Dispatch make_wrappers() {
  Dispatch table{};
  wrap_generic(table);
  wrap_contexts(table);
  wrap_queues(table);
  wrap_programs(table);
  wrap_builds(table);
  wrap_memory(table);
  wrap_launches(table);
  wrap_copies(table);
  wrap_maps(table);
  wrap_transfers(table);
  wrap_fills(table);
  wrap_waits(table);
  wrap_extensions(table);
  wrap_for_memory(table);
  return table;
}

}  // namespace pasta::opencl
