#include "backends/opencl/device_info.h"

#include <array>
#include <string>

#include "backends/opencl/dispatch.h"
#include "backends/opencl/memory_options.h"
#include "backends/opencl/normalize.h"
#include "backends/opencl/query.h"
#include "device/opencl/plan.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

bool has_extension(const std::string& extensions, const std::string& name) {
  return (" " + extensions + " ").find(" " + name + " ") != std::string::npos;
}

StringId intern_known(const std::string& text) { return text.empty() ? StringId{} : intern(text); }

int32_t to_count(cl_uint value) {
  return value == 0 || value > INT32_MAX ? kNullI32 : static_cast<int32_t>(value);
}
int64_t to_bytes(cl_ulong value) {
  return value == 0 || value > INT64_MAX ? kNullI64 : static_cast<int64_t>(value);
}

int32_t to_khz(cl_uint mhz) {
  return mhz == 0 || mhz > INT32_MAX / 1000 ? kNullI32 : static_cast<int32_t>(mhz * 1000);
}

}  // namespace

cl_uint warp_size(cl_device_id device) {
  const auto info = next(device).clGetDeviceInfo;
  const std::string extensions = query_text(info, device, CL_DEVICE_EXTENSIONS);
  if (has_extension(extensions, "cl_nv_device_attribute_query"))
    return query<cl_uint>(info, device, CL_DEVICE_WARP_SIZE_NV, 0);
  if (has_extension(extensions, "cl_amd_device_attribute_query"))
    return query<cl_uint>(info, device, CL_DEVICE_WAVEFRONT_WIDTH_AMD, 0);
  return 0;
}

DeviceRecord describe_device(cl_device_id device, int32_t id) {
  const auto info = next(device).clGetDeviceInfo;
  const auto platform = query<cl_platform_id>(info, device, CL_DEVICE_PLATFORM, nullptr);
  const std::string extensions = query_text(info, device, CL_DEVICE_EXTENSIONS);
  DeviceRecord row;
  row.device_id = id;
  row.vendor = intern_known(query_text(info, device, CL_DEVICE_VENDOR));
  row.name = intern_known(query_text(info, device, CL_DEVICE_NAME));
  row.kind = device_kind(query<cl_device_type>(info, device, CL_DEVICE_TYPE, 0));
  if (platform != nullptr) {
    const auto platform_info = next(platform).clGetPlatformInfo;
    row.platform = intern_known(query_text(platform_info, platform, CL_PLATFORM_NAME) + " " +
                                query_text(platform_info, platform, CL_PLATFORM_VERSION));
  }
  row.driver = intern_known(query_text(info, device, CL_DRIVER_VERSION));
  row.architecture = intern_known(query_text(info, device, CL_DEVICE_VERSION));
  row.memory_bytes = to_bytes(query<cl_ulong>(info, device, CL_DEVICE_GLOBAL_MEM_SIZE, 0));
  row.multiprocessors = to_count(query<cl_uint>(info, device, CL_DEVICE_MAX_COMPUTE_UNITS, 0));
  row.line_bytes = to_count(query<cl_uint>(info, device, CL_DEVICE_GLOBAL_MEM_CACHELINE_SIZE, 0));
  row.cache_bytes = to_bytes(query<cl_ulong>(info, device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, 0));
  row.shared_bytes = to_bytes(query<cl_ulong>(info, device, CL_DEVICE_LOCAL_MEM_SIZE, 0));
  row.clock_khz = to_khz(query<cl_uint>(info, device, CL_DEVICE_MAX_CLOCK_FREQUENCY, 0));
  row.timestamps = Bool::yes;  // command profiling is a required part of OpenCL
  row.warp_size = to_count(warp_size(device));
  // Lanes are then compared in sub-groups of this width all the same.
  if (row.warp_size == kNullI32 && memory_options().compares_lanes())
    row.warp_size = static_cast<int32_t>(memory::Reducers{}.width);
  if (has_extension(extensions, "cl_khr_device_uuid")) {
    using Uuid = std::array<uint8_t, CL_UUID_SIZE_KHR>;
    const Uuid uuid = query(info, device, CL_DEVICE_UUID_KHR, Uuid{});
    if (uuid != Uuid{}) row.uuid = intern(uuid_text(uuid.data()));
  }
  if (has_extension(extensions, "cl_khr_pci_bus_info")) {
    constexpr cl_uint unknown = ~cl_uint{0};
    const auto pci = query<cl_device_pci_bus_info_khr>(info, device, CL_DEVICE_PCI_BUS_INFO_KHR,
                                                       {unknown, 0, 0, 0});
    if (pci.pci_domain != unknown) {
      row.pci = intern(pci_text(pci.pci_domain, pci.pci_bus, pci.pci_device, pci.pci_function));
    }
  }
  return row;
}

}  // namespace pasta::opencl
