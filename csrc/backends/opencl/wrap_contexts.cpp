// Contexts and sub-devices.
#include <memory>

#include "backends/opencl/api_call.h"
#include "backends/opencl/creation.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

// The platform that a context is made for, to find the runtime with.
const void* platform_of(const cl_context_properties* properties) {
  for (; properties != nullptr && *properties != 0; properties += 2) {
    if (*properties == CL_CONTEXT_PLATFORM) return reinterpret_cast<const void*>(properties[1]);
  }
  return nullptr;
}

using ContextNotify = void(CL_CALLBACK*)(const char*, const void*, size_t, void*);

cl_context CL_API_CALL create_context(const cl_context_properties* properties, cl_uint device_count,
                                      const cl_device_id* devices, ContextNotify notify,
                                      void* user_data, cl_int* error) {
  const bool has_device = device_count > 0 && devices != nullptr;
  const auto function =
      next(has_device ? static_cast<const void*>(devices[0]) : platform_of(properties))
          .clCreateContext;
  if (!recording()) return function(properties, device_count, devices, notify, user_data, error);
  Creation creation(Entry::clCreateContext, error);
  const cl_context context =
      function(properties, device_count, devices, notify, user_data, creation.error());
  return creation.finish(context, [&] { add_context(context); });
}

cl_context CL_API_CALL create_context_from_type(const cl_context_properties* properties,
                                                cl_device_type type, ContextNotify notify,
                                                void* user_data, cl_int* error) {
  const auto function = next(platform_of(properties)).clCreateContextFromType;
  if (!recording()) return function(properties, type, notify, user_data, error);
  Creation creation(Entry::clCreateContextFromType, error);
  const cl_context context = function(properties, type, notify, user_data, creation.error());
  return creation.finish(context, [&] { add_context(context); });
}

cl_int CL_API_CALL retain_context(cl_context context) {
  const auto function = next(context).clRetainContext;
  if (!recording()) return function(context);
  ApiCall call(Entry::clRetainContext);
  const cl_int result = function(context);
  call.finish(result);
  guard([&] {
    const auto known = result == CL_SUCCESS ? find_context(context) : nullptr;
    if (known != nullptr) ++known->references;
  });
  return result;
}

cl_int CL_API_CALL release_context(cl_context context) {
  const auto function = next(context).clReleaseContext;
  if (!recording()) return function(context);
  std::shared_ptr<Context> known;
  guard([&] { known = state().contexts.find(context).value_or(nullptr); });
  ApiCall call(Entry::clReleaseContext);
  const cl_int result = function(context);
  call.finish(result);
  guard([&] {
    if (known == nullptr || result != CL_SUCCESS || --known->references != 0) return;
    ContextRecord row;
    row.context_id = known->id;
    row.end_ns = now_ns();
    emit(row);
  });
  return result;
}

cl_int CL_API_CALL create_sub_devices(cl_device_id device,
                                      const cl_device_partition_property* properties,
                                      cl_uint capacity, cl_device_id* devices, cl_uint* count) {
  const auto function = next(device).clCreateSubDevices;
  if (!recording()) return function(device, properties, capacity, devices, count);
  ApiCall call(Entry::clCreateSubDevices);
  cl_uint own_count = 0;
  cl_uint* const made = count == nullptr && devices != nullptr ? &own_count : count;
  const cl_int result = function(device, properties, capacity, devices, made);
  call.finish(result);
  guard([&] {
    // These handles may have been those of sub-devices that are gone.
    if (result != CL_SUCCESS || devices == nullptr) return;
    for (cl_uint i = 0; i < *made && i < capacity; ++i) state().devices.take(devices[i]);
  });
  return result;
}

}  // namespace

void wrap_contexts(Dispatch& table) {
  table.clCreateContext = create_context;
  table.clCreateContextFromType = create_context_from_type;
  table.clRetainContext = retain_context;
  table.clReleaseContext = release_context;
  table.clCreateSubDevices = create_sub_devices;
}

}  // namespace pasta::opencl
