// Functions that make and free memory objects.
#include "backends/opencl/allocations.h"
#include "backends/opencl/creation.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/query.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

// The part that all functions which make a memory object have in common: `make(error)` calls the
// runtime.
template <class Make>
cl_mem make_memory(Entry entry, cl_context context, cl_int* error, Make&& make) {
  if (!recording()) return make(error);
  Creation creation(entry, error);
  const cl_mem object = make(creation.error());
  return creation.finish(object, [&] { add_memory(entry, creation.call(), context, object); });
}

cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t bytes, void* host,
                                 cl_int* error) {
  const auto function = next(context).clCreateBuffer;
  return make_memory(Entry::clCreateBuffer, context, error,
                     [&](cl_int* code) { return function(context, flags, bytes, host, code); });
}

cl_mem CL_API_CALL create_buffer_with_properties(cl_context context,
                                                 const cl_mem_properties* properties,
                                                 cl_mem_flags flags, size_t bytes, void* host,
                                                 cl_int* error) {
  const auto function = next(context).clCreateBufferWithProperties;
  return make_memory(Entry::clCreateBufferWithProperties, context, error, [&](cl_int* code) {
    return function(context, properties, flags, bytes, host, code);
  });
}

cl_mem CL_API_CALL create_sub_buffer(cl_mem buffer, cl_mem_flags flags, cl_buffer_create_type type,
                                     const void* region, cl_int* error) {
  const auto function = next(buffer).clCreateSubBuffer;
  const auto context = recording() ? query<cl_context>(next(buffer).clGetMemObjectInfo, buffer,
                                                       CL_MEM_CONTEXT, nullptr)
                                   : nullptr;
  return make_memory(Entry::clCreateSubBuffer, context, error,
                     [&](cl_int* code) { return function(buffer, flags, type, region, code); });
}

cl_mem CL_API_CALL create_image(cl_context context, cl_mem_flags flags,
                                const cl_image_format* format, const cl_image_desc* shape,
                                void* host, cl_int* error) {
  const auto function = next(context).clCreateImage;
  return make_memory(Entry::clCreateImage, context, error, [&](cl_int* code) {
    return function(context, flags, format, shape, host, code);
  });
}

cl_mem CL_API_CALL create_image_with_properties(cl_context context,
                                                const cl_mem_properties* properties,
                                                cl_mem_flags flags, const cl_image_format* format,
                                                const cl_image_desc* shape, void* host,
                                                cl_int* error) {
  const auto function = next(context).clCreateImageWithProperties;
  return make_memory(Entry::clCreateImageWithProperties, context, error, [&](cl_int* code) {
    return function(context, properties, flags, format, shape, host, code);
  });
}

cl_mem CL_API_CALL create_image_2d(cl_context context, cl_mem_flags flags,
                                   const cl_image_format* format, size_t width, size_t height,
                                   size_t row_pitch, void* host, cl_int* error) {
  const auto function = next(context).clCreateImage2D;
  return make_memory(Entry::clCreateImage2D, context, error, [&](cl_int* code) {
    return function(context, flags, format, width, height, row_pitch, host, code);
  });
}

cl_mem CL_API_CALL create_image_3d(cl_context context, cl_mem_flags flags,
                                   const cl_image_format* format, size_t width, size_t height,
                                   size_t depth, size_t row_pitch, size_t slice_pitch, void* host,
                                   cl_int* error) {
  const auto function = next(context).clCreateImage3D;
  return make_memory(Entry::clCreateImage3D, context, error, [&](cl_int* code) {
    return function(context, flags, format, width, height, depth, row_pitch, slice_pitch, host,
                    code);
  });
}

cl_mem CL_API_CALL create_pipe(cl_context context, cl_mem_flags flags, cl_uint packet_bytes,
                               cl_uint packets, const cl_pipe_properties* properties,
                               cl_int* error) {
  const auto function = next(context).clCreatePipe;
  return make_memory(Entry::clCreatePipe, context, error, [&](cl_int* code) {
    return function(context, flags, packet_bytes, packets, properties, code);
  });
}

void* CL_API_CALL svm_alloc(cl_context context, cl_svm_mem_flags flags, size_t bytes,
                            cl_uint alignment) {
  const auto function = next(context).clSVMAlloc;
  if (!recording()) return function(context, flags, bytes, alignment);
  ApiCall call(Entry::clSVMAlloc);
  void* const pointer = function(context, flags, bytes, alignment);
  call.finish(pointer != nullptr ? CL_SUCCESS : kNullI32);
  guard([&] {
    if (pointer == nullptr) return;
    add_pointer(Entry::clSVMAlloc, call, context, nullptr, MemoryKind::svm, pointer, bytes);
  });
  return pointer;
}

void CL_API_CALL svm_free(cl_context context, void* pointer) {
  const auto function = next(context).clSVMFree;
  if (!recording()) return function(context, pointer);
  ApiCall call(Entry::clSVMFree);
  // Before the call: afterwards another thread may be given the same address.
  guard([&] { free_pointer(call, pointer); });
  function(context, pointer);
  call.finish(CL_SUCCESS);
}

using FreeNotify = void(CL_CALLBACK*)(cl_command_queue, cl_uint, void*[], void*);

// Without a callback of the program the runtime frees the pointers, some time after this call; with
// one the program frees them itself.
cl_int CL_API_CALL enqueue_svm_free(cl_command_queue queue, cl_uint count, void* pointers[],
                                    FreeNotify notify, void* user_data, cl_uint wait_count,
                                    const cl_event* wait_list, cl_event* event) {
  const auto function = next(queue).clEnqueueSVMFree;
  if (!recording())
    return function(queue, count, pointers, notify, user_data, wait_count, wait_list, event);
  ApiCall call(Entry::clEnqueueSVMFree);
  const cl_int result =
      function(queue, count, pointers, notify, user_data, wait_count, wait_list, event);
  call.finish(result);
  guard([&] {
    if (result != CL_SUCCESS || notify != nullptr) return;
    for (cl_uint i = 0; i < count; ++i) free_pointer(call, pointers[i]);
  });
  return result;
}

}  // namespace

void wrap_memory(Dispatch& table) {
  table.clCreateBuffer = create_buffer;
  table.clCreateBufferWithProperties = create_buffer_with_properties;
  table.clCreateSubBuffer = create_sub_buffer;
  table.clCreateImage = create_image;
  table.clCreateImageWithProperties = create_image_with_properties;
  table.clCreateImage2D = create_image_2d;
  table.clCreateImage3D = create_image_3d;
  table.clCreatePipe = create_pipe;
  table.clSVMAlloc = svm_alloc;
  table.clSVMFree = svm_free;
  table.clEnqueueSVMFree = enqueue_svm_free;
}

}  // namespace pasta::opencl
