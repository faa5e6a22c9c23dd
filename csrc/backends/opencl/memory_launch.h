// A launch of a kernel while --memory is on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "backends/opencl/cl_api.h"
#include "backends/opencl/dispatch.h"

namespace pasta::opencl {

class MeasuredKernel;

// The arguments of clEnqueueNDRangeKernel, and the number of the launch in the tables.
struct KernelLaunch {
  int64_t id;
  cl_command_queue queue;
  cl_kernel kernel;
  cl_uint dimensions;
  const size_t *offset, *global, *local;
  cl_uint wait_count;
  const cl_event* wait_list;
  cl_event* event;
};

// True when --memory asks for something that can be measured here.
bool measures_memory();

// From now on nothing is measured, with this cause in `loss`.
void stop_measuring(std::string cause);

// Launches the instrumented kernel in place of the program's, when this launch is to be measured
// and can be; else the program's own, through `function`. Rows of `loss` tell of the second.
cl_int launch_measured(const KernelLaunch& launch,
                       decltype(Dispatch::clEnqueueNDRangeKernel) function) noexcept;

// Null when it is not known.
std::shared_ptr<MeasuredKernel> find_measured_kernel(cl_kernel kernel);

// The program has made a kernel, or copied one.
void add_measured_kernel(cl_kernel kernel);
void add_measured_clone(cl_kernel source, cl_kernel copy);

}  // namespace pasta::opencl
