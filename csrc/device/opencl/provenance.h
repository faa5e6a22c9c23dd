// Where the pointers of a function come from.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "device/opencl/spirv/module.h"
#include "device/opencl/spirv/types.h"

namespace pasta::memory {

// The roots (see plan.h) that a pointer may belong to.
struct Origin {
  std::vector<uint32_t> roots;  // sorted
  bool is_private = false;      // may point to private memory
  bool unknown = false;         // may point anywhere: loaded from memory, made from an integer

  // Adds the other's possibilities; true when that changed anything.
  bool join(const Origin& other);
  bool operator<(const Origin& other) const;
  bool is_single_root() const { return roots.size() == 1 && !is_private && !unknown; }
};

// The number of a program-scope variable as a root.
using RootOf = std::function<uint32_t(spirv::Id variable)>;

// Origins of the pointers, images and pipes of one function, given those of its parameters.
// Flow-insensitive, but private variables that only ever hold a pointer are seen through, so
// unoptimised code resolves as well.
class Provenance {
 public:
  Provenance(const spirv::Function& function, const spirv::Definitions& definitions,
             const spirv::Types& types, const std::vector<Origin>& parameters, RootOf root_of);
  Origin of(spirv::Id pointer) const { return of(pointer, 0); }

 private:
  void find_pointer_slots();
  bool update(const spirv::Instruction& instruction);
  Origin of(spirv::Id pointer, int depth) const;
  Origin of_constant_expression(const spirv::Instruction& expression, int depth) const;

  const spirv::Function& function_;
  const spirv::Definitions& definitions_;
  const spirv::Types& types_;
  RootOf root_of_;
  std::unordered_map<spirv::Id, Origin> origins_;
  std::unordered_map<spirv::Id, Origin>
      slots_;  // private variables that hold a pointer -> what they held
};

}  // namespace pasta::memory
