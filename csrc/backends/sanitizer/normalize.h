// The Sanitizer's callback records to rows of the schema: pure functions, testable without a GPU.
//
// There are no device times in this pass, and instrumentation would make them meaningless: start_ns and end_ns stay
// null, queued_ns is when the program made the call. Ids and names are left to the caller.
#pragma once

#include <sanitizer.h>

#include "backends/sanitizer/tensor_maps.h"
#include "schema/tables.h"

namespace pasta::sanitizer {

KernelRecord to_kernel(const Sanitizer_LaunchData& data);
MemcpyRecord to_memcpy(const Sanitizer_MemcpyData& data);
MemsetRecord to_memset(const Sanitizer_MemsetData& data);
AllocRecord to_alloc(const Sanitizer_ResourceMemoryData& data);

// The operands of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col, as the driver hands them to callbacks: in
// order, each aligned as C aligns it. The Sanitizer's headers leave them out.
struct EncodeTiledOperands {
  const uint64_t* encoded;
  CUtensorMapDataType type;
  cuuint32_t rank;
  void* address;
  const cuuint64_t* dimensions;
  const cuuint64_t* strides;  // bytes, of all dimensions but the innermost
  const cuuint32_t* box;
  const cuuint32_t* element_strides;
  CUtensorMapInterleave interleave;
};
struct EncodeIm2colOperands {
  const uint64_t* encoded;
  CUtensorMapDataType type;
  cuuint32_t rank;
  void* address;
  const cuuint64_t* dimensions;
  const cuuint64_t* strides;
  const int* lower_corner;
  const int* upper_corner;
  cuuint32_t channels_a_pixel;
  cuuint32_t pixels_a_column;
};
uint32_t element_bytes(CUtensorMapDataType type);
// Packed 4- and 6-bit types count in groups: neither a byte an element nor a row of bytes is right for them.
bool is_packed(CUtensorMapDataType type);
TensorMap to_tensor_map(const EncodeTiledOperands& operands);
TensorMap to_tensor_map(const EncodeIm2colOperands& operands);

}  // namespace pasta::sanitizer
