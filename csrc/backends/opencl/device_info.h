// Asks a device for its row of `device`.
#pragma once

#include <cstdint>

#include "backends/opencl/cl_api.h"
#include "schema/tables.h"

namespace pasta::opencl {

// Work-items that the device runs together; 0 where it has no fixed number.
cl_uint warp_size(cl_device_id device);

DeviceRecord describe_device(cl_device_id device, int32_t id);

}  // namespace pasta::opencl
