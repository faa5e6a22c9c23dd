// Map, unmap and migrate: commands that make memory visible elsewhere and may move nothing.
#include "backends/opencl/copies.h"
#include "backends/opencl/enqueued.h"
#include "backends/opencl/wrappers.h"

namespace pasta::opencl {
namespace {

// A command that maps a part of `handle` and returns where: `map(event, error)` calls the runtime,
// `measure` tells how many bytes of the object it maps.
template <class Map, class Measure>
void* map_object(Entry entry, cl_command_queue queue, cl_mem handle, bool blocking, cl_event* event,
                 cl_int* error, Map&& map, Measure&& measure) {
  if (!recording()) return map(event, error);
  cl_int own_error = CL_SUCCESS;
  cl_int* const result = error != nullptr ? error : &own_error;
  if (!collecting()) {
    void* const pointer = map(event, result);
    guard([&] { state().mapped_bytes.set(pointer, measure(find_memory(handle))); });
    return pointer;
  }
  Command command(entry, queue, event, wants<MemcpyRecord>());
  void* const pointer = map(command.event(), result);
  command.finish(*result, [&](const Queue& known) {
    const MemoryObject object = find_memory(handle);
    state().mapped_bytes.set(pointer, measure(object));
    return copy_record(known, MemcpyKind::map, measure(object), object, host_memory(), blocking);
  });
  return pointer;
}

void* CL_API_CALL map_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking,
                             cl_map_flags flags, size_t offset, size_t bytes, cl_uint wait_count,
                             const cl_event* wait_list, cl_event* event, cl_int* error) {
  const auto function = next(queue).clEnqueueMapBuffer;
  const auto map = [&](cl_event* out, cl_int* result) {
    return function(queue, buffer, blocking, flags, offset, bytes, wait_count, wait_list, out,
                    result);
  };
  return map_object(Entry::clEnqueueMapBuffer, queue, buffer, blocking, event, error, map,
                    [&](const MemoryObject&) { return to_signed(bytes); });
}

void* CL_API_CALL map_image(cl_command_queue queue, cl_mem image, cl_bool blocking,
                            cl_map_flags flags, const size_t* origin, const size_t* region,
                            size_t* row_pitch, size_t* slice_pitch, cl_uint wait_count,
                            const cl_event* wait_list, cl_event* event, cl_int* error) {
  const auto function = next(queue).clEnqueueMapImage;
  const auto map = [&](cl_event* out, cl_int* result) {
    return function(queue, image, blocking, flags, origin, region, row_pitch, slice_pitch,
                    wait_count, wait_list, out, result);
  };
  return map_object(Entry::clEnqueueMapImage, queue, image, blocking, event, error, map,
                    [&](const MemoryObject& object) { return image_bytes(object, region); });
}

// How much the mapping at an address covers: the unmap does not say.
int64_t mapped_bytes(const void* pointer) {
  return state().mapped_bytes.find(pointer).value_or(kNullI64);
}

MemcpyRecord unmap(const Queue& queue, cl_mem handle, void* pointer, cl_uint, const cl_event*,
                   cl_event*) {
  return copy_record(queue, MemcpyKind::unmap, mapped_bytes(pointer), host_memory(),
                     find_memory(handle), false);
}

MemcpyRecord map_svm(const Queue& queue, cl_bool blocking, cl_map_flags, void* pointer,
                     size_t bytes, cl_uint, const cl_event*, cl_event*) {
  state().mapped_bytes.set(pointer, to_signed(bytes));
  return copy_record(queue, MemcpyKind::map, to_signed(bytes), find_pointer(pointer), host_memory(),
                     blocking);
}

MemcpyRecord unmap_svm(const Queue& queue, void* pointer, cl_uint, const cl_event*, cl_event*) {
  return copy_record(queue, MemcpyKind::unmap, mapped_bytes(pointer), host_memory(),
                     find_pointer(pointer), false);
}

}  // namespace

void wrap_maps(Dispatch& table) {
  table.clEnqueueMapBuffer = map_buffer;
  table.clEnqueueMapImage = map_image;
  table.clEnqueueUnmapMemObject = PASTA_ENQUEUED(clEnqueueUnmapMemObject, unmap);
  table.clEnqueueSVMMap = PASTA_ENQUEUED(clEnqueueSVMMap, map_svm);
  table.clEnqueueSVMUnmap = PASTA_ENQUEUED(clEnqueueSVMUnmap, unmap_svm);
}

}  // namespace pasta::opencl
