// Programs and kernels: what a program was made from, which function a kernel is. Builds are in
// wrap_builds.cpp.
//
// With --memory, a kernel gets its second self here, before its first argument (memory_launch.h).
#include <memory>
#include <vector>

#include "backends/opencl/api_call.h"
#include "backends/opencl/creation.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/memory_launch.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

cl_program CL_API_CALL create_with_source(cl_context context, cl_uint count, const char** strings,
                                          const size_t* lengths, cl_int* error) {
  const auto function = next(context).clCreateProgramWithSource;
  if (!recording()) return function(context, count, strings, lengths, error);
  Creation creation(Entry::clCreateProgramWithSource, error);
  const cl_program program = function(context, count, strings, lengths, creation.error());
  return creation.finish(program, [&] { add_program(program, BuildSource::text); });
}

cl_program CL_API_CALL create_with_il(cl_context context, const void* il, size_t bytes,
                                      cl_int* error) {
  const auto function = next(context).clCreateProgramWithIL;
  if (!recording()) return function(context, il, bytes, error);
  Creation creation(Entry::clCreateProgramWithIL, error);
  const cl_program program = function(context, il, bytes, creation.error());
  return creation.finish(program, [&] { add_program(program, BuildSource::il); });
}

cl_program CL_API_CALL create_with_binary(cl_context context, cl_uint count,
                                          const cl_device_id* devices, const size_t* lengths,
                                          const unsigned char** binaries, cl_int* binary_status,
                                          cl_int* error) {
  const auto function = next(context).clCreateProgramWithBinary;
  if (!recording())
    return function(context, count, devices, lengths, binaries, binary_status, error);
  Creation creation(Entry::clCreateProgramWithBinary, error);
  const cl_program program =
      function(context, count, devices, lengths, binaries, binary_status, creation.error());
  return creation.finish(program, [&] { add_program(program, BuildSource::binary); });
}

cl_program CL_API_CALL create_with_built_in_kernels(cl_context context, cl_uint count,
                                                    const cl_device_id* devices, const char* names,
                                                    cl_int* error) {
  const auto function = next(context).clCreateProgramWithBuiltInKernels;
  if (!recording()) return function(context, count, devices, names, error);
  Creation creation(Entry::clCreateProgramWithBuiltInKernels, error);
  const cl_program program = function(context, count, devices, names, creation.error());
  return creation.finish(program, [&] { add_program(program, BuildSource::unknown); });
}

cl_kernel CL_API_CALL create_kernel(cl_program program, const char* name, cl_int* error) {
  const auto function = next(program).clCreateKernel;
  if (!recording()) return function(program, name, error);
  Creation creation(Entry::clCreateKernel, error);
  const cl_kernel kernel = function(program, name, creation.error());
  return creation.finish(kernel, [&] {
    add_kernel(kernel);
    add_measured_kernel(kernel);
  });
}

cl_int CL_API_CALL create_kernels(cl_program program, cl_uint capacity, cl_kernel* kernels,
                                  cl_uint* count) {
  const auto function = next(program).clCreateKernelsInProgram;
  if (!recording()) return function(program, capacity, kernels, count);
  ApiCall call(Entry::clCreateKernelsInProgram);
  cl_uint own_count = 0;
  cl_uint* const made = count == nullptr && kernels != nullptr ? &own_count : count;
  const cl_int result = function(program, capacity, kernels, made);
  call.finish(result);
  guard([&] {
    if (result != CL_SUCCESS || kernels == nullptr) return;
    for (cl_uint i = 0; i < *made && i < capacity; ++i) {
      add_kernel(kernels[i]);
      add_measured_kernel(kernels[i]);
    }
  });
  return result;
}

cl_kernel CL_API_CALL clone_kernel(cl_kernel source, cl_int* error) {
  const auto function = next(source).clCloneKernel;
  if (!recording()) return function(source, error);
  Creation creation(Entry::clCloneKernel, error);
  const cl_kernel kernel = function(source, creation.error());
  return creation.finish(kernel, [&] {
    add_kernel(kernel);
    add_measured_clone(source, kernel);
  });
}

}  // namespace

void wrap_programs(Dispatch& table) {
  table.clCreateProgramWithSource = create_with_source;
  table.clCreateProgramWithIL = create_with_il;
  table.clCreateProgramWithBinary = create_with_binary;
  table.clCreateProgramWithBuiltInKernels = create_with_built_in_kernels;
  table.clCreateKernel = create_kernel;
  table.clCreateKernelsInProgram = create_kernels;
  table.clCloneKernel = clone_kernel;
}

}  // namespace pasta::opencl
