#include "backends/sanitizer/instrument.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "backends/sanitizer/library.h"
#include "session/session.h"

// The fat binary of device/nvidia/patches.cu, embedded by patches.S.
extern "C" const unsigned char pasta_sanitizer_patches[];

namespace pasta::sanitizer {
namespace {

// What a kind of instruction needs to be selected.
enum class For { device_memory, shared, local };

struct Patch {
  Sanitizer_InstructionId instruction;
  const char* name;   // of the kind, for users
  For purpose;
  bool at_each_depth;  // pasta_objects_NAME, pasta_full_NAME and pasta_trace_NAME, else pasta_NAME
  bool at_floor;
};

constexpr Patch kPatches[] = {
    {SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS, "global", For::device_memory, true, true},
    {SANITIZER_INSTRUCTION_MEMCPY_ASYNC, "memcpy_async", For::device_memory, true, true},
    {SANITIZER_INSTRUCTION_BULK_COPY_GLOBAL_TO_SHARED, "bulk_load", For::device_memory, true, false},
    {SANITIZER_INSTRUCTION_BULK_COPY_SHARED_TO_GLOBAL, "bulk_store", For::device_memory, true, false},
    {SANITIZER_INSTRUCTION_BULK_REDUCTION_SHARED_TO_GLOBAL, "bulk_reduction", For::device_memory, true, false},
#ifdef PASTA_SANITIZER_TMA
    {SANITIZER_INSTRUCTION_TMA_LOAD, "tma_load", For::device_memory, false, false},
#endif
    {SANITIZER_INSTRUCTION_SHARED_MEMORY_ACCESS, "shared", For::shared, true, false},
    {SANITIZER_INSTRUCTION_REMOTE_SHARED_MEMORY_ACCESS, "remote_shared", For::shared, false, false},
    {SANITIZER_INSTRUCTION_MATRIX_MEMORY_ACCESS, "matrix", For::shared, false, false},
    {SANITIZER_INSTRUCTION_ASYNC_STORE, "async_store", For::shared, false, false},
    {SANITIZER_INSTRUCTION_ASYNC_REDUCTION, "async_reduction", For::shared, false, false},
    {SANITIZER_INSTRUCTION_LOCAL_MEMORY_ACCESS, "local", For::local, false, false},
};

constexpr const char* kNewer = "install the newest nvidia-cuda-sanitizer-api";
constexpr const char* kAtLoad = "without --sample or a filter, code is patched as it is loaded";

// Patches stay for so many launches that are left out, and until those have lost as much time to them as removing them
// and patching again took: an empty patch adds 0.15 ms to a launch of ResNet-18 and 0.5 ms to one of GPT-2 (H200).
constexpr int64_t kLeastLeftOut = 8, kPatchedLaunchNs = 250'000;

bool wants(const Selection& selection, const Patch& patch) {
  if (selection.floor) return patch.at_floor;
  switch (patch.purpose) {
    case For::device_memory: return true;
    case For::shared: return selection.shared;
    case For::local: return selection.local;
  }
  return false;
}

std::string function_name(const Selection& selection, const Patch& patch) {
  std::string name = "pasta_";
  if (selection.floor) name += "floor_";
  else if (patch.at_each_depth && selection.trace) name += "trace_";
  else if (patch.at_each_depth) name += selection.sites || selection.blocks ? "full_" : "objects_";
  return name + patch.name;
}

void tell(const Module& module, int64_t start_ns, int64_t end_ns, const std::string& log) {
  if (!traces(TableId::build)) return;
  BuildRecord row;
  row.start_ns = start_ns;
  row.end_ns = end_ns;
  row.thread_id = thread_id();
  row.program_id = module.build_id;
  row.source = BuildSource::binary;
  row.log = intern(log);
  emit(row);
}

}  // namespace

Instrumenter::Instrumenter(const Selection& selection, bool on_demand, std::chrono::nanoseconds patience)
    : selection_(selection), on_demand_(on_demand && !selection.floor), patience_(patience) {
#ifndef PASTA_SANITIZER_TMA
  report_loss("sanitizer", "access_object", kNullI64,
              "TMA loads and stores are not counted: pasta was built with a Sanitizer older than 13.3", kNewer);
#endif
}

// -- Patching --------------------------------------------------------------------------------------

void Instrumenter::lose_patience() {
  if (!std::exchange(patient_, false)) return;  // told once
  report_loss("sanitizer", "", kNullI64, "code stays as it is while launches of it may run: waiting for them took too long");
}

template <class Condition>
bool Instrumenter::wait(Lock& lock, Condition condition) {
  if (changed_.wait_for(lock, patience_, condition)) return true;
  lose_patience();
  return false;
}

// Waits until no thread is in the library's patching calls.
bool Instrumenter::turn(Lock& lock) {
  return wait(lock, [this] { return changing_ == nullptr; });
}

// Runs `change` without the lock, and nobody else's meanwhile.
template <class Change>
void Instrumenter::change(Lock& lock, const Known& module, Change change) {
  changing_ = module;
  lock.unlock();
  change();
  lock.lock();
  changing_ = nullptr;
  changed_.notify_all();
}

bool Instrumenter::add_patches(CUcontext context) {
  {
    std::lock_guard lock(mutex_);
    const auto known = contexts_.find(context);
    if (known != contexts_.end()) return known->second;
  }
  const SanitizerResult result = library().call.sanitizerAddPatches(pasta_sanitizer_patches, context);
  if (result != SANITIZER_SUCCESS) {
    report_loss("sanitizer", "access_object", kNullI64, "patches do not load: " + describe(result),
                "the GPU or the driver may be newer than this version of pasta");
  }
  std::lock_guard lock(mutex_);
  return contexts_[context] = result == SANITIZER_SUCCESS;
}

// Returns the kinds of instructions that are covered now. What cannot be is reported as a loss, once a cause.
std::string Instrumenter::apply(CUmodule module) {
  const Functions& call = library().call;
  std::string covered;
  for (const Patch& patch : kPatches) {
    if (!wants(selection_, patch) || refused_.count(patch.instruction) != 0) continue;
    const std::string name = function_name(selection_, patch);
    const SanitizerResult result = call.sanitizerPatchInstructions(patch.instruction, module, name.c_str());
    if (result == SANITIZER_SUCCESS) {
      covered.append(covered.empty() ? "" : " ").append(patch.name);
      continue;
    }
    refused_.insert(patch.instruction);
    report_loss("sanitizer", "access_object", kNullI64,
                std::string(patch.name) + " instructions cannot be patched: " + describe(result), kNewer);
  }
  const SanitizerResult result = call.sanitizerPatchModule(module);
  if (result == SANITIZER_SUCCESS) return covered;
  report_loss("sanitizer", "access_object", kNullI64, "a module cannot be patched: " + describe(result));
  return {};
}

void Instrumenter::patch(Lock& lock, const Known& module) {
  bool covers = false;
  int64_t took = 0;
  change(lock, module, [&] {
    const int64_t start = now_ns();
    const bool loads = add_patches(module->context);
    const int64_t patch_start = now_ns();
    const std::string covered = loads ? apply(module->handle) : std::string();
    const int64_t end = now_ns();
    covers = !covered.empty(), took = end - patch_start;
    std::string log = "instrumented: " + covered;
    if (!covers) log = "not instrumented";
    else if (module->patchings > 0) log = "instrumented again";
    tell(*module, start, end, log);
  });
  module->state = covers ? Module::State::patched : Module::State::failed;
  module->patch_ns = took;
  ++module->patchings;
}

void Instrumenter::remove(Lock& lock, const Known& module) {
  module->state = Module::State::plain;  // whoever is not patient enough finds no patches
  SanitizerResult result = SANITIZER_SUCCESS;
  int64_t took = 0;
  change(lock, module, [&] {
    const int64_t start = now_ns();
    result = library().call.sanitizerUnpatchModule(module->handle);
    const int64_t end = now_ns();
    took = end - start;
    if (result == SANITIZER_SUCCESS) return tell(*module, start, end, "instrumentation removed");
    report_loss("sanitizer", "", kNullI64, "patches cannot be removed, launches stay slow: " + describe(result));
  });
  module->removal_ns = took;
  if (result != SANITIZER_SUCCESS) module->state = Module::State::patched, module->keeps = true;
}

// With mutex_ held. The default stream of each thread is another one.
bool Instrumenter::is_default(CUcontext context, Sanitizer_StreamHandle stream) const {
  const auto known = default_streams_.find(context);
  return known != default_streams_.end() && known->second == stream;
}

// Whether no launch of the module can be on its way or running, and it is this thread's turn: for a launch that is about
// to begin in `stream`, which is waited for. Another stream is not: it may be waiting for what this thread does next. That
// the program has waited for the launches does not suffice, as another thread may have launched since, unless there is no
// patience left.
bool Instrumenter::may_change(Lock& lock, Module& module, Sanitizer_StreamHandle stream) {
  if (module.begun != 0 || module.streams.size() != module.streams.count(stream)) return false;
  const int64_t launches = module.launches;
  const Module::State state = module.state;
  if (!patient_) {
    if (!module.streams.empty()) return false;
  } else if (module.launches != 0) {
    lock.unlock();
    const bool ended = fences_.wait(module.context, stream, patience_);
    lock.lock();
    if (!ended) lose_patience();
    if (!ended || module.launches != launches) return false;
    module.streams.clear();
  }
  return turn(lock) && module.launches == launches && module.state == state && !graphs_;
}

void Instrumenter::adapt(Lock& lock, const Known& module, Sanitizer_StreamHandle stream, bool measured) {
  if (module->state == Module::State::plain && (measured || module->keeps || keeps_)) {
    if (may_change(lock, *module, stream)) patch(lock, module);
    module->keeps |= module->state == Module::State::plain;
  } else if (module->state == Module::State::patched && !module->keeps && !keeps_) {
    const int64_t enough = std::max(kLeastLeftOut, (module->patch_ns + module->removal_ns) / kPatchedLaunchNs);
    if (module->left_out >= enough && may_change(lock, *module, stream) && !keeps_) remove(lock, module);
  }
}

// -- Modules and launches --------------------------------------------------------------------------

// With mutex_ held.
Instrumenter::Known& Instrumenter::known(CUcontext context, CUmodule module) {
  Known& entry = modules_[module];
  if (entry == nullptr) entry = std::make_shared<Module>(context, module, next_id());
  return entry;
}

ModuleUse Instrumenter::use(const Known& module) {
  ++module->begun;
  return ModuleUse(module.get(), [module](const Module*) { --module->begun; });
}

// What patching takes is there from a context's first module on: later that might have to wait for kernels that run.
void Instrumenter::loaded(CUcontext context, CUmodule handle) {
  Lock lock(mutex_);
  modules_.erase(handle);  // the end of an earlier module at this address was not seen
  const Known module = known(context, handle);
  const bool first = on_demand_ && contexts_.count(context) == 0;
  if (!first && !patches_what_loads()) return;
  if (!turn(lock)) {
    if (patches_what_loads()) module->state = Module::State::failed;
    return;
  }
  if (first) {
    Sanitizer_StreamHandle stream = nullptr;
    change(lock, module, [&] {
      add_patches(context);
      fences_.prepare(context);
      if (library().call.sanitizerGetStreamHandle(context, nullptr, &stream) != SANITIZER_SUCCESS) stream = nullptr;
    });
    if (stream != nullptr) default_streams_[context] = stream, created_streams_.erase(stream);
  }
  if (patches_what_loads()) patch(lock, module);
}

// With mutex_ held. Code that may be launched into a created stream can be patched at no other time.
bool Instrumenter::patches_what_loads() const { return !on_demand_ || keeps_ || !created_streams_.empty(); }

void Instrumenter::unloaded(CUmodule module) {
  std::lock_guard lock(mutex_);
  modules_.erase(module);
}

void Instrumenter::forget(CUcontext context) {
  fences_.forget(context);
  std::lock_guard lock(mutex_);
  contexts_.erase(context);
  default_streams_.erase(context);
  for (auto module = modules_.begin(); module != modules_.end();) {
    module = module->second->context == context ? modules_.erase(module) : std::next(module);
  }
}

ModuleUse Instrumenter::begin(CUcontext context, CUmodule handle, Sanitizer_StreamHandle stream, bool graph_node,
                              bool& measured) {
  if (!on_demand_ && !measured) return nullptr;
  const bool wanted = measured;
  ModuleUse result;
  const char* cause = "other launches of its code may be running: it is patched when they have been waited for";
  const char* remedy = kAtLoad;
  {
    Lock lock(mutex_);
    const Known module = known(context, handle);
    if (!on_demand_) {  // patched, unless its loading was not seen
      measured = module->state != Module::State::failed;
      result = module;
    } else {
      wait(lock, [&] { return changing_ != module; });
      module->left_out = measured ? 0 : module->left_out + 1;
      if (!is_default(context, stream)) {
        cause = "code is patched for launches into the default stream only: in others the driver hangs";
        keeps_ |= measured;
      } else if (!graph_node && !graphs_) {
        adapt(lock, module, stream, measured);
      }
      if (graphs_) cause = "code that had no patches when a CUDA graph was made stays without them";
      measured = measured && module->state == Module::State::patched;
      ++module->launches;
      module->streams.insert(stream);
      result = use(module);
    }
    if (module->state == Module::State::failed) cause = "a launch runs code that is not instrumented", remedy = "";
  }
  if (wanted && !measured) report_loss("sanitizer", "access_object", 1, cause, remedy);
  return result;
}

void Instrumenter::synchronized(Sanitizer_StreamHandle stream) {
  if (!on_demand_) return;
  std::lock_guard lock(mutex_);
  for (const auto& [handle, module] : modules_) module->streams.erase(stream);
}

void Instrumenter::context_synchronized(CUcontext context) {
  if (!on_demand_) return;
  std::lock_guard lock(mutex_);
  for (const auto& [handle, module] : modules_) {
    if (module->context == context) module->streams.clear();
  }
}

void Instrumenter::stream_created(CUcontext context, Sanitizer_StreamHandle stream) {
  if (!on_demand_) return;
  std::lock_guard lock(mutex_);
  if (!is_default(context, stream)) created_streams_.insert(stream);
}

void Instrumenter::stream_destroyed(Sanitizer_StreamHandle stream) {
  if (!on_demand_) return;
  std::lock_guard lock(mutex_);
  created_streams_.erase(stream);
  for (const auto& [handle, module] : modules_) {
    if (module->streams.erase(stream) != 0) module->streams.insert(nullptr);  // another may get its handle
  }
}

void Instrumenter::graph_begins() {
  if (!on_demand_) return;
  Lock lock(mutex_);
  turn(lock);  // what is being patched now is in time
  graphs_ = keeps_ = true;
}

}  // namespace pasta::sanitizer
