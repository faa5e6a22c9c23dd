// The OpenCL door of loaders without layers (NVIDIA's), and of programs that name no layer: the
// preloaded library stands in front of clGetPlatformIDs, which every program calls first, and
// patches the tables of the drivers behind the platforms. A program that looks up OpenCL with
// dlopen and dlsym passes by; a layer catches that one.
//
// Nothing else of OpenCL is exported: a driver that takes the address of one of its own functions,
// as Oclgrind does to give the loader its clIcdGetPlatformIDsKHR, would give it ours.
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <link.h>

#include "backends/opencl/dispatch.h"
#include "backends/opencl/guard.h"
#include "doors/export.h"
#include "session/session.h"

namespace {

using GetPlatforms = cl_int(CL_API_CALL*)(cl_uint, cl_platform_id*, cl_uint*);

// CL_PLATFORM_NOT_FOUND_KHR: what a loader answers where there is no OpenCL.
constexpr cl_int kNoPlatform = -1001;

bool same_library(void* a, void* b) {
  Dl_info of_a;
  Dl_info of_b;
  return dladdr(a, &of_a) != 0 && dladdr(b, &of_b) != 0 && of_a.dli_fbase == of_b.dli_fbase;
}

bool is_ours(void* function) { return same_library(function, reinterpret_cast<void*>(&is_ours)); }

// `name` in a loaded library and what it depends on; null when that is ours or not there.
void* look_up(const char* library, const char* name) {
  void* const handle = dlopen(library, RTLD_NOLOAD | RTLD_LAZY);
  if (handle == nullptr) return nullptr;
  void* function = dlsym(handle, name);
  if (function != nullptr && is_ours(function)) function = nullptr;
  dlclose(handle);
  return function;
}

// Paths of the loaded OpenCL loaders. Only collected under the dynamic linker's lock, looked into
// without.
int collect_loader(dl_phdr_info* info, size_t, void* data) {
  const char* slash = std::strrchr(info->dlpi_name, '/');
  const char* file = slash != nullptr ? slash + 1 : info->dlpi_name;
  if (std::strncmp(file, "libOpenCL", 9) == 0) {
    pasta::opencl::guard(
        [&] { static_cast<std::vector<std::string>*>(data)->emplace_back(info->dlpi_name); });
  }
  return 0;
}

// The function that `caller` would have called without us: its own (a driver that calls itself),
// that of a library it is linked with (which may be loaded out of sight of RTLD_NEXT), the next
// one, or a loader's.
GetPlatforms real_function(const char* name, void* caller) {
  Dl_info info;
  void* function = nullptr;
  if (dladdr(caller, &info) != 0 && info.dli_fname != nullptr)
    function = look_up(info.dli_fname, name);
  if (function == nullptr) function = dlsym(RTLD_NEXT, name);
  if (function == nullptr) {
    std::vector<std::string> loaders;
    dl_iterate_phdr(collect_loader, &loaders);
    for (size_t i = 0; function == nullptr && i < loaders.size(); ++i)
      function = look_up(loaders[i].c_str(), name);
  }
  return reinterpret_cast<GetPlatforms>(function);
}

// True when `get_platforms` is the driver's own, not a loader's: it lies beside the functions of
// the platform, to which cl_khr_icd gives a table whose second entry is clGetPlatformInfo.
bool is_driver(GetPlatforms get_platforms, cl_platform_id platform) {
  void* const platform_info = (*reinterpret_cast<void***>(platform))[1];
  return same_library(reinterpret_cast<void*>(get_platforms), platform_info);
}

// The loader has opened its layers by now, if it has any.
void patch_platforms(GetPlatforms get_platforms) {
  if (pasta::opencl::layer_is_open()) return;
  cl_uint count = 0;
  if (get_platforms(0, nullptr, &count) != CL_SUCCESS || count == 0) return;
  std::vector<cl_platform_id> platforms(count);
  if (get_platforms(count, platforms.data(), nullptr) != CL_SUCCESS) return;
  for (cl_platform_id platform : platforms) {
    if (!is_driver(get_platforms, platform)) {
      pasta::opencl::patch_platform(platform);
    } else if (pasta::ensure_session()) {
      pasta::report_loss("opencl", "", pasta::kNullI64,
                         "the program calls an OpenCL driver without a loader",
                         "link the program with libOpenCL");
    }
  }
}

}  // namespace

PASTA_EXPORT cl_int CL_API_CALL clGetPlatformIDs(cl_uint capacity, cl_platform_id* platforms,
                                                 cl_uint* count) {
  void* const caller = __builtin_return_address(0);
  const GetPlatforms function = real_function("clGetPlatformIDs", caller);
  if (function == nullptr) {
    if (count != nullptr) *count = 0;
    return kNoPlatform;
  }
  const cl_int result = function(capacity, platforms, count);
  const bool calls_itself = same_library(reinterpret_cast<void*>(function), caller);
  if (result == CL_SUCCESS && !calls_itself && pasta::wants_recording()) {
    pasta::opencl::guard([&] { patch_platforms(function); });
  }
  return result;
}
