// A kernel object's second self: the instrumented kernel, with the arguments that the program set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backends/opencl/cl_api.h"
#include "backends/opencl/memory_program.h"
#include "device/opencl/binding.h"

namespace pasta::opencl {

class MeasuredKernel {
 public:
  // The kernel `name` of the program. Without an instrumented function, only why there is none.
  static std::shared_ptr<MeasuredKernel> make(std::shared_ptr<const MeasuredProgram> program,
                                              const std::string& name);
  MeasuredKernel() = default;
  MeasuredKernel(const MeasuredKernel&) = delete;
  MeasuredKernel& operator=(const MeasuredKernel&) = delete;
  ~MeasuredKernel();

  // The kernel with its arguments, for clCloneKernel.
  std::shared_ptr<MeasuredKernel> clone();

  // The program has set an argument, or what else a launch depends on, of its own kernel.
  void set_argument(cl_uint index, size_t bytes, const void* value);
  void set_pointer(cl_uint index, const void* pointer);  // shared virtual memory
  void set_execution_info(cl_kernel_exec_info which, size_t bytes, const void* value);
  // The same by a function of an extension: `status` is what it said of handle().
  void note_pointer(cl_uint index, const void* pointer, cl_int status);
  void note_execution_info(cl_int status);

  cl_kernel handle() const { return handle_; }
  const std::shared_ptr<MeasuredFunction>& function() const { return function_; }
  // Why launches are not measured; no cause when they are.
  const Unmeasured& why() const { return why_; }

  // Held from binding() to the launch. Recursive: a driver may call back into the program from
  // inside a launch.
  std::recursive_mutex& mutex() { return mutex_; }
  // What the arguments are, for a results buffer that gives a launch so much.
  std::shared_ptr<const memory::Binding> binding(const memory::BindingLimits& limits);

 private:
  void note(cl_uint index, const memory::BoundObject& object, cl_int status);
  memory::BoundObject bound_memory(cl_mem memory) const;
  memory::BoundObject bound_pointer(const void* pointer) const;

  std::shared_ptr<const MeasuredProgram> program_;  // keeps handle_ valid
  std::shared_ptr<MeasuredFunction> function_;
  Unmeasured why_;
  cl_kernel handle_ = nullptr;
  std::recursive_mutex mutex_;
  std::vector<memory::BoundObject> objects_;  // behind each root of the plan
  bool searches_ranges_ = false;              // a site may reach memory that is no argument
  std::shared_ptr<const memory::Binding> binding_;
  memory::BindingLimits binding_limits_;
};

}  // namespace pasta::opencl
