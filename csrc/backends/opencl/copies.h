// Rows of `memcpy`, from what a copy has at its two ends.
#pragma once

#include <cstdint>

#include "backends/opencl/normalize.h"
#include "backends/opencl/objects.h"

namespace pasta::opencl {

// The program's own memory, as an end of a copy.
inline MemoryObject host_memory() {
  MemoryObject host;
  host.kind = MemoryKind::pageable;
  return host;
}

// A copy that `queue` makes; memory of a context is then used on the queue's device.
inline MemcpyRecord copy_record(const Queue& queue, MemcpyKind kind, int64_t bytes,
                                const MemoryObject& source, const MemoryObject& destination,
                                bool blocking) {
  MemcpyRecord row;
  row.kind = kind;
  row.bytes = bytes;
  row.src_kind = source.kind;
  row.dst_kind = destination.kind;
  if (is_device_memory(source.kind)) row.src_device_id = queue.device->id;
  if (is_device_memory(destination.kind)) row.dst_device_id = queue.device->id;
  row.src_object_id = source.object_id;
  row.dst_object_id = destination.object_id;
  row.asynchronous = to_bool(!blocking);
  return row;
}

inline MemcpyRecord copy_record(const Queue& queue, int64_t bytes, const MemoryObject& source,
                                const MemoryObject& destination, bool blocking) {
  return copy_record(queue, copy_kind(source.kind, destination.kind), bytes, source, destination,
                     blocking);
}

// A migration moves objects to the queue's device, or to the host; nothing when their content may
// be lost.
inline MemcpyRecord migration_record(const Queue& queue, cl_mem_migration_flags flags,
                                     int64_t bytes, const MemoryObject& object) {
  if (flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED) bytes = 0;
  if (flags & CL_MIGRATE_MEM_OBJECT_HOST) {
    return copy_record(queue, MemcpyKind::d2h, bytes, object, host_memory(), false);
  }
  return copy_record(queue, MemcpyKind::h2d, bytes, host_memory(), object, false);
}

}  // namespace pasta::opencl
