// When are two addresses of a function certainly the same, or a fixed distance apart?
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "device/opencl/spirv/module.h"
#include "device/opencl/spirv/types.h"

namespace pasta::spirv {

// base + offset bytes. Addresses with equal bases are computed from the same values.
struct LinearAddress {
  uint32_t base;
  int64_t offset;
};

// Value numbering of the address arithmetic of one function. An address that is not understood has
// a base of its own, so the answer errs to the safe side.
class Addresses {
 public:
  Addresses(const Module& module, const Definitions& definitions, const Types& types);

  LinearAddress of(Id pointer) { return linear(pointer, 0); }
  // pointer + index * bytes
  LinearAddress of(Id pointer, Id index, uint64_t bytes);

 private:
  using Key = std::vector<uint64_t>;
  // An index as number + constant; number 0 is the value 0.
  struct LinearIndex {
    uint32_t number;
    int64_t constant;
  };
  LinearAddress linear(Id pointer, int depth);
  LinearAddress chain(const Instruction& instruction, int depth);
  LinearIndex index(Id id, int depth);
  uint32_t number(Id id, int depth);
  uint32_t intern(Key key);
  uint32_t unique(Id id);

  const Definitions& definitions_;
  const Types& types_;
  std::set<Id> no_signed_wrap_;
  std::map<Key, uint32_t> known_;
  std::unordered_map<Id, LinearAddress> addresses_;
  std::unordered_map<Id, uint32_t> numbers_;
};

}  // namespace pasta::spirv
