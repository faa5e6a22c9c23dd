// Commands on shared virtual memory and on several objects at once: copy and migrate.
#include "backends/opencl/copies.h"
#include "backends/opencl/enqueued.h"
#include "backends/opencl/wrappers.h"

namespace pasta::opencl {
namespace {

MemcpyRecord copy_svm(const Queue& queue, cl_bool blocking, void* destination, const void* source,
                      size_t bytes, cl_uint, const cl_event*, cl_event*) {
  return copy_record(queue, to_signed(bytes), find_pointer(source), find_pointer(destination),
                     blocking);
}

MemcpyRecord migrate(const Queue& queue, cl_uint count, const cl_mem* objects,
                     cl_mem_migration_flags flags, cl_uint, const cl_event*, cl_event*) {
  MemoryObject last;
  int64_t bytes = 0;
  for (cl_uint i = 0; i < count; ++i) {
    last = find_memory(objects[i]);
    bytes = add_known(bytes, last.bytes);
  }
  if (count != 1) last.object_id = kNullI64;
  return migration_record(queue, flags, bytes, last);
}

// Size 0 (or no sizes) stands for the whole allocation that holds the pointer.
MemcpyRecord migrate_svm(const Queue& queue, cl_uint count, const void** pointers,
                         const size_t* sizes, cl_mem_migration_flags flags, cl_uint,
                         const cl_event*, cl_event*) {
  MemoryObject last;
  int64_t bytes = 0;
  for (cl_uint i = 0; i < count; ++i) {
    last = find_pointer(pointers[i]);
    const bool whole = sizes == nullptr || sizes[i] == 0;
    bytes = add_known(bytes, whole ? last.bytes : to_signed(sizes[i]));
  }
  if (count != 1) last.object_id = kNullI64;
  return migration_record(queue, flags, bytes, last);
}

}  // namespace

void wrap_transfers(Dispatch& table) {
  table.clEnqueueSVMMemcpy = PASTA_ENQUEUED(clEnqueueSVMMemcpy, copy_svm);
  table.clEnqueueMigrateMemObjects = PASTA_ENQUEUED(clEnqueueMigrateMemObjects, migrate);
  table.clEnqueueSVMMigrateMem = PASTA_ENQUEUED(clEnqueueSVMMigrateMem, migrate_svm);
}

}  // namespace pasta::opencl
