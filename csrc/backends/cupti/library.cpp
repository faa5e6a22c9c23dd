#include "backends/cupti/library.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include <dlfcn.h>
#include <link.h>

namespace pasta::cupti {
namespace {

int find_mapped(dl_phdr_info* info, size_t, void* found) {
  if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, "libcupti.so") == nullptr) return 0;
  *static_cast<std::string*>(found) = info->dlpi_name;
  return 1;
}

void add_list(const char* list, std::vector<std::string>& paths) {
  if (list == nullptr) return;
  const std::string text = list;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find(':', begin);
    if (end == std::string::npos) end = text.size();
    if (end > begin) paths.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  if (const char* path = std::getenv("PASTA_CUPTI_PATH"); path != nullptr && *path != '\0') {
    return {path};  // a wrong path is an error, not a reason to look further
  }
  std::string mapped;
  dl_iterate_phdr(find_mapped, &mapped);
  if (!mapped.empty()) paths.push_back(mapped);
  add_list(std::getenv("PASTA_CUPTI_HINTS"), paths);
  const char* const home = std::getenv("CUDA_HOME");
  for (const char* root : {home, "/usr/local/cuda"}) {
    if (root == nullptr) continue;
    paths.push_back(std::string(root) + "/extras/CUPTI/lib64/libcupti.so");
    paths.push_back(std::string(root) + "/targets/x86_64-linux/lib/libcupti.so");
    paths.push_back(std::string(root) + "/targets/sbsa-linux/lib/libcupti.so");
  }
  paths.insert(paths.end(), {"libcupti.so.13", "libcupti.so.12", "libcupti.so"});
  return paths;
}

void resolve(Library& library) {
#define PASTA_CUPTI(name)                                                                          \
  library.call.name = reinterpret_cast<decltype(&::name)>(dlsym(library.handle, #name));           \
  if (library.call.name == nullptr) {                                                              \
    library.error = library.path + " lacks " #name;                                                \
    return;                                                                                        \
  }
#define PASTA_CUPTI_OPTIONAL(name)                                                                 \
  library.call.name = reinterpret_cast<decltype(&::name)>(dlsym(library.handle, #name));
#include "backends/cupti/functions.def"
#undef PASTA_CUPTI
#undef PASTA_CUPTI_OPTIONAL
  library.call.cuptiGetVersion(&library.version);
}

Library load() {
  Library library;
  std::string first_error;
  for (const std::string& path : candidates()) {
    library.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle == nullptr) {
      if (first_error.empty()) first_error = dlerror();
      continue;
    }
    library.path = path;
    resolve(library);
    return library;
  }
  library.error = "no CUPTI found (" + first_error + ")";
  return library;
}

// " (CUPTI of CUDA 13.0, driver for CUDA 12.2)": most failures are of a pair that does not match.
std::string versions() {
  const auto number = [](int version, int major) {  // 13000 and 130000 are 13.0, 12020 is 12.2
    return std::to_string(version / major) + "." + std::to_string(version % major / (major / 100));
  };
  using GetVersion = int (*)(int*);
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  const auto get_version =
      driver == nullptr ? nullptr : reinterpret_cast<GetVersion>(dlsym(driver, "cuDriverGetVersion"));
  int of_driver = 0;
  const auto of_cupti = static_cast<int>(library().version);
  if (get_version == nullptr || get_version(&of_driver) != 0 || of_cupti < 100'000) return {};
  return " (CUPTI of CUDA " + number(of_cupti, 10'000) + ", driver for CUDA " + number(of_driver, 1000) + ")";
}

}  // namespace

const Library& library() {
  static const Library* const loaded = new Library(load());
  return *loaded;
}

std::string describe(CUptiResult result) {
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) return "another tool uses CUPTI in this process";
  const char* text = nullptr;
  if (library().call.cuptiGetResultString != nullptr) library().call.cuptiGetResultString(result, &text);
  return (text == nullptr ? "CUPTI error " + std::to_string(static_cast<int>(result)) : text) + versions();
}

const char* remedy(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: return "run one profiler at a time";
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_NOT_COMPATIBLE:
    case CUPTI_ERROR_NOT_INITIALIZED:
    case CUPTI_ERROR_NOT_SUPPORTED:
      return "update the driver, or set PASTA_CUPTI_PATH to the CUPTI of the driver's CUDA version";
    default: return "pasta doctor checks the driver";
  }
}

}  // namespace pasta::cupti
