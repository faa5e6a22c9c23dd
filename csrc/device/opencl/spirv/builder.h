// Adds to a module: types, constants and built-ins (each once), and instructions of new functions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device/opencl/spirv/module.h"

namespace pasta::spirv {

// Types and constants are unique in a module (specification 2.8), so the module's own are found and
// used.
class Globals {
 public:
  explicit Globals(Module& module);

  Module& module() { return module_; }
  Id new_id() { return module_.new_id(); }

  Id void_type();
  Id bool_type();
  Id int_type(uint32_t width);
  Id vector_type(Id element, uint32_t count);
  Id array_type(Id element, uint64_t count);
  Id pointer_type(StorageClass storage, Id pointee);
  Id function_type(Id result, const std::vector<Id>& parameters);

  Id u32(uint32_t value);
  Id u64(uint64_t value);

  // The Input variable of a built-in, declared as the OpenCL translator declares it.
  Id builtin(BuiltIn builtin, std::string_view name, Id type);
  // A variable in local memory.
  Id local_variable(Id type);
  // The variables asked for so far that an entry point which uses one lists in its interface.
  const std::vector<Id>& interface() const { return interface_; }

  void capability(Capability capability);
  void name(Id id, std::string_view text);
  // Names a function after `text`, and like no other: drivers take functions of one name to be one
  // function.
  void name_function(Id id, std::string_view text);

 private:
  using Key = std::vector<uint32_t>;  // the instruction's words without its result id
  Id intern(Op opcode, Id type, const std::vector<uint32_t>& operands);

  Module& module_;
  std::map<Key, Id> known_;
  std::unordered_map<uint32_t, Id> builtins_;
  std::vector<Id> interface_;
};

// Writes instructions, one block after another, into a function body.
class Emitter {
 public:
  explicit Emitter(Globals& globals) : globals(globals) {}

  Id emit(Op opcode, Id type, const std::vector<uint32_t>& operands);  // with a result
  void effect(Op opcode, const std::vector<uint32_t>& operands);       // without one

  // Arithmetic on 64-bit integers.
  Id binary(Op opcode, Id a, Id b);
  Id compare(Op opcode, Id a, Id b);
  Id select(Id condition, Id a, Id b);
  Id unsigned_max(Id a, Id b) { return select(compare(OpUGreaterThan, a, b), a, b); }
  Id unsigned_min(Id a, Id b) { return select(compare(OpULessThan, a, b), a, b); }
  // The address that a pointer holds, as a 64-bit integer.
  Id address(Id pointer) { return emit(OpConvertPtrToU, globals.int_type(64), {pointer}); }

  Id load(Id type, Id pointer, uint32_t alignment);
  void store(Id pointer, Id value, uint32_t alignment);

  // A new block begins; the one before must have ended with a terminator.
  void begin_block(Id label);
  void branch(Id target) { effect(OpBranch, {target}); }
  void branch_if(Id condition, Id yes, Id no) { effect(OpBranchConditional, {condition, yes, no}); }
  Id new_label() { return globals.new_id(); }

  // if (condition) body();
  void when(Id condition, const std::function<void()>& body);
  // while (condition()) body();
  void loop(const std::function<Id()>& condition, const std::function<void()>& body);

  std::vector<Block>& blocks() { return blocks_; }
  std::vector<Instruction>& instructions() { return loose_; }  // what was emitted outside any block

  Globals& globals;

 private:
  std::vector<Instruction>& target() {
    return blocks_.empty() ? loose_ : blocks_.back().instructions;
  }
  std::vector<Block> blocks_;
  std::vector<Instruction> loose_;
};

// A function made by an Emitter: parameters first, then blocks, then finish().
struct NewFunction {
  NewFunction(Globals& globals, Id id, Id result, const std::vector<Id>& parameter_types,
              uint32_t control);
  Function finish();

  Emitter code;
  std::vector<Id> parameters;

 private:
  Function function_;
};

}  // namespace pasta::spirv
