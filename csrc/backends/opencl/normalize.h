// From OpenCL's arguments to the schema's values. Pure functions: no call of OpenCL, no state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/opencl/cl_api.h"
#include "schema/tables.h"

namespace pasta::opencl {

// A size as the tables hold it; kNullI64 when it is no 63-bit number.
constexpr int64_t to_signed(size_t bytes) {
  return bytes <= INT64_MAX ? static_cast<int64_t>(bytes) : kNullI64;
}
// The sum, unknown when one of the two is.
constexpr int64_t add_known(int64_t a, int64_t b) {
  int64_t sum = 0;
  return a == kNullI64 || b == kNullI64 || __builtin_add_overflow(a, b, &sum) ? kNullI64 : sum;
}

// Bytes of a rectangle or an image region of `region` elements; kNullI64 when that is no 63-bit
// number.
int64_t region_bytes(const size_t region[3], size_t element_bytes);

// What a launch covers, as the `kernel` table states it.
struct Geometry {
  int32_t grid[3] = {kNullI32, kNullI32,
                     kNullI32};  // work-groups, the last one of a row perhaps partial
  int32_t block[3] = {kNullI32, kNullI32,
                      kNullI32};  // work-items of a full group; null: the runtime chose
  int64_t global[3] = {kNullI64, kNullI64, kNullI64};
};
// `local` may be null, and so may `required` (the kernel's reqd_work_group_size, used where `local`
// is null).
Geometry geometry(cl_uint dimensions, const size_t* global, const size_t* local,
                  const size_t* required);

// A fill pattern as an integer, little-endian; kNullI64 when it has more than 8 bytes (or none).
int64_t pattern_value(const void* pattern, size_t bytes);

DeviceKind device_kind(cl_device_type type);
// `parent`: the buffer that the object is a part of, or null.
MemoryKind memory_kind(cl_mem_object_type type, cl_mem parent);

// True when memory of this kind belongs to a context, false for the program's own host memory.
constexpr bool is_device_memory(MemoryKind kind) {
  return kind != MemoryKind::unknown && kind != MemoryKind::pageable && kind != MemoryKind::null;
}
MemcpyKind copy_kind(MemoryKind source, MemoryKind destination);

// -- Queue properties: lists of (name, value) pairs that end with 0 -------------------------------
using QueueProperties = std::vector<cl_queue_properties>;

// The list with its terminating 0; empty for a null list (which the API tells apart from an empty
// one).
QueueProperties copy_properties(const cl_queue_properties* list);
// Value of CL_QUEUE_PROPERTIES in it, 0 when it is not there.
cl_command_queue_properties queue_flags(const QueueProperties& list);
// The list with profiling enabled, everything else as it was.
QueueProperties with_profiling(QueueProperties list);
// Value of CL_QUEUE_PRIORITY_KHR as "lower is more urgent": 0 high, 1 medium, 2 low; null when it
// is not there.
int32_t queue_priority(const QueueProperties& list);

std::string uuid_text(const uint8_t bytes[16]);
std::string pci_text(uint32_t domain, uint32_t bus, uint32_t device, uint32_t function);

// Major * 100 + minor * 10 of "OpenCL 3.0 vendor text"; 100 when it is not of that form.
int version_number(const char* version_text);

}  // namespace pasta::opencl
