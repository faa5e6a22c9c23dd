// OpenCL's arguments as the schema's values. Expected values are worked out by hand.
#include "check.h"

#if __has_include(<CL/cl.h>)
#include <cstring>
#include <string>

#include "backends/opencl/normalize.h"

using namespace pasta;
using namespace pasta::opencl;

namespace {

void test_regions() {
  const size_t image[3] = {7, 5, 3};
  CHECK(region_bytes(image, 16) == 7 * 5 * 3 * 16);
  CHECK(region_bytes(image, 1) == 105);
  const size_t empty[3] = {0, 5, 3};
  CHECK(region_bytes(empty, 4) == 0);
  const size_t absurd[3] = {SIZE_MAX, SIZE_MAX, 2};
  CHECK(region_bytes(absurd, 4) == kNullI64);
  const size_t no_63_bits[3] = {size_t{1} << 60, 8, 1};
  CHECK(region_bytes(no_63_bits, 1) == kNullI64);
}

void test_sums() {
  CHECK(add_known(3, 4) == 7);
  CHECK(add_known(kNullI64, 4) == kNullI64);
  CHECK(add_known(4, kNullI64) == kNullI64);
  CHECK(add_known(INT64_MAX, 1) == kNullI64);
  CHECK(to_signed(SIZE_MAX) == kNullI64);
}

void test_geometry() {
  const size_t global[3] = {1000, 6, 4};
  const size_t local[3] = {64, 2, 4};
  const Geometry full = geometry(3, global, local, nullptr);
  CHECK(full.global[0] == 1000 && full.global[1] == 6 && full.global[2] == 4);
  CHECK(full.block[0] == 64 && full.block[1] == 2 && full.block[2] == 4);
  CHECK(full.grid[0] == 16 && full.grid[1] == 3 &&
        full.grid[2] == 1);  // 15.6 groups: the last is partial

  // Dimensions that are not used have one work-item.
  const Geometry line = geometry(1, global, local, nullptr);
  CHECK(line.grid[0] == 16 && line.grid[1] == 1 && line.grid[2] == 1);
  CHECK(line.block[1] == 1 && line.global[2] == 1);

  // Without a local size the runtime chooses, unless the kernel has a required one.
  const Geometry chosen = geometry(2, global, nullptr, nullptr);
  CHECK(chosen.global[0] == 1000 && chosen.global[2] == 1);
  CHECK(chosen.block[0] == kNullI32 && chosen.grid[0] == kNullI32 && chosen.grid[2] == kNullI32);
  const size_t required[3] = {8, 3, 1};
  const Geometry fixed = geometry(2, global, nullptr, required);
  CHECK(fixed.block[0] == 8 && fixed.block[1] == 3 && fixed.block[2] == 1);
  CHECK(fixed.grid[0] == 125 && fixed.grid[1] == 2 && fixed.grid[2] == 1);

  // OpenCL 2.1 allows a launch of nothing.
  const size_t nothing[1] = {0};
  CHECK(geometry(1, nothing, local, nullptr).grid[0] == 0);

  // What a program may get wrong is the runtime's to refuse, not ours to fall over.
  CHECK(geometry(4, global, local, nullptr).global[0] == kNullI64);
  CHECK(geometry(0, global, local, nullptr).global[0] == kNullI64);
  CHECK(geometry(1, nullptr, local, nullptr).global[0] == kNullI64);
  const size_t zero[3] = {0, 1, 1};
  CHECK(geometry(1, global, zero, nullptr).grid[0] == kNullI32);
  const size_t huge[1] = {SIZE_MAX};
  const size_t one[1] = {1};
  CHECK(geometry(1, huge, one, nullptr).grid[0] == kNullI32);
  CHECK(geometry(1, huge, one, nullptr).global[0] == kNullI64);
}

void test_patterns() {
  const uint8_t bytes[16] = {0x78, 0x56, 0x34, 0x12};
  CHECK(pattern_value(bytes, 1) == 0x78);
  CHECK(pattern_value(bytes, 4) == 0x12345678);
  CHECK(pattern_value(bytes, 8) == 0x12345678);
  CHECK(pattern_value(bytes, 16) == kNullI64);
  CHECK(pattern_value(nullptr, 4) == kNullI64);
}

void test_kinds() {
  CHECK(device_kind(CL_DEVICE_TYPE_GPU) == DeviceKind::gpu);
  CHECK(device_kind(CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_DEFAULT) == DeviceKind::cpu);
  CHECK(device_kind(CL_DEVICE_TYPE_ACCELERATOR) == DeviceKind::accelerator);
  CHECK(device_kind(CL_DEVICE_TYPE_DEFAULT) == DeviceKind::unknown);

  const auto parent = reinterpret_cast<cl_mem>(8);
  CHECK(memory_kind(CL_MEM_OBJECT_BUFFER, nullptr) == MemoryKind::device);
  CHECK(memory_kind(CL_MEM_OBJECT_BUFFER, parent) == MemoryKind::sub_buffer);
  CHECK(memory_kind(CL_MEM_OBJECT_IMAGE1D_BUFFER, parent) == MemoryKind::image);
  CHECK(memory_kind(CL_MEM_OBJECT_PIPE, nullptr) == MemoryKind::pipe);
  CHECK(memory_kind(0, nullptr) == MemoryKind::unknown);

  CHECK(copy_kind(MemoryKind::pageable, MemoryKind::device) == MemcpyKind::h2d);
  CHECK(copy_kind(MemoryKind::image, MemoryKind::pageable) == MemcpyKind::d2h);
  CHECK(copy_kind(MemoryKind::svm, MemoryKind::sub_buffer) == MemcpyKind::d2d);
  CHECK(copy_kind(MemoryKind::pageable, MemoryKind::pageable) == MemcpyKind::h2h);
}

void test_queue_properties() {
  CHECK(copy_properties(nullptr).empty());
  const cl_queue_properties none[] = {0};
  CHECK(copy_properties(none) == QueueProperties{0});  // which a runtime tells apart from no list

  const cl_queue_properties out_of_order = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
  const cl_queue_properties given[] = {CL_QUEUE_PRIORITY_KHR, CL_QUEUE_PRIORITY_LOW_KHR,
                                       CL_QUEUE_PROPERTIES, out_of_order, 0};
  const QueueProperties list = copy_properties(given);
  CHECK(list.size() == 5);
  CHECK(queue_flags(list) == out_of_order);
  CHECK(queue_priority(list) == 2);
  const QueueProperties profiled = with_profiling(list);
  CHECK(profiled.size() == 5);
  CHECK(queue_flags(profiled) == (out_of_order | CL_QUEUE_PROFILING_ENABLE));
  CHECK(queue_priority(profiled) == 2);

  const QueueProperties added = with_profiling({});
  CHECK((added == QueueProperties{CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0}));
  CHECK(with_profiling(QueueProperties{0}) == added);
  CHECK(queue_flags({}) == 0);
  CHECK(queue_priority({}) == kNullI32);
  CHECK(queue_priority({CL_QUEUE_PRIORITY_KHR, CL_QUEUE_PRIORITY_HIGH_KHR, 0}) == 0);
}

void test_texts() {
  const uint8_t uuid[16] = {0x86, 0x80, 0x71, 0x06, 0x0a, 0,    3, 0x32,
                            0xfa, 0xff, 0xff, 0xfb, 0x8b, 0x1f, 0, 1};
  CHECK(uuid_text(uuid) == "86807106-0a00-0332-faff-fffb8b1f0001");
  CHECK(pci_text(0, 0x3b, 0, 1) == "0000:3b:00.1");
  CHECK(version_number("OpenCL 3.0 PoCL 3.0-rc2") == 300);
  CHECK(version_number("OpenCL 1.2 LINUX") == 120);
  CHECK(version_number("FULL_PROFILE") == 100);
  CHECK(version_number("OpenCL 3.-1") == 100);
}

}  // namespace

int main() {
  test_regions();
  test_sums();
  test_geometry();
  test_patterns();
  test_kinds();
  test_queue_properties();
  test_texts();
  return g_failures == 0 ? 0 : 1;
}
#else
int main() { return 77; }
#endif
