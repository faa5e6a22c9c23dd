// Instrumenting modules: which patch goes to which kind of instruction, and which modules are patched when.
//
// When every launch is measured, a module is patched as it is loaded. When launches may be left out, patches cost them
// far more than they need: a module is then patched at the first of its launches that is measured, and its patches are
// removed when those that are not have become many.
//
// In a launch the code of a module is changed only if that is into its context's default stream: into a created one, the
// library hung for ever (H200, driver 580). And only while no launch of the module can be on its way or running: what
// these would meet is documented nowhere. Nothing here waits for another stream, or for anything without a time limit: a
// launch for which code cannot be changed is left out, and counted as a loss.
//
// So while there are created streams, modules are patched as they are loaded. From the first launch into one that is to be
// measured, and from the first CUDA graph, patches stay. A graph may keep the code of its kernels as it is when the graph
// is made: what has no patches then gets none any more.
#pragma once

#include <sanitizer.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

#include "backends/sanitizer/fences.h"
#include "backends/sanitizer/selection.h"

namespace pasta::sanitizer {

// A module, as it is patched now. All but `patchings` belongs to the Instrumenter.
struct Module {
  Module(CUcontext context, CUmodule handle, int64_t build_id) : context(context), handle(handle), build_id(build_id) {}

  const CUcontext context;
  const CUmodule handle;
  const int64_t build_id;
  enum class State { plain, patched, failed } state = State::plain;
  int patchings = 0;  // so far: code may lie elsewhere after each
  bool keeps = false;  // its patches: they could not be removed, or were missed before
  int64_t patch_ns = 0, removal_ns = 0;  // what these took the last time
  int64_t launches = 0;
  int64_t left_out = 0;       // of these, since the last that was measured
  std::atomic<int> begun{0};  // of these, and may not be in their stream yet
  std::set<Sanitizer_StreamHandle> streams{};  // that may still have launches of it; null: that is gone
};

// Held by a launch from its begin until it is in its stream: so long the patches of its module stay as they are.
using ModuleUse = std::shared_ptr<const Module>;

class Instrumenter {
 public:
  static constexpr std::chrono::seconds kPatience{5};

  Instrumenter(const Selection& selection, bool on_demand, std::chrono::nanoseconds patience = kPatience);

  void loaded(CUcontext context, CUmodule module);
  void unloaded(CUmodule module);
  void forget(CUcontext context);

  // A launch begins, which is to be measured or not: its module is patched, or its patches are removed, if need be. May
  // wait for what is in its stream. `measured` becomes false where the launch runs code without patches. Nodes of
  // graphs run the code that their graph was made with. The use is null where nobody asks for it.
  ModuleUse begin(CUcontext context, CUmodule module, Sanitizer_StreamHandle stream, bool graph_node, bool& measured);

  void synchronized(Sanitizer_StreamHandle stream);
  void context_synchronized(CUcontext context);
  void stream_created(CUcontext context, Sanitizer_StreamHandle stream);  // null: which one is not known
  void stream_destroyed(Sanitizer_StreamHandle stream);  // what is in it goes on
  void graph_begins();  // one is about to be made

 private:
  using Known = std::shared_ptr<Module>;
  using Lock = std::unique_lock<std::mutex>;

  Known& known(CUcontext context, CUmodule module);
  static ModuleUse use(const Known& module);

  // With mutex_ held, which they release while they wait, or call the library.
  void adapt(Lock& lock, const Known& module, Sanitizer_StreamHandle stream, bool measured);
  bool is_default(CUcontext context, Sanitizer_StreamHandle stream) const;
  bool patches_what_loads() const;
  bool may_change(Lock& lock, Module& module, Sanitizer_StreamHandle stream);
  template <class Condition>
  bool wait(Lock& lock, Condition condition);
  void lose_patience();
  bool turn(Lock& lock);
  template <class Change>
  void change(Lock& lock, const Known& module, Change change);
  void patch(Lock& lock, const Known& module);
  void remove(Lock& lock, const Known& module);

  // By the thread whose turn it is.
  bool add_patches(CUcontext context);
  std::string apply(CUmodule module);

  const Selection selection_;
  const bool on_demand_;
  const std::chrono::nanoseconds patience_;
  Fences fences_;

  std::mutex mutex_;  // never held during a call to the library
  std::unordered_map<CUmodule, Known> modules_;
  std::unordered_map<CUcontext, Sanitizer_StreamHandle> default_streams_;
  std::set<Sanitizer_StreamHandle> created_streams_;  // that there are, or for all that is known may be
  bool graphs_ = false;  // one was made
  bool keeps_ = false;   // patches, wherever they are, and adds them to what is loaded
  bool patient_ = true;  // until something was waited for in vain

  // The library wants its patching calls one after the other: the module that they are about now, or null.
  Known changing_;
  std::condition_variable changed_;
  std::unordered_map<CUcontext, bool> contexts_;  // whether the patches were loaded there
  std::set<int> refused_;                         // instructions that the library does not know
};

}  // namespace pasta::sanitizer
