#include "backends/sanitizer/instrument.h"

#include <algorithm>
#include <iterator>
#include <vector>

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

// Patches stay for so many launches that are left out, and until those have lost as much time to them as removing them
// and patching again took: the order of what an empty patch adds to a launch (ResNet-18, H200).
constexpr int64_t kLeastLeftOut = 8, kPatchedLaunchNs = 100'000;

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

Instrumenter::Instrumenter(const Selection& selection, bool on_demand)
    : selection_(selection), on_demand_(on_demand && !selection.floor) {
#ifndef PASTA_SANITIZER_TMA
  report_loss("sanitizer", "access_object", kNullI64,
              "TMA loads and stores are not counted: pasta was built with a Sanitizer older than 13.3", kNewer);
#endif
}

// -- Patching --------------------------------------------------------------------------------------

bool Instrumenter::add_patches(CUcontext context) {
  if (patched_contexts_.count(context) != 0) return true;
  const SanitizerResult result = library().call.sanitizerAddPatches(pasta_sanitizer_patches, context);
  if (result != SANITIZER_SUCCESS) {
    report_loss("sanitizer", "access_object", kNullI64, "patches do not load: " + describe(result),
                "the GPU or the driver may be newer than this version of pasta");
    return false;
  }
  patched_contexts_.insert(context);
  return true;
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

// With patching_ held.
void Instrumenter::patch(Module& module) {
  const int64_t start = now_ns();
  const bool loads = add_patches(module.context);
  const int64_t patch_start = now_ns();
  const std::string covered = loads ? apply(module.handle) : std::string();
  const int64_t end = now_ns();
  bool again;
  {
    std::lock_guard lock(mutex_);
    module.state = covered.empty() ? Module::State::failed : Module::State::patched;
    module.patch_ns = end - patch_start;
    module.left_out = 0;
    again = module.patchings++ > 0;
  }
  std::string log = "instrumented: " + covered;
  if (covered.empty()) log = "not instrumented";
  else if (again) log = "instrumented again";
  tell(module, start, end, log);
}

// Whether the module has been left out for as long as is worth it, and no other stream or thread may be launching it.
// With mutex_ held, by one who holds a use.
bool Instrumenter::can_remove(const Known& module, Sanitizer_StreamHandle stream) const {
  const int64_t enough = std::max(kLeastLeftOut, (module->patch_ns + module->removal_ns) / kPatchedLaunchNs);
  return !graphs_ && !module->keeps && module->state == Module::State::patched && module->left_out >= enough &&
         module.use_count() <= 2 && module->streams.size() == module->streams.count(stream);
}

void Instrumenter::remove(const Known& module, Sanitizer_StreamHandle stream, bool wait) {
  const Functions& call = library().call;
  if (wait) {  // before patching_ is taken: whoever waits for that must not have to wait for a kernel
    if (call.sanitizerStreamSynchronize(stream) != SANITIZER_SUCCESS) return;
    synchronized(stream);
  }
  std::unique_lock patching(patching_, std::try_to_lock);
  if (!patching) return;
  {
    std::lock_guard lock(mutex_);
    if (!can_remove(module, stream) || !module->streams.empty()) return;
    module->state = Module::State::plain;  // a launch that is to be measured waits for patching_ from here on
  }
  const int64_t start = now_ns();
  const SanitizerResult result = call.sanitizerUnpatchModule(module->handle);
  const int64_t end = now_ns();
  {
    std::lock_guard lock(mutex_);
    module->removal_ns = end - start;
    if (result != SANITIZER_SUCCESS) module->state = Module::State::patched, module->keeps = true;
  }
  if (result == SANITIZER_SUCCESS) return tell(*module, start, end, "instrumentation removed");
  report_loss("sanitizer", "", kNullI64, "patches cannot be removed, launches stay slow: " + describe(result));
}

// -- Modules and launches --------------------------------------------------------------------------

// With mutex_ held.
Instrumenter::Known& Instrumenter::known(CUcontext context, CUmodule module) {
  Known& entry = modules_[module];
  if (entry == nullptr) entry = std::make_shared<Module>(Module{context, module, next_id()});
  return entry;
}

void Instrumenter::loaded(CUcontext context, CUmodule handle) {
  std::lock_guard patching(patching_);
  Known module;
  {
    std::lock_guard lock(mutex_);
    modules_.erase(handle);  // the end of an earlier module at this address was not seen
    module = known(context, handle);
    if (on_demand_ && !graphs_) return;
  }
  patch(*module);
}

void Instrumenter::unloaded(CUmodule module) {
  std::lock_guard lock(mutex_);
  modules_.erase(module);
}

void Instrumenter::forget(CUcontext context) {
  std::lock_guard patching(patching_);
  patched_contexts_.erase(context);
  std::lock_guard lock(mutex_);
  for (auto module = modules_.begin(); module != modules_.end();) {
    module = module->second->context == context ? modules_.erase(module) : std::next(module);
  }
}

ModuleUse Instrumenter::measure(CUcontext context, CUmodule handle, Sanitizer_StreamHandle stream, bool graph_node) {
  Known module;
  bool wait;
  {
    std::lock_guard lock(mutex_);
    module = known(context, handle);
    if (module->state == Module::State::failed) return nullptr;
    if (!on_demand_) return module;  // patched, unless its loading was not seen
    module->left_out = 0;
    wait = !module->streams.insert(stream).second;
    if (module->state == Module::State::patched) return module;
  }
  if (graph_node) return nullptr;
  // What is still to run was launched without the patches: whether it may meet them is not documented.
  if (wait) library().call.sanitizerStreamSynchronize(stream);
  std::lock_guard patching(patching_);
  const auto state = [&] {
    std::lock_guard lock(mutex_);
    return module->state;
  };
  if (state() == Module::State::plain) patch(*module);
  return state() == Module::State::patched ? module : nullptr;
}

ModuleUse Instrumenter::leave_out(CUcontext context, CUmodule handle, Sanitizer_StreamHandle stream) {
  if (!on_demand_) return nullptr;
  Known module;
  bool wait;
  {
    std::lock_guard lock(mutex_);
    module = known(context, handle);
    ++module->left_out;
    wait = module->streams.count(stream) != 0;
    if (!can_remove(module, stream)) {
      module->streams.insert(stream);
      return module;
    }
  }
  remove(module, stream, wait);
  std::lock_guard lock(mutex_);
  module->streams.insert(stream);  // where this launch is not yet
  return module;
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

void Instrumenter::graph_begins() {
  if (!on_demand_) return;
  std::lock_guard patching(patching_);
  std::vector<Known> plain;
  {
    std::lock_guard lock(mutex_);
    if (graphs_) return;
    graphs_ = true;
    for (const auto& [handle, module] : modules_) {
      if (module->state == Module::State::plain) plain.push_back(module);
    }
  }
  for (const Known& module : plain) patch(*module);
}

}  // namespace pasta::sanitizer
