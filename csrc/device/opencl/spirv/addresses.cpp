#include "device/opencl/spirv/addresses.h"

namespace pasta::spirv {
namespace {

constexpr int kMaxDepth = 64;  // of expressions; what is deeper is taken to be different

// First words of keys: the kinds of things that have numbers.
constexpr uint64_t kUniqueKey = 1, kExpressionKey = 2, kChainKey = 3;

bool is_pure_arithmetic(uint16_t opcode) {
  return opcode == OpUConvert || opcode == OpSConvert || opcode == OpIAdd || opcode == OpISub ||
         opcode == OpIMul || opcode == OpShiftLeftLogical || opcode == OpShiftRightLogical ||
         opcode == OpBitwiseAnd || opcode == OpBitwiseOr || opcode == OpSelect ||
         opcode == OpConvertPtrToU;
}

}  // namespace

Addresses::Addresses(const Module& module, const Definitions& definitions, const Types& types)
    : definitions_(definitions), types_(types) {
  for (const Instruction& decoration : module.section(Section::annotations)) {
    if (decoration.opcode() == OpDecorate && decoration.operand(1) == DecorationNoSignedWrap) {
      no_signed_wrap_.insert(decoration.operand(0));
    }
  }
}

uint32_t Addresses::intern(Key key) {
  return known_.emplace(std::move(key), static_cast<uint32_t>(known_.size()) + 1).first->second;
}

uint32_t Addresses::unique(Id id) { return intern({kUniqueKey, id}); }

LinearAddress Addresses::of(Id pointer, Id by, uint64_t bytes) {
  LinearAddress address = linear(pointer, 0);
  if (!by) return address;
  LinearIndex scaled = index(by, 0);
  uint64_t distance = static_cast<uint64_t>(scaled.constant) * bytes;
  address.offset = static_cast<int64_t>(static_cast<uint64_t>(address.offset) + distance);
  if (scaled.number) address.base = intern({kChainKey, address.base, scaled.number, bytes});
  return address;
}

LinearAddress Addresses::linear(Id pointer, int depth) {
  auto known = addresses_.find(pointer);
  if (known != addresses_.end()) return known->second;
  LinearAddress address{unique(pointer), 0};
  const Instruction* definition = definitions_.find(pointer);
  if (definition && depth < kMaxDepth) {
    switch (definition->opcode()) {
      case OpBitcast:
        if (!types_.pointer_of(definition->operand(0))) break;
        address = linear(definition->operand(0), depth + 1);
        break;
      case OpCopyObject:
      case OpPtrCastToGeneric: address = linear(definition->operand(0), depth + 1); break;
      case OpAccessChain:
      case OpInBoundsAccessChain:
      case OpPtrAccessChain:
      case OpInBoundsPtrAccessChain: address = chain(*definition, depth + 1); break;
      default: break;
    }
  }
  addresses_.emplace(pointer, address);
  return address;
}

LinearAddress Addresses::chain(const Instruction& instruction, int depth) {
  auto chain = types_.access_chain(instruction);
  if (!chain) return {unique(instruction.result()), 0};
  LinearAddress address = linear(instruction.operand(0), depth);
  // Arithmetic modulo 2^64, as addresses have it.
  uint64_t offset = static_cast<uint64_t>(address.offset) + chain->offset;
  Key key{kChainKey, address.base};
  for (const auto& [value, stride] : chain->indices) {
    LinearIndex position = index(value, depth);
    offset += static_cast<uint64_t>(position.constant) * stride;
    if (position.number) key.insert(key.end(), {position.number, stride});
  }
  if (key.size() > 2) address.base = intern(std::move(key));
  address.offset = static_cast<int64_t>(offset);
  return address;
}

Addresses::LinearIndex Addresses::index(Id id, int depth) {
  if (auto constant = types_.signed_constant(id)) return {0, *constant};
  const Instruction* definition = definitions_.find(id);
  if (!definition || depth > kMaxDepth) return {unique(id), 0};
  auto is_long = [&](Id value) {
    const Instruction& type = definitions_.at(definitions_.at(value).type());
    return type.opcode() == OpTypeInt && type.operand(0) == 64;
  };
  // 64-bit sums are exact modulo 2^64; narrower ones may only be taken apart where they do not
  // wrap.
  auto split = [&](const Instruction& sum) -> std::optional<std::pair<Id, int64_t>> {
    if (sum.opcode() != OpIAdd && sum.opcode() != OpISub) return std::nullopt;
    auto constant = types_.signed_constant(sum.operand(1));
    if (!constant) return std::nullopt;
    uint64_t value = static_cast<uint64_t>(*constant);
    return std::pair(sum.operand(0),
                     static_cast<int64_t>(sum.opcode() == OpIAdd ? value : 0 - value));
  };
  if (is_long(id)) {
    if (auto parts = split(*definition)) {
      LinearIndex rest = index(parts->first, depth + 1);
      uint64_t sum = static_cast<uint64_t>(rest.constant) + static_cast<uint64_t>(parts->second);
      return {rest.number, static_cast<int64_t>(sum)};
    }
    if (definition->opcode() == OpSConvert && no_signed_wrap_.count(definition->operand(0))) {
      if (auto parts = split(definitions_.at(definition->operand(0)))) {
        uint32_t wide = intern(
            {kExpressionKey, OpSConvert, definition->type(), number(parts->first, depth + 1)});
        return {wide, parts->second};
      }
    }
  }
  return {number(id, depth + 1), 0};
}

uint32_t Addresses::number(Id id, int depth) {
  auto known = numbers_.find(id);
  if (known != numbers_.end()) return known->second;
  uint32_t result = unique(id);
  const Instruction* definition = definitions_.find(id);
  if (definition && depth < kMaxDepth) {
    uint16_t op = definition->opcode();
    if (is_pure_arithmetic(op)) {
      Key key{kExpressionKey, op, definition->type()};
      for (size_t o = 0; o < definition->operand_count(); ++o) {
        key.push_back(number(definition->operand(o), depth + 1));
      }
      result = intern(std::move(key));
    } else if (op == OpCompositeExtract) {
      Key key{kExpressionKey, op, definition->type(), number(definition->operand(0), depth + 1)};
      for (size_t o = 1; o < definition->operand_count(); ++o)
        key.push_back(definition->operand(o));
      result = intern(std::move(key));
    } else if (op == OpLoad) {
      // Built-ins do not change.
      auto pointer = types_.pointer_of(definition->operand(0));
      if (pointer && pointer->storage == StorageInput) {
        result = intern({kExpressionKey, op, definition->type(), definition->operand(0)});
      }
    }
  }
  numbers_.emplace(id, result);
  return result;
}

}  // namespace pasta::spirv
