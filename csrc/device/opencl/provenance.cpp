#include "device/opencl/provenance.h"

#include <algorithm>
#include <tuple>

namespace pasta::memory {

using namespace spirv;

namespace {

// The operand that an instruction derives its pointer from; -1 when it is no such instruction.
int base_operand(const Instruction& instruction) {
  switch (instruction.opcode()) {
    case OpAccessChain:
    case OpInBoundsAccessChain:
    case OpPtrAccessChain:
    case OpInBoundsPtrAccessChain:
    case OpCopyObject:
    case OpPtrCastToGeneric:
    case OpGenericCastToPtr:
    case OpGenericCastToPtrExplicit:
    case OpPtrCastToCrossWorkgroupINTEL:
    case OpCrossWorkgroupCastToPtrINTEL:
    case OpBitcast:
    case OpExpectKHR:
    case OpSampledImage:
    case OpImage: return 0;
    case OpUntypedAccessChainKHR:
    case OpUntypedInBoundsAccessChainKHR:
    case OpUntypedPtrAccessChainKHR:
    case OpUntypedInBoundsPtrAccessChainKHR: return 1;
    default: return -1;
  }
}

constexpr int kMaxDepth = 64;  // of constant expressions within constant expressions

Origin anywhere() {
  Origin origin;
  origin.unknown = true;
  return origin;
}

}  // namespace

bool Origin::join(const Origin& other) {
  bool changed = (other.is_private && !is_private) || (other.unknown && !unknown);
  is_private |= other.is_private;
  unknown |= other.unknown;
  for (uint32_t root : other.roots) {
    auto at = std::lower_bound(roots.begin(), roots.end(), root);
    if (at != roots.end() && *at == root) continue;
    roots.insert(at, root);
    changed = true;
  }
  return changed;
}

bool Origin::operator<(const Origin& other) const {
  return std::tie(roots, is_private, unknown) <
         std::tie(other.roots, other.is_private, other.unknown);
}

Provenance::Provenance(const Function& function, const Definitions& definitions, const Types& types,
                       const std::vector<Origin>& parameters, RootOf root_of)
    : function_(function), definitions_(definitions), types_(types), root_of_(std::move(root_of)) {
  auto declared = function.parameters();
  for (size_t i = 0; i < declared.size() && i < parameters.size(); ++i) {
    origins_[declared[i]->result()] = parameters[i];
  }
  find_pointer_slots();
  // Origins only grow, so this ends.
  for (bool changed = true; changed;) {
    changed = false;
    for (const Block& block : function.blocks) {
      for (const Instruction& instruction : block.instructions) changed |= update(instruction);
    }
  }
}

// Private variables of pointer type that are only loaded from and stored to.
void Provenance::find_pointer_slots() {
  std::unordered_map<Id, Id>
      slot_of;  // the variable itself, or a cast of it (for lifetime markers)
  for (const Block& block : function_.blocks) {
    for (const Instruction& i : block.instructions) {
      if (i.opcode() == OpVariable) {
        auto pointer = types_.pointer(i.type());
        if (pointer && pointer->pointee && types_.pointer(pointer->pointee)) {
          slots_[i.result()];
          slot_of[i.result()] = i.result();
        }
      } else if (i.opcode() == OpBitcast) {
        auto slot = slot_of.find(i.operand(0));
        if (slot != slot_of.end()) slot_of[i.result()] = slot->second;
      }
    }
  }
  auto is_slot = [&](Id id) { return slots_.count(id) != 0; };
  for (const Block& block : function_.blocks) {
    for (const Instruction& i : block.instructions) {
      uint16_t op = i.opcode();
      if (op == OpVariable || op == OpLifetimeStart || op == OpLifetimeStop) continue;
      if (op == OpLoad && is_slot(i.operand(0))) continue;
      if (op == OpBitcast && is_slot(i.operand(0))) continue;
      for (size_t o = 0; o < i.operand_count(); ++o) {
        if (op == OpStore && o == 0 && is_slot(i.operand(0))) continue;
        auto used = slot_of.find(
            i.operand(o));  // may be a literal that looks like an id: then merely cautious
        if (used != slot_of.end()) slots_.erase(used->second);
      }
    }
  }
}

bool Provenance::update(const Instruction& i) {
  uint16_t op = i.opcode();
  if (op == OpStore) {
    auto slot = slots_.find(i.operand(0));
    return slot != slots_.end() && slot->second.join(of(i.operand(1)));
  }
  Id result = i.result();
  if (!result) return false;
  if (op == OpVariable || op == OpUntypedVariableKHR) {
    Origin local;
    local.is_private = true;
    return origins_[result].join(local);
  }
  int base = base_operand(i);
  bool is_handle = op == OpSampledImage || op == OpImage;
  if (!is_handle && !types_.pointer_of(result)) return false;
  Origin origin;
  if (base >= 0) {
    origin = of(i.operand(static_cast<size_t>(base)));
  } else if (op == OpPhi) {
    for (size_t o = 0; o + 1 < i.operand_count(); o += 2) origin.join(of(i.operand(o)));
  } else if (op == OpSelect) {
    origin = of(i.operand(1));
    origin.join(of(i.operand(2)));
  } else if (op == OpLoad && slots_.count(i.operand(0))) {
    origin = slots_[i.operand(0)];
  } else if (op != OpUndef) {
    origin = anywhere();
  }
  return origins_[result].join(origin);
}

Origin Provenance::of(Id id, int depth) const {
  auto known = origins_.find(id);
  if (known != origins_.end()) return known->second;
  const Instruction* definition = definitions_.find(id);
  if (!definition) throw Malformed("id " + std::to_string(id) + " is not defined");
  Origin origin;
  switch (definition->opcode()) {
    case OpVariable:
    case OpUntypedVariableKHR:
      if (definition->operand(0) != StorageFunction) {
        origin.roots = {root_of_(id)};
      }
      return origin;  // a private variable further down: filled in when it is reached
    case OpSpecConstantOp: return of_constant_expression(*definition, depth);
    case OpConstantNull:
    case OpUndef: return origin;
    default: break;
  }
  // An instruction of this function that comes later (a loop's phi), or something without a pointer
  // in it.
  if (definition->type() && types_.pointer(definition->type())) return origin;
  return anywhere();
}

// Constant addresses: an instruction number, then its operands.
Origin Provenance::of_constant_expression(const Instruction& expression, int depth) const {
  switch (expression.operand(0)) {
    case OpAccessChain:
    case OpInBoundsAccessChain:
    case OpPtrAccessChain:
    case OpInBoundsPtrAccessChain:
    case OpPtrCastToGeneric:
    case OpGenericCastToPtr:
    case OpBitcast: return depth < kMaxDepth ? of(expression.operand(1), depth + 1) : anywhere();
    default: return anywhere();
  }
}

}  // namespace pasta::memory
