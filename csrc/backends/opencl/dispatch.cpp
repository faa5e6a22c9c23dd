#include "backends/opencl/dispatch.h"

#include <atomic>
#include <cstring>
#include <mutex>

#include <dlfcn.h>

#include "backends/opencl/normalize.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/patch.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

// A driver's table that was patched: where it is, and what it was.
struct PatchedTable {
  const void* address;
  Dispatch original;
};
constexpr int kMaxTables = 16;

std::mutex g_mutex;
Dispatch g_layer_target;
Dispatch g_layer_wrappers;
std::atomic<const Dispatch*> g_layer{nullptr};
PatchedTable g_patched[kMaxTables];
std::atomic<int> g_patched_count{0};

// A driver of cl_khr_icd 2.0 marks its table with this; the functions are then in a table of the
// loader.
constexpr uintptr_t kIcd2Tag = 0x434C3331;

// Number of leading entries that a driver of this OpenCL version has at least.
size_t entries_of_version(int version) {
  constexpr int versions[] = {
#define PASTA_CL(version, interest, name) version,
#define PASTA_CL_SLOT(version, name) version,
#include "backends/opencl/dispatch.def"
#undef PASTA_CL
#undef PASTA_CL_SLOT
  };
  size_t entries = 0;
  while (entries < kDispatchEntries && versions[entries] <= version) ++entries;
  return entries;
}

// Our wrappers, where there is something for them to call.
Dispatch wrappers_for(const Dispatch& target) {
  Dispatch wrappers = make_wrappers();
  auto* const ours = reinterpret_cast<void**>(&wrappers);
  const auto* const theirs = reinterpret_cast<void* const*>(&target);
  for (size_t i = 0; i < kDispatchEntries; ++i) {
    if (theirs[i] == nullptr) ours[i] = nullptr;
  }
  return wrappers;
}

// Keeps the library that `function` is in mapped for good: we call it until the end of the process.
void pin_library(const void* function) {
  Dl_info info;
  if (function == nullptr || dladdr(function, &info) == 0 || info.dli_fname == nullptr) return;
  dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_NODELETE | RTLD_LAZY);
}

}  // namespace

const Dispatch& next(const void* handle) {
  if (const Dispatch* target = g_layer.load(std::memory_order_acquire)) return *target;
  const int count = g_patched_count.load(std::memory_order_acquire);
  if (handle != nullptr) {
    const void* const table = *static_cast<const void* const*>(handle);
    for (int i = 1; i < count; ++i) {
      if (g_patched[i].address == table) return g_patched[i].original;
    }
  }
  return g_patched[0].original;
}

bool layer_is_open() { return g_layer.load(std::memory_order_acquire) != nullptr; }

const Dispatch* open_layer(const void* target, cl_uint entries, cl_uint* usable) {
  std::lock_guard lock(g_mutex);
  // A second loader in the process: the first one's functions serve both, since they go by the
  // object's own table. What depends on a loader's list of platforms is not wrapped.
  if (g_patched_count.load() > 0) return nullptr;
  const size_t count = entries < kDispatchEntries ? entries : kDispatchEntries;
  if (g_layer.load() == nullptr) {
    g_layer_target = Dispatch{};
    std::memcpy(&g_layer_target, target, count * sizeof(void*));
    g_layer_wrappers = wrappers_for(g_layer_target);
    pin_library(reinterpret_cast<const void*>(g_layer_target.clGetPlatformInfo));
    g_layer.store(&g_layer_target, std::memory_order_release);
  }
  *usable = static_cast<cl_uint>(count);
  return &g_layer_wrappers;
}

void close_layer() {
  // The wrappers may still be called by what is left of the program; the driver's functions are
  // pinned with their loader, so they can go on calling them. Our own calls stop: see
  // forget_objects().
  forget_objects();
}

bool patch_platform(cl_platform_id platform) {
  std::lock_guard lock(g_mutex);
  if (platform == nullptr || layer_is_open()) return false;
  auto* const table = *reinterpret_cast<void***>(platform);
  const int count = g_patched_count.load();
  for (int i = 0; i < count; ++i) {
    if (g_patched[i].address == table) return true;
  }
  if (count == kMaxTables || reinterpret_cast<uintptr_t>(table[0]) == kIcd2Tag) {
    report_loss("opencl", "", kNullI64,
                "the driver's functions cannot be reached without an OpenCL layer",
                "use a loader that supports OPENCL_LAYERS (ocl-icd, the Khronos loader)");
    return false;
  }
  char version[128] = {};
  const auto get_info = reinterpret_cast<decltype(Dispatch::clGetPlatformInfo)>(table[1]);
  if (get_info(platform, CL_PLATFORM_VERSION, sizeof(version) - 1, version, nullptr) != CL_SUCCESS)
    return false;
  const size_t entries = entries_of_version(version_number(version));

  PatchedTable& patched = g_patched[count];
  patched.address = table;
  patched.original = Dispatch{};
  std::memcpy(&patched.original, table, entries * sizeof(void*));
  pin_library(table[1]);
  g_patched_count.store(count + 1, std::memory_order_release);
  const Dispatch wrappers = wrappers_for(patched.original);
  if (!overwrite_table(table, reinterpret_cast<void* const*>(&wrappers), entries)) {
    g_patched_count.store(count, std::memory_order_release);
    report_loss("opencl", "", kNullI64, "the driver's table of functions cannot be written",
                "use a loader that supports OPENCL_LAYERS (ocl-icd, the Khronos loader)");
    return false;
  }
  return true;
}

}  // namespace pasta::opencl
