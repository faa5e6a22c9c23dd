#include "backends/torch/libtorch.h"

#include <atomic>
#include <climits>
#include <cstring>

#include <dlfcn.h>
#include <link.h>

namespace pasta::torch {
namespace {

struct Search {
  const char* prefix;  // of the file name: distributions append their own versions to it
  char path[PATH_MAX];
};

int match(dl_phdr_info* info, size_t, void* argument) {
  auto* search = static_cast<Search*>(argument);
  const char* path = info->dlpi_name;
  if (path == nullptr) return 0;
  const char* slash = std::strrchr(path, '/');
  const char* file = slash == nullptr ? path : slash + 1;
  if (std::strncmp(file, search->prefix, std::strlen(search->prefix)) != 0) return 0;
  if (std::strlen(path) >= sizeof(search->path)) return 0;
  std::strcpy(search->path, path);
  return 1;
}

// The handle is kept for good: code of pasta is registered with the library, which must not go
// away.
void* open_loaded(Library library) {
  static std::atomic<void*> handles[2];
  std::atomic<void*>& handle = handles[static_cast<int>(library)];
  if (void* known = handle.load(std::memory_order_acquire)) return known;
  Search search{library == Library::c10 ? "libc10.so" : "libtorch_cpu.so", {}};
  if (dl_iterate_phdr(match, &search) == 0) return nullptr;
  void* opened = dlopen(search.path, RTLD_LAZY | RTLD_NOLOAD);
  if (opened != nullptr) handle.store(opened, std::memory_order_release);
  return opened;
}

}  // namespace

void* find_symbol(Library library, const char* symbol) {
  void* handle = open_loaded(library);
  return handle == nullptr ? nullptr : dlsym(handle, symbol);
}

bool is_loaded(Library library) { return open_loaded(library) != nullptr; }

}  // namespace pasta::torch
