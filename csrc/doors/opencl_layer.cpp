// The OpenCL door of loaders with layers (cl_loader_layers 1.0: the Khronos loader, ocl-icd): they
// load the libraries named in OPENCL_LAYERS and call what these functions give them. The types are
// written out because not every set of OpenCL headers has cl_layer.h.
#include <cstring>

#include "backends/opencl/dispatch.h"
#include "doors/export.h"
#include "session/session.h"

namespace {

constexpr cl_uint kLayerApiVersion = 0x4240;  // CL_LAYER_API_VERSION
constexpr cl_uint kLayerName = 0x4241;        // CL_LAYER_NAME
constexpr cl_uint kVersion100 = 100;          // CL_LAYER_API_VERSION_100

cl_int answer(const void* value, size_t bytes, size_t capacity, void* out, size_t* bytes_out) {
  if (out != nullptr) {
    if (capacity < bytes) return CL_INVALID_VALUE;
    std::memcpy(out, value, bytes);
  }
  if (bytes_out != nullptr) *bytes_out = bytes;
  return CL_SUCCESS;
}

}  // namespace

PASTA_EXPORT cl_int CL_API_CALL clGetLayerInfo(cl_uint which, size_t capacity, void* value,
                                               size_t* bytes) {
  constexpr char name[] = "pasta";
  switch (which) {
    case kLayerApiVersion:
      return answer(&kVersion100, sizeof(kVersion100), capacity, value, bytes);
    case kLayerName:
      return answer(name, sizeof(name), capacity, value, bytes);
    default:
      return CL_INVALID_VALUE;
  }
}

// Called by loaders before the Khronos loader of 2024.
PASTA_EXPORT cl_int CL_API_CALL clInitLayer(cl_uint entries, const void* target,
                                            cl_uint* layer_entries, const void** layer) {
  if (target == nullptr || layer_entries == nullptr || layer == nullptr) return CL_INVALID_VALUE;
  // A loader without this layer runs the program as it is.
  if (!pasta::wants_recording()) return CL_INVALID_OPERATION;
  *layer = pasta::opencl::open_layer(target, entries, layer_entries);
  return *layer != nullptr ? CL_SUCCESS : CL_INVALID_OPERATION;
}

PASTA_EXPORT cl_int CL_API_CALL
clInitLayerWithProperties(cl_uint entries, const void* target, cl_uint* layer_entries,
                          const void** layer, const cl_ulong* /*properties: none are defined*/) {
  return clInitLayer(entries, target, layer_entries, layer);
}

PASTA_EXPORT cl_int CL_API_CALL clDeinitLayer() {
  pasta::opencl::close_layer();
  return CL_SUCCESS;
}
