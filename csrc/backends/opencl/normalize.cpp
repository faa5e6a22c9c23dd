#include "backends/opencl/normalize.h"

#include <cstdio>
#include <cstring>

namespace pasta::opencl {
namespace {

int32_t to_i32(uint64_t value) {
  return value <= INT32_MAX ? static_cast<int32_t>(value) : kNullI32;
}

}  // namespace

int64_t region_bytes(const size_t region[3], size_t element_bytes) {
  uint64_t bytes = element_bytes;
  for (int i = 0; i < 3; ++i) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(region[i]), &bytes)) return kNullI64;
  }
  return to_signed(bytes);
}

Geometry geometry(cl_uint dimensions, const size_t* global, const size_t* local,
                  const size_t* required) {
  Geometry result;
  if (global == nullptr || dimensions < 1 || dimensions > 3) return result;
  const size_t* block = local != nullptr ? local : required;
  for (cl_uint i = 0; i < 3; ++i) {
    const uint64_t items = i < dimensions ? global[i] : 1;
    result.global[i] = to_signed(items);
    if (block == nullptr) continue;
    const uint64_t group = i < dimensions ? block[i] : 1;
    if (group == 0) continue;
    result.block[i] = to_i32(group);
    result.grid[i] = to_i32(items / group + (items % group != 0));
  }
  return result;
}

int64_t pattern_value(const void* pattern, size_t bytes) {
  if (pattern == nullptr || bytes == 0 || bytes > sizeof(uint64_t)) return kNullI64;
  uint64_t value = 0;
  std::memcpy(&value, pattern, bytes);
  return static_cast<int64_t>(value);
}

DeviceKind device_kind(cl_device_type type) {
  if (type & CL_DEVICE_TYPE_GPU) return DeviceKind::gpu;
  if (type & CL_DEVICE_TYPE_CPU) return DeviceKind::cpu;
  if (type & (CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM)) return DeviceKind::accelerator;
  return DeviceKind::unknown;
}

MemoryKind memory_kind(cl_mem_object_type type, cl_mem parent) {
  switch (type) {
    case CL_MEM_OBJECT_BUFFER:
      return parent == nullptr ? MemoryKind::device : MemoryKind::sub_buffer;
    case CL_MEM_OBJECT_PIPE:
      return MemoryKind::pipe;
    case CL_MEM_OBJECT_IMAGE1D:
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
    case CL_MEM_OBJECT_IMAGE1D_BUFFER:
    case CL_MEM_OBJECT_IMAGE2D:
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
    case CL_MEM_OBJECT_IMAGE3D:
      return MemoryKind::image;
    default:
      return MemoryKind::unknown;
  }
}

MemcpyKind copy_kind(MemoryKind source, MemoryKind destination) {
  const bool from_device = is_device_memory(source);
  const bool to_device = is_device_memory(destination);
  if (from_device) return to_device ? MemcpyKind::d2d : MemcpyKind::d2h;
  return to_device ? MemcpyKind::h2d : MemcpyKind::h2h;
}

QueueProperties copy_properties(const cl_queue_properties* list) {
  QueueProperties copy;
  if (list == nullptr) return copy;
  for (; *list != 0; list += 2) copy.insert(copy.end(), {list[0], list[1]});
  copy.push_back(0);
  return copy;
}

namespace {

const cl_queue_properties* find_property(const QueueProperties& list, cl_queue_properties name) {
  for (size_t i = 0; i + 1 < list.size(); i += 2) {
    if (list[i] == name) return &list[i + 1];
  }
  return nullptr;
}

}  // namespace

cl_command_queue_properties queue_flags(const QueueProperties& list) {
  const cl_queue_properties* value = find_property(list, CL_QUEUE_PROPERTIES);
  return value == nullptr ? 0 : *value;
}

QueueProperties with_profiling(QueueProperties list) {
  if (list.empty()) list.push_back(0);
  for (size_t i = 0; i + 1 < list.size(); i += 2) {
    if (list[i] == CL_QUEUE_PROPERTIES) {
      list[i + 1] |= CL_QUEUE_PROFILING_ENABLE;
      return list;
    }
  }
  list.insert(list.begin(), {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE});
  return list;
}

int32_t queue_priority(const QueueProperties& list) {
  const cl_queue_properties* value = find_property(list, CL_QUEUE_PRIORITY_KHR);
  if (value == nullptr) return kNullI32;
  if (*value & CL_QUEUE_PRIORITY_HIGH_KHR) return 0;
  if (*value & CL_QUEUE_PRIORITY_MED_KHR) return 1;
  return *value & CL_QUEUE_PRIORITY_LOW_KHR ? 2 : kNullI32;
}

std::string uuid_text(const uint8_t bytes[16]) {
  std::string text;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", bytes[i]);
    text += digits;
  }
  return text;
}

std::string pci_text(uint32_t domain, uint32_t bus, uint32_t device, uint32_t function) {
  char text[48];
  std::snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", domain, bus, device, function);
  return text;
}

int version_number(const char* version_text) {
  int major = 0;
  int minor = 0;
  if (std::sscanf(version_text, "OpenCL %d.%d", &major, &minor) != 2) return 100;
  if (major < 1 || major > 99 || minor < 0 || minor > 9) return 100;
  return major * 100 + minor * 10;
}

}  // namespace pasta::opencl
