// Sizes, alignments and pointers of a module's types, as LLVM lays them out for OpenCL.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "device/opencl/spirv/module.h"

namespace pasta::spirv {

struct PointerType {
  StorageClass storage;
  Id pointee;  // 0: an untyped pointer
};

// What an access chain adds to the pointer that it begins with: offset + the sum of index * stride, in bytes.
struct AccessChain {
  struct Index {
    Id value;
    uint64_t stride;
  };
  uint64_t offset = 0;
  std::vector<Index> indices;
};

class Types {
 public:
  Types(const Module& module, const Definitions& definitions);

  // Bytes that a load or store of this type moves; null for types without a size (images, events,
  // ...). A vector of 3 moves 3 elements but takes the room of 4 (see stride_of).
  std::optional<uint64_t> size_of(Id type) const;
  // Bytes from one array element of this type to the next.
  std::optional<uint64_t> stride_of(Id type) const;
  // What an access without an alignment of its own may rely on.
  std::optional<uint64_t> alignment_of(Id type) const;
  std::optional<uint64_t> member_offset(Id struct_type, uint32_t member) const;

  std::optional<PointerType> pointer(Id type) const;
  // The pointer type of a value; null when the id is no pointer value.
  std::optional<PointerType> pointer_of(Id value) const;
  // Of a typed access chain; null where the size of something is not known.
  std::optional<AccessChain> access_chain(const Instruction& instruction) const;
  uint32_t address_bytes() const { return address_bytes_; }
  // Value of an integer OpConstant.
  std::optional<uint64_t> constant(Id id) const;
  // The same, sign-extended from the width of its type.
  std::optional<int64_t> signed_constant(Id id) const;

 private:
  struct Layout {
    uint64_t size;
    uint64_t alignment;
  };
  std::optional<Layout> layout(Id type, int depth = 0) const;
  std::optional<Layout> compute_layout(const Instruction& type, int depth) const;
  std::optional<Layout> struct_layout(const Instruction& type, int depth, uint32_t members) const;

  const Definitions& definitions_;
  uint32_t address_bytes_;
  std::unordered_set<Id> packed_;  // structs decorated CPacked
  mutable std::unordered_map<Id, std::optional<Layout>>
      layouts_;  // a nest of structs is visited once
};

}  // namespace pasta::spirv
