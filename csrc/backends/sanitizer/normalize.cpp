#include "backends/sanitizer/normalize.h"

#include <algorithm>

namespace pasta::sanitizer {
namespace {

int32_t number(uint32_t value) { return static_cast<int32_t>(value); }

MemcpyKind to_copy_kind(Sanitizer_MemcpyDirection direction) {
  switch (direction) {
    case SANITIZER_MEMCPY_DIRECTION_HOST_TO_HOST: return MemcpyKind::h2h;
    case SANITIZER_MEMCPY_DIRECTION_HOST_TO_DEVICE: return MemcpyKind::h2d;
    case SANITIZER_MEMCPY_DIRECTION_DEVICE_TO_HOST: return MemcpyKind::d2h;
    case SANITIZER_MEMCPY_DIRECTION_DEVICE_TO_DEVICE: return MemcpyKind::d2d;
    default: return MemcpyKind::unknown;
  }
}

template <class Operands>
TensorMap tensor(const Operands& operands) {
  TensorMap map;
  map.address = reinterpret_cast<uint64_t>(operands.address);
  map.rank = std::min<uint32_t>(operands.rank, nvidia::kTensorRank);
  map.element_bytes = element_bytes(operands.type);
  map.strides[0] = map.element_bytes;
  for (uint32_t i = 0; i < map.rank; ++i) {
    map.dimensions[i] = operands.dimensions[i];
    if (i > 0) map.strides[i] = operands.strides[i - 1];
  }
  return map;
}

}  // namespace

uint32_t element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
    default: return 4;
  }
}

bool is_packed(CUtensorMapDataType type) { return type > CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ; }

KernelRecord to_kernel(const Sanitizer_LaunchData& data) {
  KernelRecord row;
  row.device_id = data.device;
  row.grid_x = number(data.gridDim_x), row.grid_y = number(data.gridDim_y), row.grid_z = number(data.gridDim_z);
  row.block_x = number(data.blockDim_x), row.block_y = number(data.blockDim_y), row.block_z = number(data.blockDim_z);
  if (data.clusterDim_x > 1 || data.clusterDim_y > 1 || data.clusterDim_z > 1) {
    row.cluster_x = number(data.clusterDim_x);
    row.cluster_y = number(data.clusterDim_y);
    row.cluster_z = number(data.clusterDim_z);
  }
  return row;
}

MemcpyRecord to_memcpy(const Sanitizer_MemcpyData& data) {
  MemcpyRecord row;
  row.kind = to_copy_kind(data.direction);
  const uint64_t shaped = data.width * std::max<uint64_t>(data.height, 1) * std::max<uint64_t>(data.depth, 1);
  row.bytes = static_cast<int64_t>(data.size != 0 ? data.size : shaped);
  row.asynchronous = to_bool(data.isAsync != 0);
  return row;
}

MemsetRecord to_memset(const Sanitizer_MemsetData& data) {
  MemsetRecord row;
  row.bytes = static_cast<int64_t>(data.width * std::max<uint64_t>(data.height, 1) *
                                   std::max<uint32_t>(data.elementSize, 1));
  row.value = data.value;
  return row;
}

AllocRecord to_alloc(const Sanitizer_ResourceMemoryData& data) {
  AllocRecord row;
  row.device_id = data.device;
  row.address = static_cast<int64_t>(data.address);
  row.bytes = static_cast<int64_t>(data.size);
  constexpr uint32_t kOnHost = SANITIZER_MEMORY_FLAG_HOST_PINNED | SANITIZER_MEMORY_FLAG_HOST_MAPPED;
  if ((data.flags & SANITIZER_MEMORY_FLAG_MANAGED) != 0) row.kind = MemoryKind::managed;
  else if ((data.flags & kOnHost) != 0) row.kind = MemoryKind::pinned;
  else if (data.memoryPool != nullptr) row.kind = MemoryKind::pool;
  else row.kind = MemoryKind::device;
  return row;
}

TensorMap to_tensor_map(const EncodeTiledOperands& operands) {
  TensorMap map = tensor(operands);
  map.tiled = !is_packed(operands.type) && operands.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE;
  map.box_bytes = map.element_bytes;
  for (uint32_t i = 0; i < map.rank; ++i) {
    map.box[i] = operands.box[i];
    // Of a box, every element_strides[i]-th element is moved; of the innermost dimension, all.
    const bool stepping = operands.element_strides != nullptr && (i > 0 || !map.tiled);
    const uint32_t step = stepping ? std::max(operands.element_strides[i], 1u) : 1;
    map.box_bytes *= (map.box[i] + step - 1) / step;
  }
  return map;
}

TensorMap to_tensor_map(const EncodeIm2colOperands& operands) {
  TensorMap map = tensor(operands);
  map.tiled = false;
  map.box_bytes = uint64_t{operands.channels_a_pixel} * operands.pixels_a_column * map.element_bytes;
  return map;
}

}  // namespace pasta::sanitizer
