// Instrumenting modules: which patch goes to which kind of instruction, and which modules are patched when.
//
// When every launch is measured, a module is patched as it is loaded. When launches may be left out, patches cost them
// far more than they need: a module is then patched at the first of its launches that is measured, and its patches are
// removed when those that are not have become many. A CUDA graph may keep the code of its kernels as it is when the
// graph is made: from the first one on, all modules are patched and stay so.
#pragma once

#include <sanitizer.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

#include "backends/sanitizer/selection.h"

namespace pasta::sanitizer {

// A module, as it is patched now. All but `patchings` belongs to the Instrumenter.
struct Module {
  CUcontext context;
  CUmodule handle;
  int64_t build_id;
  enum class State { plain, patched, failed } state = State::plain;
  int patchings = 0;  // so far: code may lie elsewhere after each
  bool keeps = false;  // its patches could not be removed
  int64_t patch_ns = 0, removal_ns = 0;  // what these took the last time
  int64_t left_out = 0;                  // launches that were, since the last that was measured
  std::set<Sanitizer_StreamHandle> streams{};  // that may still have launches of it
};

// Held by a launch from its begin until it is in its stream: so long the patches of its module stay as they are.
using ModuleUse = std::shared_ptr<const Module>;

class Instrumenter {
 public:
  Instrumenter(const Selection& selection, bool on_demand);

  void loaded(CUcontext context, CUmodule module);
  void unloaded(CUmodule module);
  void forget(CUcontext context);

  // A launch is to be measured: its module is patched, if need be now. Null where it cannot be. Nodes of graphs run
  // the code that their graph was made with.
  ModuleUse measure(CUcontext context, CUmodule module, Sanitizer_StreamHandle stream, bool graph_node);
  // A launch is left out. Waits for what is in its stream when the module's patches are removed.
  ModuleUse leave_out(CUcontext context, CUmodule module, Sanitizer_StreamHandle stream);

  void synchronized(Sanitizer_StreamHandle stream);
  void context_synchronized(CUcontext context);
  void graph_begins();  // one is about to be made

 private:
  using Known = std::shared_ptr<Module>;

  Known& known(CUcontext context, CUmodule module);
  bool add_patches(CUcontext context);
  std::string apply(CUmodule module);
  void patch(Module& module);
  bool can_remove(const Known& module, Sanitizer_StreamHandle stream) const;
  void remove(const Known& module, Sanitizer_StreamHandle stream, bool wait);

  const Selection selection_;
  const bool on_demand_;

  // Held during the library's patching calls, which it wants one after the other, and before mutex_.
  std::mutex patching_;
  std::set<CUcontext> patched_contexts_;
  std::set<int> refused_;  // instructions that the library does not know

  std::mutex mutex_;  // never held during a call to the library
  std::unordered_map<CUmodule, Known> modules_;
  bool graphs_ = false;  // one was made
};

}  // namespace pasta::sanitizer
