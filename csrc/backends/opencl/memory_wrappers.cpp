// The calls that only --memory has to see: what a launch depends on beside its own arguments, and
// the end of kernels and programs. Nothing here is in the way unless --memory is on.
#include <string>
#include <utility>

#include "backends/opencl/api_call.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/memory_kernel.h"
#include "backends/opencl/memory_launch.h"
#include "backends/opencl/memory_options.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/query.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

// The program's call, then the same of the measured kernel if that succeeded.
template <class Call, class Follow>
cl_int mirrored(Entry entry, cl_kernel kernel, Call&& original, Follow&& follow) {
  if (!recording()) return original();
  ApiCall call(entry);
  const cl_int result = original();
  call.finish(result);
  guard([&] {
    if (result != CL_SUCCESS) return;
    if (const auto measured = find_measured_kernel(kernel)) follow(*measured);
  });
  return result;
}

cl_int CL_API_CALL set_argument(cl_kernel kernel, cl_uint index, size_t bytes, const void* value) {
  const auto function = next(kernel).clSetKernelArg;
  return mirrored(
      Entry::clSetKernelArg, kernel, [&] { return function(kernel, index, bytes, value); },
      [&](MeasuredKernel& measured) { measured.set_argument(index, bytes, value); });
}

cl_int CL_API_CALL set_pointer(cl_kernel kernel, cl_uint index, const void* pointer) {
  const auto function = next(kernel).clSetKernelArgSVMPointer;
  return mirrored(
      Entry::clSetKernelArgSVMPointer, kernel, [&] { return function(kernel, index, pointer); },
      [&](MeasuredKernel& measured) { measured.set_pointer(index, pointer); });
}

cl_int CL_API_CALL set_execution_info(cl_kernel kernel, cl_kernel_exec_info which, size_t bytes,
                                      const void* value) {
  const auto function = next(kernel).clSetKernelExecInfo;
  return mirrored(
      Entry::clSetKernelExecInfo, kernel, [&] { return function(kernel, which, bytes, value); },
      [&](MeasuredKernel& measured) { measured.set_execution_info(which, bytes, value); });
}

cl_int CL_API_CALL release_kernel(cl_kernel kernel) {
  const Dispatch& cl = next(kernel);
  if (!recording()) return cl.clReleaseKernel(kernel);
  ApiCall call(Entry::clReleaseKernel);
  guard([&] {
    // The last reference: the handle's next owner is another kernel.
    if (query<cl_uint>(cl.clGetKernelInfo, kernel, CL_KERNEL_REFERENCE_COUNT, 0) == 1)
      state().measured_kernels.take(kernel);
  });
  const cl_int result = cl.clReleaseKernel(kernel);
  call.finish(result);
  return result;
}

void forget_measured(cl_program handle) {
  const auto program = state().programs.find(handle).value_or(nullptr);
  if (program == nullptr) return;
  std::lock_guard lock(program->measured_mutex);
  program->measured.reset();
}

cl_int CL_API_CALL release_program(cl_program program) {
  const Dispatch& cl = next(program);
  if (!recording()) return cl.clReleaseProgram(program);
  ApiCall call(Entry::clReleaseProgram);
  guard([&] {
    if (query<cl_uint>(cl.clGetProgramInfo, program, CL_PROGRAM_REFERENCE_COUNT, 0) == 1)
      forget_measured(program);
  });
  const cl_int result = cl.clReleaseProgram(program);
  call.finish(result);
  return result;
}

cl_int CL_API_CALL set_constant(cl_program program, cl_uint id, size_t bytes, const void* value) {
  const auto function = next(program).clSetProgramSpecializationConstant;
  if (!recording()) return function(program, id, bytes, value);
  ApiCall call(Entry::clSetProgramSpecializationConstant);
  const cl_int result = function(program, id, bytes, value);
  call.finish(result);
  guard([&] {
    if (result != CL_SUCCESS) return;
    const auto* const first = static_cast<const unsigned char*>(value);
    const std::shared_ptr<Program> known = find_program(program);
    std::lock_guard lock(known->measured_mutex);
    known->constants.push_back({id, {first, first + bytes}});
  });
  return result;
}

}  // namespace

void wrap_for_memory(Dispatch& table) {
  if (!measures_memory()) {
    // Not an error of the program's command line: what it asks for, other devices have.
    if (memory_options().asks_for_anything) {
      report_loss("opencl", "access_object", kNullI64, "OpenCL kernels have no such measurement",
                  "use --memory=objects,sites,lines,shared,trace");
    }
    return;
  }
  table.clSetKernelArg = set_argument;
  table.clSetKernelArgSVMPointer = set_pointer;
  table.clSetKernelExecInfo = set_execution_info;
  table.clReleaseKernel = release_kernel;
  table.clReleaseProgram = release_program;
  table.clSetProgramSpecializationConstant = set_constant;
}

}  // namespace pasta::opencl
