// Asks a device for its row of `device`.
#pragma once

#include <cstdint>

#include "backends/opencl/cl_api.h"
#include "schema/tables.h"

namespace pasta::opencl {

DeviceRecord describe_device(cl_device_id device, int32_t id);

}  // namespace pasta::opencl
