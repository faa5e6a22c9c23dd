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

}  // namespace

const Library& library() {
  static const Library* const loaded = new Library(load());
  return *loaded;
}

std::string describe(CUptiResult result) {
  const char* text = nullptr;
  if (library().call.cuptiGetResultString != nullptr) library().call.cuptiGetResultString(result, &text);
  return text == nullptr ? "error " + std::to_string(static_cast<int>(result)) : text;
}

}  // namespace pasta::cupti
