#include "device/opencl/spirv/types.h"

#include <algorithm>

namespace pasta::spirv {
namespace {

constexpr int kMaxDepth = 64;  // nesting of types
constexpr uint64_t kMaxTypeBytes = uint64_t{1}
                                   << 48;  // sizes beyond this are nonsense, and could overflow
constexpr uint32_t kAddressingPhysical32 = 1;

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

uint64_t power_of_two_at_least(uint64_t value) {
  uint64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

}  // namespace

Types::Types(const Module& module, const Definitions& definitions)
    : definitions_(definitions), address_bytes_(8) {
  for (const Instruction& model : module.section(Section::memory_model)) {
    if (model.operand(0) == kAddressingPhysical32) address_bytes_ = 4;
  }
  for (const Instruction& decoration : module.section(Section::annotations)) {
    if (decoration.opcode() == OpDecorate && decoration.operand(1) == DecorationCPacked) {
      packed_.insert(decoration.operand(0));
    }
  }
}

std::optional<Types::Layout> Types::layout(Id id, int depth) const {
  if (depth > kMaxDepth) throw Malformed("types nested too deeply");
  auto known = layouts_.find(id);
  if (known != layouts_.end()) return known->second;
  auto found = compute_layout(definitions_.at(id), depth);
  layouts_.emplace(id, found);
  return found;
}

std::optional<Types::Layout> Types::compute_layout(const Instruction& type, int depth) const {
  switch (type.opcode()) {
    case OpTypeBool: return Layout{1, 1};
    case OpTypeInt:
    case OpTypeFloat: {
      uint64_t bytes = power_of_two_at_least((std::min(type.operand(0), 1u << 16) + 7) / 8);
      return Layout{bytes, bytes};
    }
    case OpTypePointer:
    case OpTypeUntypedPointerKHR: return Layout{address_bytes_, address_bytes_};
    case OpTypeVector: {
      auto element = layout(type.operand(0), depth + 1);
      uint64_t count = type.operand(1);
      if (!element || count > 4096) return std::nullopt;
      return Layout{element->size * count, power_of_two_at_least(element->size * count)};
    }
    case OpTypeArray: {
      auto element = layout(type.operand(0), depth + 1);
      auto count = constant(type.operand(1));
      if (!element || !count) return std::nullopt;
      uint64_t stride = align_up(element->size, element->alignment);
      if (*count > kMaxTypeBytes / std::max<uint64_t>(stride, 1)) return std::nullopt;
      return Layout{stride * *count, element->alignment};
    }
    case OpTypeStruct:
      return struct_layout(type, depth, static_cast<uint32_t>(type.operand_count()));
    default: return std::nullopt;
  }
}

// Layout of the first `members` members; with all of them, the struct with its padding.
std::optional<Types::Layout> Types::struct_layout(const Instruction& type, int depth,
                                                  uint32_t members) const {
  bool packed = packed_.count(type.result()) != 0;
  Layout whole{0, 1};
  for (uint32_t i = 0; i < members; ++i) {
    auto member = layout(type.operand(i), depth + 1);
    if (!member || whole.size > kMaxTypeBytes) return std::nullopt;
    uint64_t alignment = packed ? 1 : member->alignment;
    whole.size = align_up(whole.size, alignment) + align_up(member->size, alignment);
    whole.alignment = std::max(whole.alignment, alignment);
  }
  if (members == type.operand_count()) whole.size = align_up(whole.size, whole.alignment);
  return whole;
}

std::optional<uint64_t> Types::size_of(Id type) const {
  auto found = layout(type);
  return found ? std::optional(found->size) : std::nullopt;
}

std::optional<uint64_t> Types::stride_of(Id type) const {
  auto found = layout(type);
  return found ? std::optional(align_up(found->size, found->alignment)) : std::nullopt;
}

std::optional<uint64_t> Types::alignment_of(Id type) const {
  auto found = layout(type);
  return found ? std::optional(found->alignment) : std::nullopt;
}

std::optional<uint64_t> Types::member_offset(Id struct_type, uint32_t member) const {
  const Instruction& type = definitions_.at(struct_type);
  if (type.opcode() != OpTypeStruct || member >= type.operand_count()) return std::nullopt;
  auto before = struct_layout(type, 0, member);
  auto own = layout(type.operand(member));
  if (!before || !own) return std::nullopt;
  return align_up(before->size, packed_.count(struct_type) ? 1 : own->alignment);
}

std::optional<PointerType> Types::pointer(Id id) const {
  const Instruction* type = definitions_.find(id);
  if (!type) return std::nullopt;
  if (type->opcode() == OpTypePointer)
    return PointerType{static_cast<StorageClass>(type->operand(0)), type->operand(1)};
  if (type->opcode() == OpTypeUntypedPointerKHR)
    return PointerType{static_cast<StorageClass>(type->operand(0)), 0};
  return std::nullopt;
}

std::optional<PointerType> Types::pointer_of(Id value) const {
  const Instruction* definition = definitions_.find(value);
  return definition && definition->type() ? pointer(definition->type()) : std::nullopt;
}

std::optional<uint64_t> Types::constant(Id id) const {
  const Instruction& value = definitions_.at(id);
  if (value.opcode() == OpConstantNull) return 0;
  if (value.opcode() != OpConstant) return std::nullopt;
  const Instruction& type = definitions_.at(value.type());
  if (type.opcode() != OpTypeInt) return std::nullopt;
  uint32_t width = type.operand(0);
  uint64_t low = value.operand(0);
  uint64_t all = width > 32 ? low | uint64_t{value.operand(1)} << 32 : low;
  return width < 64 ? all & ((uint64_t{1} << width) - 1) : all;
}

std::optional<int64_t> Types::signed_constant(Id id) const {
  auto value = constant(id);
  if (!value) return std::nullopt;
  const Instruction& type = definitions_.at(definitions_.at(id).type());
  uint32_t width = type.opcode() == OpTypeInt ? type.operand(0) : 64;
  if (width == 0 || width >= 64) return static_cast<int64_t>(*value);
  uint64_t sign = uint64_t{1} << (width - 1);
  return static_cast<int64_t>((*value ^ sign) - sign);
}

std::optional<AccessChain> Types::access_chain(const Instruction& instruction) const {
  auto pointer = pointer_of(instruction.operand(0));
  if (!pointer || !pointer->pointee) return std::nullopt;
  Id type = pointer->pointee;
  const uint16_t op = instruction.opcode();
  const bool over_elements = op == OpPtrAccessChain || op == OpInBoundsPtrAccessChain;
  AccessChain chain;
  for (size_t o = 1; o < instruction.operand_count(); ++o) {
    const Id index = instruction.operand(o);
    if (o > 1 || !over_elements) {
      const Instruction& aggregate = definitions_.at(type);
      if (aggregate.opcode() == OpTypeStruct) {
        auto number = constant(index);
        auto offset = number ? member_offset(type, static_cast<uint32_t>(*number)) : std::nullopt;
        if (!offset) return std::nullopt;
        chain.offset += *offset;
        type = aggregate.operand(static_cast<size_t>(*number));
        continue;
      }
      if (aggregate.opcode() != OpTypeArray && aggregate.opcode() != OpTypeVector)
        return std::nullopt;
      type = aggregate.operand(0);
    }
    auto stride = stride_of(type);
    if (!stride) return std::nullopt;
    chain.indices.push_back({index, *stride});
  }
  return chain;
}

}  // namespace pasta::spirv
