#include "backends/sanitizer/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

namespace pasta::sanitizer {
namespace {

namespace fs = std::filesystem;

constexpr int kOldest = 13000;           // of the headers that pasta builds with
constexpr int kFirstWithRecursion = 13002;  // has sanitizerIsInsideRecursiveCallback

int parse_version(std::string_view text) {
  int major = 0, minor = 0;
  return std::sscanf(std::string(text).c_str(), "%d.%d", &major, &minor) == 2 ? major * 1000 + minor : 0;
}

// site-packages/nvidia_cuda_sanitizer_api-13.5.25.dist-info
int version_of_wheel(const fs::path& site_packages) {
  constexpr std::string_view kPrefix = "nvidia_cuda_sanitizer_api-";
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(site_packages, error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(kPrefix, 0) == 0) return parse_version(std::string_view(name).substr(kPrefix.size()));
  }
  return 0;
}

// version.json of a toolkit: "cuda_sanitizer_api" : { ..., "version" : "13.0.85" }
int version_of_toolkit(const fs::path& root) {
  std::ifstream file(root / "version.json");
  std::stringstream text;
  text << file.rdbuf();
  const std::string json = text.str();
  size_t at = json.find("\"cuda_sanitizer_api\"");
  if (at == std::string::npos) return 0;
  at = json.find("\"version\"", at);
  if (at == std::string::npos) return 0;
  at = json.find_first_of("0123456789", at);
  return at == std::string::npos ? 0 : parse_version(std::string_view(json).substr(at, 16));
}

void add_list(const char* list, std::vector<std::string>& paths) {
  std::stringstream text(list == nullptr ? "" : list);
  for (std::string path; std::getline(text, path, ':');) {
    if (!path.empty()) paths.push_back(path);
  }
}

// The newest first; of one version, as they were found.
std::vector<std::string> candidates() {
  if (const char* path = std::getenv("PASTA_SANITIZER_PATH"); path != nullptr && *path != '\0') {
    return {path};  // a wrong path is an error, not a reason to look further
  }
  std::vector<std::string> paths;
  add_list(std::getenv("PASTA_SANITIZER_HINTS"), paths);
  const char* const home = std::getenv("CUDA_HOME");
  for (const char* root : {home, "/usr/local/cuda"}) {
    if (root == nullptr) continue;
    paths.push_back(std::string(root) + "/compute-sanitizer/libsanitizer-public.so");
    paths.push_back(std::string(root) + "/extras/compute-sanitizer/libsanitizer-public.so");
  }
  std::stable_sort(paths.begin(), paths.end(), [](const std::string& a, const std::string& b) {
    return version_beside(a) > version_beside(b);
  });
  paths.push_back("libsanitizer-public.so");
  return paths;
}

void resolve(Library& library, void* handle) {
#define PASTA_SANITIZER(name)                                                                      \
  library.call.name = reinterpret_cast<decltype(&::name)>(dlsym(handle, #name));                   \
  if (library.call.name == nullptr) {                                                              \
    library.error = library.path + " lacks " #name;                                                \
    return;                                                                                        \
  }
#include "backends/sanitizer/functions.def"
#undef PASTA_SANITIZER
  library.version = version_beside(library.path);
  library.version_known = library.version != 0;
  if (!library.version_known) {
    const bool recursion = dlsym(handle, "sanitizerIsInsideRecursiveCallback") != nullptr;
    library.version = recursion ? kFirstWithRecursion : kOldest;
  }
}

Library load() {
  Library library;
  std::string first_error;
  for (const std::string& path : candidates()) {
    void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      if (first_error.empty()) first_error = dlerror();
      continue;
    }
    library.path = path;
    resolve(library, handle);
    return library;
  }
  library.error = "no Compute Sanitizer library found (" + first_error + ")";
  return library;
}

}  // namespace

int version_beside(const std::string& path) {
  std::error_code error;
  fs::path directory = fs::weakly_canonical(path, error).parent_path();
  // nvidia/cu13/compute-sanitizer lies three below site-packages; a toolkit's folder one below its root.
  for (int up = 0; up < 4 && directory.has_relative_path(); ++up, directory = directory.parent_path()) {
    if (const int version = version_of_wheel(directory); version != 0) return version;
    if (const int version = version_of_toolkit(directory); version != 0) return version;
  }
  return 0;
}

const Library& library() {
  static const Library* const loaded = new Library(load());
  return *loaded;
}

std::string describe(SanitizerResult result) {
  const char* text = nullptr;
  if (library().call.sanitizerGetResultString != nullptr) library().call.sanitizerGetResultString(result, &text);
  return text == nullptr ? "error " + std::to_string(static_cast<int>(result)) : text;
}

}  // namespace pasta::sanitizer
