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

#ifdef PASTA_SANITIZER_ZERO_FILL
constexpr bool kBuiltWithZeroFills = true;
#else
constexpr bool kBuiltWithZeroFills = false;
#endif

constexpr const char* kNewer = "install the newest nvidia-cuda-sanitizer-api";
constexpr const char* kAtLoad = "without --sample or a filter, code is patched as it is loaded";

// Patches stay for so many launches that are left out, and until those have lost as much time to them as removing them
// and patching again took: an empty patch adds 0.15 ms to a launch of ResNet-18 and 0.5 ms to one of GPT-2 (H200).
constexpr int64_t kLeastLeftOut = 8, kPatchedLaunchNs = 250'000;

constexpr std::chrono::milliseconds kImpatience{10};

thread_local int t_calls = 0;  // that launch: those of this thread, within each other

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
  name += patch.name;
  const bool fills = kBuiltWithZeroFills && library().version >= 13005;  // tells the bytes that cp.async fills with zeros
  if (patch.instruction == SANITIZER_INSTRUCTION_MEMCPY_ASYNC && !selection.floor && !fills) name += "_before_13_5";
  return name;
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

// What was waited for in vain once may never come: from then on there is hardly a wait.
void Instrumenter::lose_patience() {
  if (patience_ <= kImpatience) return;
  patience_ = kImpatience;
  report_loss("sanitizer", "", kNullI64, "code stays as it is while kernels run: waiting for them took too long");
}

template <class Condition>
bool Instrumenter::wait(Lock& lock, Condition condition) {
  if (changed_.wait_for(lock, patience_, condition)) return true;
  lose_patience();
  return false;
}

// Waits until no thread changes code.
bool Instrumenter::turn(Lock& lock) {
  return wait(lock, [this] { return !changing_; });
}

// Has the turn during `change`, which may release the lock: others that want it wait.
template <class Change>
void Instrumenter::change(Change change) {
  changing_ = true;
  change();
  changing_ = false;
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

void Instrumenter::patch(Lock& lock, Module& module) {
  lock.unlock();
  const int64_t start = now_ns();
  const bool loads = add_patches(module.context);
  const int64_t patch_start = now_ns();
  const std::string covered = loads ? apply(module.handle) : std::string();
  const int64_t end = now_ns();
  const bool covers = !covered.empty();
  std::string log = "instrumented: " + covered;
  if (!covers) log = "not instrumented";
  else if (module.patchings > 0) log = "instrumented again";
  tell(module, start, end, log);
  lock.lock();
  module.state = covers ? Module::State::patched : Module::State::failed;
  module.patch_ns = end - patch_start;
  ++module.patchings;
}

void Instrumenter::remove(Lock& lock, Module& module) {
  lock.unlock();
  const int64_t start = now_ns();
  const SanitizerResult result = library().call.sanitizerUnpatchModule(module.handle);
  const int64_t end = now_ns();
  const bool removed = result == SANITIZER_SUCCESS;
  if (removed) tell(module, start, end, "instrumentation removed");
  else report_loss("sanitizer", "", kNullI64, "patches cannot be removed, launches stay slow: " + describe(result));
  lock.lock();
  module.removal_ns = end - start;
  if (removed) module.state = Module::State::plain;
  else module.keeps = true;
}

bool Instrumenter::wants_change(const Module& module, bool measured) const {
  if (!changes_code()) return false;
  if (module.state == Module::State::plain) return measured;
  if (module.state == Module::State::failed || module.keeps) return false;
  return module.left_out >= std::max(kLeastLeftOut, (module.patch_ns + module.removal_ns) / kPatchedLaunchNs);
}

// Whether nothing is in the context's streams, at least nothing that pasta knows of.
bool Instrumenter::is_idle(Lock& lock, CUcontext context) {
  const std::set<Sanitizer_StreamHandle>& used = streams_[context];
  const std::vector<Sanitizer_StreamHandle> streams(used.begin(), used.end());
  const std::chrono::nanoseconds patience = patience_;
  lock.unlock();
  const bool idle = fences_.wait(context, streams, patience);
  lock.lock();
  if (!idle) lose_patience();
  return idle;
}

// -- Modules and launches --------------------------------------------------------------------------

// With mutex_ held.
Instrumenter::Known& Instrumenter::known(CUcontext context, CUmodule module) {
  Known& entry = modules_[module];
  if (entry == nullptr) entry = std::make_shared<Module>(Module{context, module, next_id()});
  return entry;
}

// What patching takes is there from a context's first module on: later that might have to wait for kernels that run.
void Instrumenter::loaded(CUcontext context, CUmodule handle) {
  Lock lock(mutex_);
  modules_.erase(handle);  // the end of an earlier module at this address was not seen
  const Known module = known(context, handle);
  const bool first = on_demand_ && contexts_.count(context) == 0;
  if (!first && changes_code()) return;
  if (!turn(lock)) {
    if (!changes_code()) module->state = Module::State::failed;
    return;
  }
  change([&] {
    if (first) {
      lock.unlock();
      add_patches(context);
      fences_.prepare(context);
      lock.lock();
    }
    if (!changes_code()) patch(lock, *module);
  });
}

void Instrumenter::unloaded(CUmodule module) {
  std::lock_guard lock(mutex_);
  modules_.erase(module);
}

void Instrumenter::forget(CUcontext context) {
  fences_.forget(context);
  std::lock_guard lock(mutex_);
  contexts_.erase(context);
  streams_.erase(context);
  for (auto module = modules_.begin(); module != modules_.end();) {
    module = module->second->context == context ? modules_.erase(module) : std::next(module);
  }
}

void Instrumenter::call_begins(CUcontext context, CUmodule handle, bool measured) {
  if (t_calls++ != 0) return;
  Lock lock(mutex_);
  const bool has_turn = turn(lock);
  if (handle != nullptr) {
    const Known module = known(context, handle);
    module->left_out = measured ? 0 : module->left_out + 1;
    if (has_turn && wants_change(*module, measured)) adapt(lock, *module, measured);
  }
  ++calls_;
}

void Instrumenter::adapt(Lock& lock, Module& module, bool measured) {
  change([&] {
    const bool may = wait(lock, [this] { return calls_ == 0; }) && is_idle(lock, module.context) && changes_code();
    if (!may) module.left_out = 0;  // not tried at each launch
    else if (measured) patch(lock, module);
    else remove(lock, module);
  });
}

void Instrumenter::call_ends() {
  if (t_calls == 0 || --t_calls != 0) return;
  std::lock_guard lock(mutex_);
  if (--calls_ == 0) changed_.notify_all();
}

Instrumenter::Code Instrumenter::begin(CUcontext context, CUmodule handle, Sanitizer_StreamHandle stream,
                                      bool measured) {
  if (!measured && !on_demand_) return {false, false, 0};
  const char* cause = "kernels of the program run for too long: code is not changed meanwhile";
  const char* remedy = kAtLoad;
  Code code{};
  {
    std::lock_guard lock(mutex_);
    const Module& module = *known(context, handle);
    const bool has_patches = on_demand_ ? module.state == Module::State::patched
                                        : module.state != Module::State::failed;
    code = {measured && has_patches, on_demand_ && module.state == Module::State::plain, module.patchings};
    if (changes_code()) {
      streams_[context].insert(stream);
      if (t_calls == 0) frozen_ = "code stays as it is: kernels are launched by calls that pasta does not know";
    }
    if (const char* const frozen = frozen_) cause = frozen;
    if (module.state == Module::State::failed) cause = "a launch runs code that is not instrumented", remedy = "";
  }
  if (measured && !code.measured) report_loss("sanitizer", "access_object", 1, cause, remedy);
  return code;
}

void Instrumenter::uses(CUcontext context, Sanitizer_StreamHandle stream) {
  if (!changes_code()) return;
  std::lock_guard lock(mutex_);
  streams_[context].insert(stream);
}

void Instrumenter::stream_destroyed(CUcontext context, Sanitizer_StreamHandle stream) {
  if (!changes_code()) return;
  {
    std::lock_guard lock(mutex_);
    if (streams_[context].erase(stream) == 0) return;
  }
  fences_.put(context, stream);
}

void Instrumenter::graph_begins() {
  if (!changes_code()) return;
  Lock lock(mutex_);
  turn(lock);  // what is being patched now is in time
  frozen_ = "code that had no patches when a CUDA graph was made stays without them";
}

}  // namespace pasta::sanitizer
