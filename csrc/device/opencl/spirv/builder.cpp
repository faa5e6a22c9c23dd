#include "device/opencl/spirv/builder.h"

#include <algorithm>
#include <string>

namespace pasta::spirv {
namespace {

bool is_interned(uint16_t opcode) {
  // Arrays and structs may be declared more than once; the others may not.
  return (opcode >= OpTypeVoid && opcode <= OpTypePipe && opcode != OpTypeStruct) ||
         opcode == OpConstant || opcode == 41 /* OpConstantTrue */;
}

}  // namespace

Globals::Globals(Module& module) : module_(module) {
  for (const Instruction& global : module.section(Section::globals)) {
    if (!global.shape() || !is_interned(global.opcode())) continue;
    Key key = global.words();
    key[0] = global.opcode();
    key.erase(key.begin() + (global.shape()->has_type() ? 2 : 1));
    known_.emplace(std::move(key), global.result());
  }
  for (const Instruction& decoration : module.section(Section::annotations)) {
    if (decoration.opcode() == OpDecorate && decoration.operand(1) == DecorationBuiltIn) {
      builtins_.emplace(decoration.operand(2), decoration.operand(0));
    }
  }
}

Id Globals::intern(Op opcode, Id type, const std::vector<uint32_t>& operands) {
  Key key{opcode};
  if (type) key.push_back(type);
  key.insert(key.end(), operands.begin(), operands.end());
  auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  Id id = new_id();
  module_.section(Section::globals).push_back(Instruction::make(opcode, type, id, operands));
  known_.emplace(std::move(key), id);
  return id;
}

Id Globals::void_type() { return intern(OpTypeVoid, 0, {}); }
Id Globals::bool_type() { return intern(OpTypeBool, 0, {}); }
Id Globals::int_type(uint32_t width) { return intern(OpTypeInt, 0, {width, 0}); }
Id Globals::vector_type(Id element, uint32_t count) {
  return intern(OpTypeVector, 0, {element, count});
}
Id Globals::array_type(Id element, uint64_t count) {
  return intern(OpTypeArray, 0, {element, u64(count)});
}
Id Globals::pointer_type(StorageClass storage, Id pointee) {
  return intern(OpTypePointer, 0, {storage, pointee});
}

Id Globals::function_type(Id result, const std::vector<Id>& parameters) {
  std::vector<uint32_t> operands{result};
  operands.insert(operands.end(), parameters.begin(), parameters.end());
  return intern(OpTypeFunction, 0, operands);
}

Id Globals::u32(uint32_t value) { return intern(OpConstant, int_type(32), {value}); }

Id Globals::u64(uint64_t value) {
  return intern(OpConstant, int_type(64),
                {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)});
}

Id Globals::builtin(BuiltIn builtin, std::string_view text, Id type) {
  auto found = builtins_.find(builtin);
  Id id;
  if (found != builtins_.end()) {
    id = found->second;
    Id expected = pointer_type(StorageInput, type);
    for (const Instruction& global : module_.section(Section::globals)) {
      if (global.shape() && global.result() == id && global.type() != expected) {
        throw Unsupported("a built-in variable of an unexpected type");
      }
    }
  } else {
    Id pointer = pointer_type(StorageInput, type);
    id = new_id();
    module_.section(Section::globals)
        .push_back(Instruction::make(OpVariable, pointer, id, {StorageInput}));
    auto& annotations = module_.section(Section::annotations);
    capability(CapabilityLinkage);
    std::vector<uint32_t> linkage{id, DecorationLinkageAttributes};
    append_string(linkage, text);
    linkage.push_back(kLinkageImport);
    annotations.push_back(Instruction::make(OpDecorate, linkage));
    annotations.push_back(Instruction::make(OpDecorate, {id, DecorationConstant}));
    annotations.push_back(Instruction::make(OpDecorate, {id, DecorationBuiltIn, builtin}));
    name(id, text);
    builtins_.emplace(builtin, id);
  }
  if (std::find(interface_.begin(), interface_.end(), id) == interface_.end()) {
    interface_.push_back(id);
  }
  return id;
}

Id Globals::local_variable(Id type) {
  constexpr uint32_t kListsAll = 0x00010400;  // since this version, not only built-ins
  Id id = new_id(), pointer = pointer_type(StorageWorkgroup, type);
  module_.section(Section::globals)
      .push_back(Instruction::make(OpVariable, pointer, id, {StorageWorkgroup}));
  if (module_.version() >= kListsAll) interface_.push_back(id);
  return id;
}

void Globals::capability(Capability capability) {
  auto& declared = module_.section(Section::capabilities);
  for (const Instruction& instruction : declared) {
    if (instruction.operand(0) == capability) return;
  }
  declared.push_back(Instruction::make(OpCapability, {capability}));
}

void Globals::name(Id id, std::string_view text) {
  std::vector<uint32_t> operands{id};
  append_string(operands, text);
  // Names stand before OpModuleProcessed.
  auto& debug = module_.section(Section::debug);
  auto at = std::find_if(debug.begin(), debug.end(),
                         [](const Instruction& i) { return i.opcode() == OpModuleProcessed; });
  debug.insert(at, Instruction::make(OpName, operands));
}

void Globals::name_function(Id id, std::string_view text) {
  name(id, std::string(text) + "." + std::to_string(id));
}

Id Emitter::emit(Op opcode, Id type, const std::vector<uint32_t>& operands) {
  Id id = globals.new_id();
  target().push_back(Instruction::make(opcode, type, id, operands));
  return id;
}

void Emitter::effect(Op opcode, const std::vector<uint32_t>& operands) {
  target().push_back(Instruction::make(opcode, operands));
}

Id Emitter::binary(Op opcode, Id a, Id b) { return emit(opcode, globals.int_type(64), {a, b}); }
Id Emitter::compare(Op opcode, Id a, Id b) { return emit(opcode, globals.bool_type(), {a, b}); }
Id Emitter::select(Id condition, Id a, Id b) {
  return emit(OpSelect, globals.int_type(64), {condition, a, b});
}

Id Emitter::load(Id type, Id pointer, uint32_t alignment) {
  return emit(OpLoad, type, {pointer, MemoryAccessAligned, alignment});
}

void Emitter::store(Id pointer, Id value, uint32_t alignment) {
  effect(OpStore, {pointer, value, MemoryAccessAligned, alignment});
}

void Emitter::begin_block(Id label) {
  Block& block = blocks_.emplace_back();
  block.label = label;
  block.instructions.push_back(Instruction::make(OpLabel, 0, label, {}));
}

void Emitter::when(Id condition, const std::function<void()>& body) {
  Id yes = new_label(), done = new_label();
  branch_if(condition, yes, done);
  begin_block(yes);
  body();
  branch(done);
  begin_block(done);
}

void Emitter::loop(const std::function<Id()>& condition, const std::function<void()>& body) {
  Id head = new_label(), again = new_label(), done = new_label();
  branch(head);
  begin_block(head);
  branch_if(condition(), again, done);
  begin_block(again);
  body();
  branch(head);
  begin_block(done);
}

NewFunction::NewFunction(Globals& globals, Id id, Id result, const std::vector<Id>& parameter_types,
                         uint32_t control)
    : code(globals) {
  Id type = globals.function_type(result, parameter_types);
  function_.head.push_back(Instruction::make(OpFunction, result, id, {control, type}));
  for (Id parameter_type : parameter_types) {
    Id parameter = globals.new_id();
    parameters.push_back(parameter);
    function_.head.push_back(Instruction::make(OpFunctionParameter, parameter_type, parameter, {}));
  }
}

Function NewFunction::finish() {
  function_.blocks = std::move(code.blocks());
  function_.tail.push_back(Instruction::make(OpFunctionEnd, {}));
  return std::move(function_);
}

}  // namespace pasta::spirv
