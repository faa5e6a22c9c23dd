#include "backends/opencl/memory_kernel.h"

#include <algorithm>
#include <string>

#include "backends/opencl/dispatch.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/query.h"

namespace pasta::opencl {
namespace {

using memory::BoundObject;
using memory::Space;

int64_t object_number(const MemoryObject& object) {
  return object.object_id == kNullI64 ? memory::kNoObject : object.object_id;
}

uint64_t known_bytes(const MemoryObject& object) {
  return object.bytes == kNullI64 ? 0 : static_cast<uint64_t>(object.bytes);
}

}  // namespace

std::shared_ptr<MeasuredKernel> MeasuredKernel::make(std::shared_ptr<const MeasuredProgram> program,
                                                     const std::string& name) {
  auto made = std::make_shared<MeasuredKernel>();
  made->function_ = program->find(name, &made->why_);
  if (made->function_ == nullptr) return made;
  cl_int status = CL_SUCCESS;
  made->handle_ = next(program->handle()).clCreateKernel(program->handle(), name.c_str(), &status);
  if (made->handle_ == nullptr) {
    made->why_.cause = "the driver makes no measured kernel: status " + std::to_string(status);
    return made;
  }
  const memory::KernelPlan& plan = made->function_->plan();
  made->objects_.resize(plan.roots.size());
  made->searches_ranges_ = std::any_of(plan.sites.begin(), plan.sites.end(),
                                       [](const memory::Site& site) { return site.ranges; });
  made->program_ = std::move(program);
  return made;
}

MeasuredKernel::~MeasuredKernel() {
  if (handle_ != nullptr) next(handle_).clReleaseKernel(handle_);
}

std::shared_ptr<MeasuredKernel> MeasuredKernel::clone() {
  std::lock_guard lock(mutex_);
  auto made = std::make_shared<MeasuredKernel>();
  made->program_ = program_;
  made->function_ = function_;
  made->why_ = why_;
  made->objects_ = objects_;
  made->searches_ranges_ = searches_ranges_;
  if (handle_ == nullptr) return made;
  cl_int status = CL_SUCCESS;
  made->handle_ = next(handle_).clCloneKernel(handle_, &status);
  if (made->handle_ == nullptr) {
    made->why_.cause = "the driver makes no measured kernel: status " + std::to_string(status);
  }
  return made;
}

void MeasuredKernel::set_argument(cl_uint index, size_t bytes, const void* value) {
  if (handle_ == nullptr) return;
  std::lock_guard lock(mutex_);
  const cl_int status = next(handle_).clSetKernelArg(handle_, index, bytes, value);
  BoundObject object;
  for (const memory::Root& root : function_->plan().roots) {
    if (root.argument != index) continue;
    if (root.space == Space::local) {
      object.bytes = bytes;
    } else if (value != nullptr && bytes == sizeof(cl_mem)) {
      object = bound_memory(*static_cast<const cl_mem*>(value));
    }
  }
  note(index, object, status);
}

void MeasuredKernel::set_pointer(cl_uint index, const void* pointer) {
  if (handle_ == nullptr) return;
  std::lock_guard lock(mutex_);
  note_pointer(index, pointer, next(handle_).clSetKernelArgSVMPointer(handle_, index, pointer));
}

void MeasuredKernel::note_pointer(cl_uint index, const void* pointer, cl_int status) {
  std::lock_guard lock(mutex_);
  note(index, bound_pointer(pointer), status);
}

void MeasuredKernel::set_execution_info(cl_kernel_exec_info which, size_t bytes,
                                        const void* value) {
  if (handle_ == nullptr) return;
  note_execution_info(next(handle_).clSetKernelExecInfo(handle_, which, bytes, value));
}

void MeasuredKernel::note_execution_info(cl_int status) {
  std::lock_guard lock(mutex_);
  if (status != CL_SUCCESS) {
    why_.cause = "the driver refuses clSetKernelExecInfo for the measured kernel";
  }
}

void MeasuredKernel::note(cl_uint index, const BoundObject& object, cl_int status) {
  // The program's own kernel has taken the argument: without it, this one would compute something
  // else.
  if (status != CL_SUCCESS && why_.cause.empty()) {
    why_.cause =
        "the driver refuses an argument of the measured kernel: status " + std::to_string(status);
  }
  const std::vector<memory::Root>& roots = function_->plan().roots;
  for (size_t i = 0; i < roots.size(); ++i) {
    if (roots[i].argument != index) continue;
    objects_[i] = object;
    binding_.reset();
  }
}

BoundObject MeasuredKernel::bound_memory(cl_mem memory) const {
  BoundObject bound;
  if (memory == nullptr) return bound;
  const MemoryObject object = find_memory(memory);
  bound.object_id = object_number(object);
  // An object from before the recording has no number, but lines all the same.
  bound.bytes = object.bytes != kNullI64
                    ? known_bytes(object)
                    : query<size_t>(next(memory).clGetMemObjectInfo, memory, CL_MEM_SIZE, 0);
  bound.texel_bytes = object.element_bytes;
  return bound;
}

BoundObject MeasuredKernel::bound_pointer(const void* pointer) const {
  BoundObject bound;
  const MemoryObject object = find_pointer(pointer);
  if (object.address == kNullI64) return bound;
  bound.object_id = object_number(object);
  bound.bytes = known_bytes(object);
  bound.offset = reinterpret_cast<uintptr_t>(pointer) - static_cast<uint64_t>(object.address);
  return bound;
}

std::shared_ptr<const memory::Binding> MeasuredKernel::binding(
    const memory::BindingLimits& limits) {
  if (binding_ != nullptr && binding_limits_ == limits && !searches_ranges_) return binding_;
  std::vector<memory::AddressRange> ranges;
  if (searches_ranges_) {
    for (const MemoryObject& object : state().pointers.values()) {
      ranges.push_back(
          {object_number(object), static_cast<uint64_t>(object.address), known_bytes(object)});
    }
  }
  binding_ = std::make_shared<const memory::Binding>(
      make_binding(function_->plan(), objects_, std::move(ranges), limits));
  binding_limits_ = limits;
  return binding_;
}

}  // namespace pasta::opencl
