// Instrumenting modules: which patch goes to which kind of instruction, and which modules are patched when.
//
// When every launch is measured, a module is patched as it is loaded. When launches may be left out, patches cost them
// far more than they need: a module is then patched for the first of its launches that is measured, and its patches are
// removed when those that are not have become many.
//
// Before it changes code, the library waits without a limit for all that runs in the context, and for launches that
// other threads are in the middle of; in the callback of a launch into a created stream it hangs for ever (H200, driver
// 580). So code changes only as a call of the program that launches begins, before the driver takes its locks: while no
// other thread is in such a call, for new ones wait until it is done, and when the context's streams have been seen to
// be empty. Nothing here waits without a time limit: a kernel may be waiting for what the program does next. A launch
// for which code cannot be changed is left out, and counted as a loss.
//
// From the first CUDA graph on code stays as it is, and modules are patched as they are loaded: a graph may keep the
// code of its kernels as it is when the graph is made.
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

// A module, as it is patched now.
struct Module {
  const CUcontext context;
  const CUmodule handle;
  const int64_t build_id;
  enum class State { plain, patched, failed } state = State::plain;
  int patchings = 0;  // so far: code may lie elsewhere after each
  bool keeps = false;  // its patches, which could not be removed
  int64_t patch_ns = 0, removal_ns = 0;  // what these took the last time
  int64_t left_out = 0;  // launches since the last that was measured
};

class Instrumenter {
 public:
  static constexpr std::chrono::seconds kPatience{5};

  Instrumenter(const Selection& selection, bool on_demand, std::chrono::nanoseconds patience = kPatience);

  void loaded(CUcontext context, CUmodule module);
  void unloaded(CUmodule module);
  void forget(CUcontext context);

  // Whether code may change for a launch. Then this is to be told of the calls that launch, and of what is in streams.
  bool changes_code() const { return on_demand_ && frozen_.load(std::memory_order_relaxed) == nullptr; }
  // This thread's call begins, to launch a kernel of the module (null: not known) that is to be measured or not: the
  // module is patched, or its patches are removed, if need be. May wait for what is in the context's streams.
  void call_begins(CUcontext context, CUmodule module, bool measured);
  void call_ends();

  // A launch within such a call, or the node of a graph, which is to be measured or not: the code that it runs.
  struct Code {
    bool measured;   // false where there are no patches
    bool is_plain;   // for sure
    int patchings;   // of its module, so far
  };
  Code begin(CUcontext context, CUmodule module, Sanitizer_StreamHandle stream, bool measured);
  void uses(CUcontext context, Sanitizer_StreamHandle stream);
  void stream_destroyed(CUcontext context, Sanitizer_StreamHandle stream);
  void graph_begins();  // one is about to be made

 private:
  using Known = std::shared_ptr<Module>;
  using Lock = std::unique_lock<std::mutex>;

  Known& known(CUcontext context, CUmodule module);
  void lose_patience();

  // With mutex_ held, which they release while they wait, or call the library.
  bool wants_change(const Module& module, bool measured) const;
  void adapt(Lock& lock, Module& module, bool measured);
  bool is_idle(Lock& lock, CUcontext context);
  template <class Condition>
  bool wait(Lock& lock, Condition condition);
  bool turn(Lock& lock);
  template <class Change>
  void change(Change change);
  void patch(Lock& lock, Module& module);
  void remove(Lock& lock, Module& module);

  // By the thread whose turn it is.
  bool add_patches(CUcontext context);
  std::string apply(CUmodule module);

  const Selection selection_;
  const bool on_demand_;
  Fences fences_;

  std::mutex mutex_;  // never held during a call to the library
  std::unordered_map<CUmodule, Known> modules_;
  std::unordered_map<CUcontext, std::set<Sanitizer_StreamHandle>> streams_;  // in which there may be something
  std::atomic<const char*> frozen_{nullptr};  // why code stays as it is, once it does
  std::chrono::nanoseconds patience_;
  int calls_ = 0;          // that launch, and threads are in now
  bool changing_ = false;  // a thread changes code, or waits to: the library wants such calls one after the other
  std::condition_variable changed_;
  std::unordered_map<CUcontext, bool> contexts_;  // whether the patches were loaded there
  std::set<int> refused_;                         // instructions that the library does not know
};

}  // namespace pasta::sanitizer
