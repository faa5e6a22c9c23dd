// Fills: the rows of `memset`.
#include "backends/opencl/enqueued.h"
#include "backends/opencl/fills.h"
#include "backends/opencl/wrappers.h"

namespace pasta::opencl {
namespace {

MemsetRecord fill_buffer(const Queue&, cl_mem buffer, const void* pattern, size_t pattern_bytes,
                         size_t, size_t bytes, cl_uint, const cl_event*, cl_event*) {
  return fill_record(find_memory(buffer), to_signed(bytes), pattern_value(pattern, pattern_bytes));
}

// The colour is four components of 4 bytes, whatever the image's format: no single value.
MemsetRecord fill_image(const Queue&, cl_mem handle, const void*, const size_t*,
                        const size_t* region, cl_uint, const cl_event*, cl_event*) {
  const MemoryObject image = find_memory(handle);
  return fill_record(image, image_bytes(image, region), kNullI64);
}

MemsetRecord fill_svm(const Queue&, void* pointer, const void* pattern, size_t pattern_bytes,
                      size_t bytes, cl_uint, const cl_event*, cl_event*) {
  return fill_record(find_pointer(pointer), to_signed(bytes),
                     pattern_value(pattern, pattern_bytes));
}

}  // namespace

void wrap_fills(Dispatch& table) {
  table.clEnqueueFillBuffer = PASTA_ENQUEUED(clEnqueueFillBuffer, fill_buffer);
  table.clEnqueueFillImage = PASTA_ENQUEUED(clEnqueueFillImage, fill_image);
  table.clEnqueueSVMMemFill = PASTA_ENQUEUED(clEnqueueSVMMemFill, fill_svm);
}

}  // namespace pasta::opencl
