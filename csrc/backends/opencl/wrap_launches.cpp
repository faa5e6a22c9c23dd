// Kernel launches: the rows of `kernel`.
//
// `compiled` stays null: PoCL compiles a kernel for its work-group size inside the first launch's
// queued -> start gap, but no function of OpenCL tells whether it did, or found the kernel in its
// cache.
#include <memory>

#include "backends/opencl/command.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/memory_launch.h"
#include "backends/opencl/normalize.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

// The kernel's function when this launch is to be recorded, else null. Counts the launch for the
// session.
std::shared_ptr<const KernelFunction> select(cl_kernel kernel) noexcept {
  std::shared_ptr<const KernelFunction> selected;
  guard([&] {
    const std::shared_ptr<const KernelFunction>& function = find_kernel(kernel);
    if (function != nullptr && select_launch(function->name) && state().wants_kernels)
      selected = function;
  });
  return selected;
}

KernelRecord launch_record(StringId name, const Geometry& geometry) {
  KernelRecord row;
  row.name = name;
  row.grid_x = geometry.grid[0];
  row.grid_y = geometry.grid[1];
  row.grid_z = geometry.grid[2];
  row.block_x = geometry.block[0];
  row.block_y = geometry.block[1];
  row.block_z = geometry.block[2];
  row.global_x = geometry.global[0];
  row.global_y = geometry.global[1];
  row.global_z = geometry.global[2];
  return row;
}

KernelRecord launch_record(const KernelFunction& function, cl_uint dimensions, const size_t* global,
                           const size_t* local) {
  const size_t* required = function.required_block[0] != 0 ? function.required_block : nullptr;
  KernelRecord row = launch_record(function.name_id, geometry(dimensions, global, local, required));
  row.static_shared_bytes = function.local_memory_bytes;
  row.local_bytes = function.private_memory_bytes;
  return row;
}

cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                          const size_t* offset, const size_t* global, const size_t* local,
                          cl_uint wait_count, const cl_event* wait_list, cl_event* event) {
  const auto function = next(queue).clEnqueueNDRangeKernel;
  if (!recording())
    return function(queue, kernel, dimensions, offset, global, local, wait_count, wait_list, event);
  const std::shared_ptr<const KernelFunction> selected = select(kernel);
  if (!collecting())
    return function(queue, kernel, dimensions, offset, global, local, wait_count, wait_list, event);
  Command command(Entry::clEnqueueNDRangeKernel, queue, event, selected != nullptr);
  const KernelLaunch what = {
      command.launch_id(), queue,     kernel,         dimensions, offset, global, local,
      wait_count,          wait_list, command.event()};
  const cl_int result = selected != nullptr && measures_memory()
                            ? launch_measured(what, function)
                            : function(queue, kernel, dimensions, offset, global, local, wait_count,
                                       wait_list, command.event());
  return command.finish(
      result, [&](const Queue&) { return launch_record(*selected, dimensions, global, local); });
}

cl_int CL_API_CALL launch_task(cl_command_queue queue, cl_kernel kernel, cl_uint wait_count,
                               const cl_event* wait_list, cl_event* event) {
  const auto function = next(queue).clEnqueueTask;
  if (!recording()) return function(queue, kernel, wait_count, wait_list, event);
  const std::shared_ptr<const KernelFunction> selected = select(kernel);
  if (!collecting()) return function(queue, kernel, wait_count, wait_list, event);
  Command command(Entry::clEnqueueTask, queue, event, selected != nullptr);
  // OpenCL 1.2, clEnqueueTask: as an NDRange of one dimension with global and local size 1.
  constexpr size_t one = 1;
  const KernelLaunch what = {command.launch_id(), queue,     kernel,         1, nullptr, &one, &one,
                             wait_count,          wait_list, command.event()};
  const cl_int result = selected != nullptr && measures_memory()
                            ? launch_measured(what, next(queue).clEnqueueNDRangeKernel)
                            : function(queue, kernel, wait_count, wait_list, command.event());
  return command.finish(result,
                        [&](const Queue&) { return launch_record(*selected, 1, &one, &one); });
}

using NativeKernel = void(CL_CALLBACK*)(void*);

// A host function as a command: it has no name that the runtime knows.
cl_int CL_API_CALL launch_native(cl_command_queue queue, NativeKernel kernel, void* arguments,
                                 size_t argument_bytes, cl_uint object_count, const cl_mem* objects,
                                 const void** object_places, cl_uint wait_count,
                                 const cl_event* wait_list, cl_event* event) {
  const auto function = next(queue).clEnqueueNativeKernel;
  constexpr const char* name = "native kernel";
  if (!recording()) {
    return function(queue, kernel, arguments, argument_bytes, object_count, objects, object_places,
                    wait_count, wait_list, event);
  }
  const bool selected = select_launch(name) && state().wants_kernels;
  if (!collecting()) {
    return function(queue, kernel, arguments, argument_bytes, object_count, objects, object_places,
                    wait_count, wait_list, event);
  }
  Command command(Entry::clEnqueueNativeKernel, queue, event, selected);
  const cl_int result = function(queue, kernel, arguments, argument_bytes, object_count, objects,
                                 object_places, wait_count, wait_list, command.event());
  return command.finish(result, [&](const Queue&) {
    constexpr size_t one = 1;
    return launch_record(intern(name), geometry(1, &one, &one, nullptr));
  });
}

}  // namespace

void wrap_launches(Dispatch& table) {
  table.clEnqueueNDRangeKernel = launch;
  table.clEnqueueTask = launch_task;
  table.clEnqueueNativeKernel = launch_native;
}

}  // namespace pasta::opencl
