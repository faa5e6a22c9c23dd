// A kernel and all that it calls, one *instance* for each function and set of argument origins.
//
// Every instance becomes a function of its own in the instrumented module, so that a helper called
// once with one buffer and once with another has sites of known origin, and counters belong to one
// kernel only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "device/opencl/plan.h"
#include "device/opencl/provenance.h"
#include "device/opencl/rows.h"
#include "device/opencl/spirv/module.h"
#include "device/opencl/spirv/types.h"

namespace pasta::memory {

// The original module with what is derived from it.
struct Source {
  explicit Source(const spirv::Module& original);

  const spirv::Module& module;
  spirv::Definitions definitions;
  spirv::Types types;
  spirv::Id opencl_std = 0;
  std::map<spirv::Id, const spirv::Function*> functions;
  std::map<spirv::Id, std::string> names;    // OpName
  std::map<spirv::Id, std::string> strings;  // OpString
};

// The bytes whose lines an access marks: its own, and those of accesses that leave it to this one.
struct Mark {
  bool wanted = true;
  int64_t distance = 0;  // from the access's own address to the first byte
  uint64_t bytes = 0;    // 0: the access's own
  uint64_t alignment = 1;
};

// An access of an instance, and the site that stands for it in the plan.
struct InstanceAccess {
  uint32_t block;
  uint32_t instruction;  // position in the block
  Access access;
  uint32_t site;
  Mark mark;
  std::optional<RowStep> row;  // where the first work-item of a row marks for all
  uint32_t amount = kNone;  // counter of elements or bytes, for accesses of a variable amount
};

struct Instance {
  const spirv::Function* function = nullptr;
  std::vector<Origin> parameters;
  std::vector<uint32_t> classes;  // of blocks, see spirv/cfg.h
  std::vector<uint32_t>
      class_counters;  // by class; kNone where none is needed (class 0: see `entry`)
  CountSum entry;      // how often the function is called
  std::vector<InstanceAccess> accesses;                     // in order
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> calls;  // (block, instruction) -> instance
  bool matters = false;                                     // it, or what it calls, has accesses
};

struct CallTree {
  KernelPlan plan;
  std::vector<Instance> instances;  // callers before callees; the kernel is the first

  const Root& root(uint32_t number) const { return plan.roots[number]; }
};

// Throws Malformed or Unsupported.
CallTree build_call_tree(const Source& source, spirv::Id kernel, std::string name,
                         const Reducers& reducers);

}  // namespace pasta::memory
