// Instrumenting modules: which patch goes to which kind of instruction.
#pragma once

#include <sanitizer.h>

#include <mutex>
#include <set>
#include <string>

#include "backends/sanitizer/selection.h"

namespace pasta::sanitizer {

class Instrumenter {
 public:
  explicit Instrumenter(const Selection& selection);

  // Patches a module that was just loaded. What could not be patched is reported as a loss, once a cause.
  // Returns the kinds of instructions that are covered, for the trace: "global memcpy_async ...".
  std::string instrument(CUcontext context, CUmodule module);
  void forget(CUcontext context);

 private:
  bool add_patches(CUcontext context);

  const Selection selection_;
  std::mutex mutex_;  // the library wants all patching calls of a process one after the other
  std::set<CUcontext> patched_contexts_;
  std::set<int> refused_;  // instructions that the library does not know
};

}  // namespace pasta::sanitizer
