// Copies between buffers, images and the program's memory.
#include "backends/opencl/copies.h"
#include "backends/opencl/enqueued.h"
#include "backends/opencl/wrappers.h"

namespace pasta::opencl {
namespace {

MemcpyRecord read_buffer(const Queue& queue, cl_mem source, cl_bool blocking, size_t, size_t bytes,
                         void* host, cl_uint, const cl_event*, cl_event*) {
  return copy_record(queue, to_signed(bytes), find_memory(source), find_pointer(host), blocking);
}

MemcpyRecord write_buffer(const Queue& queue, cl_mem destination, cl_bool blocking, size_t,
                          size_t bytes, const void* host, cl_uint, const cl_event*, cl_event*) {
  return copy_record(queue, to_signed(bytes), find_pointer(host), find_memory(destination),
                     blocking);
}

MemcpyRecord copy_buffer(const Queue& queue, cl_mem source, cl_mem destination, size_t, size_t,
                         size_t bytes, cl_uint, const cl_event*, cl_event*) {
  return copy_record(queue, to_signed(bytes), find_memory(source), find_memory(destination), false);
}

// A rectangle's region is in bytes in x, in rows and slices in y and z: its product is what moves.
MemcpyRecord read_rect(const Queue& queue, cl_mem source, cl_bool blocking, const size_t*,
                       const size_t*, const size_t* region, size_t, size_t, size_t, size_t,
                       void* host, cl_uint, const cl_event*, cl_event*) {
  return copy_record(queue, region_bytes(region, 1), find_memory(source), find_pointer(host),
                     blocking);
}

MemcpyRecord write_rect(const Queue& queue, cl_mem destination, cl_bool blocking, const size_t*,
                        const size_t*, const size_t* region, size_t, size_t, size_t, size_t,
                        const void* host, cl_uint, const cl_event*, cl_event*) {
  return copy_record(queue, region_bytes(region, 1), find_pointer(host), find_memory(destination),
                     blocking);
}

MemcpyRecord copy_rect(const Queue& queue, cl_mem source, cl_mem destination, const size_t*,
                       const size_t*, const size_t* region, size_t, size_t, size_t, size_t, cl_uint,
                       const cl_event*, cl_event*) {
  return copy_record(queue, region_bytes(region, 1), find_memory(source), find_memory(destination),
                     false);
}

MemcpyRecord read_image(const Queue& queue, cl_mem source, cl_bool blocking, const size_t*,
                        const size_t* region, size_t, size_t, void* host, cl_uint, const cl_event*,
                        cl_event*) {
  const MemoryObject image = find_memory(source);
  return copy_record(queue, image_bytes(image, region), image, find_pointer(host), blocking);
}

MemcpyRecord write_image(const Queue& queue, cl_mem destination, cl_bool blocking, const size_t*,
                         const size_t* region, size_t, size_t, const void* host, cl_uint,
                         const cl_event*, cl_event*) {
  const MemoryObject image = find_memory(destination);
  return copy_record(queue, image_bytes(image, region), find_pointer(host), image, blocking);
}

MemcpyRecord copy_image(const Queue& queue, cl_mem source, cl_mem destination, const size_t*,
                        const size_t*, const size_t* region, cl_uint, const cl_event*, cl_event*) {
  const MemoryObject image = find_memory(source);
  return copy_record(queue, image_bytes(image, region), image, find_memory(destination), false);
}

MemcpyRecord image_to_buffer(const Queue& queue, cl_mem source, cl_mem destination, const size_t*,
                             const size_t* region, size_t, cl_uint, const cl_event*, cl_event*) {
  const MemoryObject image = find_memory(source);
  return copy_record(queue, image_bytes(image, region), image, find_memory(destination), false);
}

MemcpyRecord buffer_to_image(const Queue& queue, cl_mem source, cl_mem destination, size_t,
                             const size_t*, const size_t* region, cl_uint, const cl_event*,
                             cl_event*) {
  const MemoryObject image = find_memory(destination);
  return copy_record(queue, image_bytes(image, region), find_memory(source), image, false);
}

}  // namespace

void wrap_copies(Dispatch& table) {
  table.clEnqueueReadBuffer = PASTA_ENQUEUED(clEnqueueReadBuffer, read_buffer);
  table.clEnqueueWriteBuffer = PASTA_ENQUEUED(clEnqueueWriteBuffer, write_buffer);
  table.clEnqueueCopyBuffer = PASTA_ENQUEUED(clEnqueueCopyBuffer, copy_buffer);
  table.clEnqueueReadBufferRect = PASTA_ENQUEUED(clEnqueueReadBufferRect, read_rect);
  table.clEnqueueWriteBufferRect = PASTA_ENQUEUED(clEnqueueWriteBufferRect, write_rect);
  table.clEnqueueCopyBufferRect = PASTA_ENQUEUED(clEnqueueCopyBufferRect, copy_rect);
  table.clEnqueueReadImage = PASTA_ENQUEUED(clEnqueueReadImage, read_image);
  table.clEnqueueWriteImage = PASTA_ENQUEUED(clEnqueueWriteImage, write_image);
  table.clEnqueueCopyImage = PASTA_ENQUEUED(clEnqueueCopyImage, copy_image);
  table.clEnqueueCopyImageToBuffer = PASTA_ENQUEUED(clEnqueueCopyImageToBuffer, image_to_buffer);
  table.clEnqueueCopyBufferToImage = PASTA_ENQUEUED(clEnqueueCopyBufferToImage, buffer_to_image);
}

}  // namespace pasta::opencl
