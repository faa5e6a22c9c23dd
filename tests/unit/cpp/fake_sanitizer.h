// A Compute Sanitizer library and a GPU in host memory, for the tests of what pasta does with them.
//
// Streams are queues that move only when somebody waits for them, as late as CUDA allows: what pasta forgets to put
// into a launch's own stream is missing when the kernel runs. A fill of host memory is such a wait: the stream tells
// that it has come to it.
#pragma once

#include <sanitizer.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "backends/sanitizer/library.h"
#include "device/nvidia/layout.h"

namespace fake {

using Stream = Sanitizer_StreamHandle;

inline const Stream kDefaultStream = reinterpret_cast<Stream>(0xdef);
// In a callback in which the driver holds its locks, so that changing code may hang: of a launch, a copy, a graph.
inline thread_local bool t_code_is_locked = false;
inline thread_local bool t_loads = false;  // in the callback of a module's loading, where it does not

struct Gpu {
  std::recursive_mutex mutex;
  std::map<Stream, std::deque<std::function<void()>>> streams;
  std::map<Sanitizer_LaunchHandle, void*> slots;  // as set for each launch
  std::set<std::string> patches;                  // names of the patches that modules got
  struct Module {
    bool patched = false;
    int patchings = 0, removals = 0;
  };
  std::map<CUmodule, Module> modules;  // that were patched at some time
  std::set<CUmodule> unpatchable;
  int kernels = 0;                       // that are still to run
  std::function<void()> while_patching;  // called when code is about to change
  std::set<Stream> stuck;                // in a kernel that waits for the program
  std::map<char*, size_t> host;          // its memory that the device can write
  int waits = 0;  // for a stream
  int uploads = 0, reads = 0, fills = 0, slots_set = 0;  // calls
  size_t allocated = 0;
  bool faulted = false;                    // every call fails, as after an illegal address
  std::function<void()> before_waiting;    // called at the start of each wait for a stream
};
inline Gpu g_gpu;

[[noreturn]] inline void hang(const char* why) {
  std::fprintf(stderr, "hangs: %s\n", why);
  std::_Exit(1);
}

inline void run(Stream stream) {
  std::lock_guard lock(g_gpu.mutex);
  if (g_gpu.stuck.count(stream) != 0) return;
  auto& queue = g_gpu.streams[stream];
  while (!queue.empty()) {
    queue.front()();
    queue.pop_front();
  }
}

inline void* slot_of(Sanitizer_LaunchHandle launch) {
  std::lock_guard lock(g_gpu.mutex);
  return g_gpu.slots[launch];
}

inline SanitizerResult result() { return g_gpu.faulted ? SANITIZER_ERROR_UNKNOWN : SANITIZER_SUCCESS; }

inline SanitizerResult alloc(CUcontext, void** memory, size_t bytes) {
  *memory = std::malloc(bytes);
  std::memset(*memory, 0xa5, bytes);  // device memory comes as it is
  std::lock_guard lock(g_gpu.mutex);
  g_gpu.allocated += bytes;
  return result();
}
inline SanitizerResult alloc_host(CUcontext context, void** memory, size_t bytes) {
  const SanitizerResult result = alloc(context, memory, bytes);
  std::lock_guard lock(g_gpu.mutex);
  g_gpu.host[static_cast<char*>(*memory)] = bytes;
  return result;
}
inline bool is_host(void* memory) {
  std::lock_guard lock(g_gpu.mutex);
  const auto after = g_gpu.host.upper_bound(static_cast<char*>(memory));
  return after != g_gpu.host.begin() && static_cast<char*>(memory) < std::prev(after)->first + std::prev(after)->second;
}
inline SanitizerResult release(CUcontext, void* memory) {
  std::free(memory);
  return result();
}
inline SanitizerResult to_device(void* to, void* from, size_t bytes, Stream stream) {
  std::lock_guard lock(g_gpu.mutex);
  std::vector<char> staged(static_cast<char*>(from), static_cast<char*>(from) + bytes);
  ++g_gpu.uploads;
  g_gpu.streams[stream].push_back([=] { std::memcpy(to, staged.data(), bytes); });
  return result();
}
inline void wait(Stream stream) {
  if (g_gpu.before_waiting) g_gpu.before_waiting();
  {
    std::lock_guard lock(g_gpu.mutex);
    ++g_gpu.waits;
  }
  if (!g_gpu.faulted) run(stream);
}
inline SanitizerResult synchronize(Stream stream) {
  if (g_gpu.stuck.count(stream) != 0) hang("a kernel is waited for that waits for the program");
  wait(stream);
  return result();
}
inline SanitizerResult to_host(void* to, void* from, size_t bytes, Stream stream) {
  if (g_gpu.faulted) return result();
  run(stream);
  std::lock_guard lock(g_gpu.mutex);
  ++g_gpu.reads;
  std::memcpy(to, from, bytes);
  return result();
}
inline SanitizerResult fill(void* at, int value, size_t bytes, Stream stream) {
  {
    std::lock_guard lock(g_gpu.mutex);
    ++g_gpu.fills;
    g_gpu.streams[stream].push_back([=] { std::memset(at, value, bytes); });
  }
  if (is_host(at)) wait(stream);
  return result();
}

// Code is about to change: the library waits for all that runs, however long that is.
inline void change_code() {
  if (t_code_is_locked) hang("code is changed in a callback in which the driver holds a lock for it");
  if (g_gpu.while_patching) g_gpu.while_patching();
  std::lock_guard lock(g_gpu.mutex);
  if (g_gpu.kernels != 0 && !t_loads) hang("code is changed while kernels run, which may run for ever");
}

// The code of a module lies elsewhere each time it is patched again.
inline uint64_t pc_of(CUmodule module) {
  std::lock_guard lock(g_gpu.mutex);
  const auto patched = g_gpu.modules.find(module);
  return 0x1000 + (patched == g_gpu.modules.end() ? 0 : 0x10000 * static_cast<uint64_t>(patched->second.removals));
}

// Puts this library in the place of NVIDIA's, which must not have been found.
inline void install() {
  auto& library = const_cast<pasta::sanitizer::Library&>(pasta::sanitizer::library());
  library.error.clear();
  library.version = 13005;
  library.version_known = true;
  auto& call = library.call;
  call.sanitizerAddPatches = [](const void*, CUcontext) { return result(); };
  call.sanitizerAlloc = alloc;
  call.sanitizerAllocHost = alloc_host;
  call.sanitizerFree = release;
  call.sanitizerFreeHost = release;
  call.sanitizerEnableCallback = [](uint32_t, Sanitizer_SubscriberHandle, Sanitizer_CallbackDomain,
                                    Sanitizer_CallbackId) { return result(); };
  call.sanitizerEnableDomain = [](uint32_t, Sanitizer_SubscriberHandle, Sanitizer_CallbackDomain) {
    return result();
  };
  call.sanitizerGetFunctionPcAndSize = [](CUmodule module, const char*, uint64_t* pc, uint64_t* size) {
    *pc = pc_of(module), *size = 0x400;
    return result();
  };
  call.sanitizerGetResultString = [](SanitizerResult, const char** text) {
    *text = "the fake GPU faulted";
    return SANITIZER_SUCCESS;
  };
  call.sanitizerGetStreamHandle = [](CUcontext, CUstream, Stream* stream) {
    *stream = kDefaultStream;
    return SANITIZER_SUCCESS;
  };
  call.sanitizerMemcpyDeviceToHost = to_host;
  call.sanitizerMemcpyHostToDeviceAsync = to_device;
  call.sanitizerMemset = fill;
  call.sanitizerPatchInstructions = [](Sanitizer_InstructionId, CUmodule, const char* name) {
    g_gpu.patches.insert(name);
    return result();
  };
  call.sanitizerPatchModule = [](CUmodule handle) {
    change_code();
    std::lock_guard lock(g_gpu.mutex);
    if (g_gpu.unpatchable.count(handle) != 0) return SANITIZER_ERROR_INVALID_PARAMETER;
    Gpu::Module& module = g_gpu.modules[handle];
    module.patched = true, ++module.patchings;
    return result();
  };
  call.sanitizerUnpatchModule = [](CUmodule handle) {
    change_code();
    std::lock_guard lock(g_gpu.mutex);
    Gpu::Module& module = g_gpu.modules[handle];
    module.patched = false, ++module.removals;
    return result();
  };
  call.sanitizerSetLaunchCallbackData = [](Sanitizer_LaunchHandle launch, CUfunction, Stream, const void* slot) {
    std::lock_guard lock(g_gpu.mutex);
    ++g_gpu.slots_set;
    g_gpu.slots[launch] = const_cast<void*>(slot);
    return SANITIZER_SUCCESS;
  };
  call.sanitizerStreamSynchronize = synchronize;
  call.sanitizerSubscribe = [](Sanitizer_SubscriberHandle*, Sanitizer_CallbackFunc, void*) { return result(); };
}

}  // namespace fake
