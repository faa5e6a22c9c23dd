// Rewrites a SPIR-V module so that its kernels count their own memory accesses.
//
// Each instrumented kernel gets two arguments behind its own: the hidden buffer and a launch word
// (layout.h). Its body moves into a function; the kernel itself becomes
//
//     kernel K(own arguments, buffer, launch) {
//       state = 0; find slot, binding, address of each root
//       body(own arguments, state, slot)       // counts in private memory, marks lines in the slot
//       add the counters to the slot           // once a sub-group
//     }
//
// Kernels that cannot be instrumented, and those that are not wanted, keep their code unchanged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/opencl/plan.h"

namespace pasta::memory {

struct InstrumentOptions {
  Reducers reducers;
  std::function<bool(const std::string& kernel)> wants;  // empty: all
  // Whether kernels may refer to variables at program scope that can be written. The new module has
  // variables of its own: what a kernel of the original leaves in one, those of the new do not see.
  bool own_variables = true;
};

struct Skipped {
  std::string kernel;
  std::string reason;  // "it holds ..." in words for the user
};

struct Instrumented {
  std::vector<uint32_t> words;      // the new module; empty when there is an error
  std::vector<KernelPlan> kernels;  // those that were instrumented
  std::vector<Skipped> skipped;     // those that were wanted but could not be
  std::string error;                // why the module as a whole was refused
};

// Never throws, whatever the words are.
Instrumented instrument(const uint32_t* words, size_t count, const InstrumentOptions& options);

}  // namespace pasta::memory
