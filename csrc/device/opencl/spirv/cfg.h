// Control flow of one function: which blocks are executed equally often.
#pragma once

#include <cstdint>
#include <vector>

#include "device/opencl/spirv/module.h"

namespace pasta::spirv {

// For each block, the number of its class. Blocks of one class are executed equally often in every
// call that ends: one dominates the other, is post-dominated by it, and neither lies on a cycle
// without the other. Class 0 holds the entry block, which is executed once a call. A counter for
// each class is enough.
std::vector<uint32_t> count_classes(const Definitions& definitions, const Function& function);

// Which blocks lie between a branch and where all paths from it meet again.
class Branches {
 public:
  Branches(const Definitions& definitions, const Function& function);
  const std::vector<uint32_t>& predecessors(uint32_t block) const { return back_[block]; }
  // Blocks on the paths from block `from`, itself only where it is on a cycle of them; to their ends where they never
  // all meet.
  std::vector<uint32_t> blocks_behind(uint32_t from) const;

 private:
  std::vector<std::vector<uint32_t>> graph_, back_;
  std::vector<uint32_t> meeting_;  // by block: the nearest that all paths to a return pass
};

class Dominators {
 public:
  Dominators(const Definitions& definitions, const Function& function);
  // True when every path from the entry to block b passes block a. Blocks are numbered by position;
  // one that cannot be reached is dominated by none but itself.
  bool dominates(uint32_t a, uint32_t b) const;

 private:
  std::vector<uint32_t>
      parent_;  // immediate dominator; the entry's is itself, kUnreachable has none
  std::vector<uint32_t> depth_;
};

}  // namespace pasta::spirv
