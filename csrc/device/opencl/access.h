// What one SPIR-V instruction does to memory.
#pragma once

#include <cstdint>
#include <vector>

#include "device/opencl/spirv/module.h"
#include "device/opencl/spirv/types.h"

namespace pasta::memory {

enum class AccessKind : uint8_t { load, store, atomic, copy_load, copy_store };

// How the bytes of an access lie.
enum class AccessForm : uint8_t {
  fixed,     // `bytes` at pointer + index * index_bytes
  sized,     // as many bytes as the id `count` says
  elements,  // once a work-group: `count` elements of `bytes`, `stride` elements apart (async
             // copies)
  opaque,    // images and pipes: no address
};

struct Access {
  AccessKind kind;
  AccessForm form = AccessForm::fixed;
  spirv::Id pointer = 0;  // or the image or pipe
  uint64_t bytes = 0;     // 0 for images: the size of a texel is known to the host only
  uint64_t alignment = 1;
  spirv::Id index = 0;  // of vloadN and vstoreN, in units of index_bytes
  uint64_t index_bytes = 0;
  spirv::Id count = 0;
  spirv::Id stride = 0;  // 0: elements are adjacent
};

// The accesses of an instruction, in order; private memory is included, for the caller to sort out.
// `opencl_std` is the id of the OpenCL.std instruction set (0: not imported). Throws
// spirv::Unsupported for an instruction that touches shared memory in a way that is not known here.
std::vector<Access> accesses_of(const spirv::Instruction& instruction,
                                const spirv::Definitions& definitions, const spirv::Types& types,
                                spirv::Id opencl_std);

// True for storage that other work-items or the host can see.
bool is_shared_storage(spirv::StorageClass storage);

}  // namespace pasta::memory
