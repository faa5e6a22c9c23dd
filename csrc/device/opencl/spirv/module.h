// A SPIR-V module in memory: words -> sections and functions -> the same words.
//
//   header (5 words) | sections, in the order of Section | functions: head, blocks, tail
//
// Nothing is interpreted that does not have to be, so a module that nobody changed is written back
// byte for byte. Input is untrusted: whatever is out of shape raises Malformed, here and in
// everything built on top.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "device/opencl/spirv/grammar.h"
#include "device/opencl/spirv/opcodes.h"

namespace pasta::spirv {

using Id = uint32_t;  // 0 is never a valid id

// The module breaks a rule of the specification that this library relies on.
struct Malformed : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// The module is in order but holds something that this library cannot instrument.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Ids above this are refused, so that a table indexed by id stays small (the specification's own
// limit).
inline constexpr uint32_t kMaxBound = 0x3fffff;

class Instruction {
 public:
  Instruction() = default;
  // `words` with the leading word (count and opcode) left for us to fill in. Throws Malformed when
  // the instruction is too short for the type and result of its opcode.
  static Instruction from_words(std::vector<uint32_t> words);
  static Instruction make(Op opcode, const std::vector<uint32_t>& operands);
  static Instruction make(Op opcode, Id type, Id result, const std::vector<uint32_t>& operands);

  uint16_t opcode() const { return static_cast<uint16_t>(words_[0] & 0xffff); }
  const Shape* shape() const { return shape_; }
  Id type() const { return shape_ && shape_->has_type() ? words_[1] : 0; }
  Id result() const { return shape_ && shape_->has_result() ? words_[first_operand_ - 1] : 0; }

  // Words after the type and result.
  size_t operand_count() const { return words_.size() - first_operand_; }
  uint32_t operand(size_t index) const;
  void set_operand(size_t index, uint32_t value);
  void append(uint32_t word);

  const std::vector<uint32_t>& words() const { return words_; }
  // Calls `visit(uint32_t& id)` for each word that is an id, the result's own included.
  // `literal_words` is the number of words of an OpSwitch literal. Throws Unsupported when the ids
  // cannot be told apart.
  template <class Visit>
  void for_each_id(uint32_t literal_words, Visit visit);

  // The words that for_each_id() visits.
  std::vector<size_t> id_positions(uint32_t literal_words) const;

  bool is_terminator() const;
  bool is_debug_line() const { return opcode() == OpLine || opcode() == OpNoLine; }

 private:
  std::vector<uint32_t> words_;
  const Shape* shape_ = nullptr;
  uint32_t first_operand_ = 1;
};

template <class Visit>
void Instruction::for_each_id(uint32_t literal_words, Visit visit) {
  for (size_t position : id_positions(literal_words)) visit(words_[position]);
}

struct Block {
  Id label = 0;
  std::vector<Instruction> instructions;  // from what stands before OpLabel to the terminator
};

struct Function {
  std::vector<Instruction> head;  // OpFunction and its OpFunctionParameters
  std::vector<Block> blocks;      // none: a declaration whose body is elsewhere
  std::vector<Instruction> tail;  // OpFunctionEnd

  Id id() const { return head[function_at].result(); }
  Id return_type() const { return head[function_at].type(); }
  Id function_type() const { return head[function_at].operand(1); }
  uint32_t control() const { return head[function_at].operand(0); }
  std::vector<const Instruction*> parameters() const;

  size_t function_at = 0;  // OpLine may stand before OpFunction
};

// Layout of a module, specification chapter 2.4.
enum class Section {
  capabilities,
  extensions,
  imports,
  memory_model,
  entry_points,
  execution_modes,
  debug,  // strings, names, sources
  annotations,
  globals,  // types, constants, variables
};
inline constexpr size_t kSections = 9;

class Module {
 public:
  // Throws Malformed.
  static Module parse(const uint32_t* words, size_t count);
  static Module parse(const std::vector<uint32_t>& words) {
    return parse(words.data(), words.size());
  }
  std::vector<uint32_t> write() const;

  std::vector<Instruction>& section(Section s) { return sections_[static_cast<size_t>(s)]; }
  const std::vector<Instruction>& section(Section s) const {
    return sections_[static_cast<size_t>(s)];
  }

  uint32_t version() const { return header_[1]; }
  uint32_t bound() const { return header_[3]; }
  Id new_id();

  std::vector<Function> functions;

 private:
  std::array<uint32_t, 5> header_{};
  std::array<std::vector<Instruction>, kSections> sections_;
};

// Where each id is defined, in a module that does not change while this object is in use.
class Definitions {
 public:
  explicit Definitions(const Module& module);  // throws Malformed when an id is defined twice
  // Null when nothing defines it.
  const Instruction* find(Id id) const { return id < table_.size() ? table_[id] : nullptr; }
  const Instruction& at(Id id) const;  // throws Malformed when nothing defines it

 private:
  std::vector<const Instruction*> table_;
};

// A literal string that starts at operand `index`; `next` becomes the operand after it.
std::string literal_string(const Instruction& instruction, size_t index, size_t* next = nullptr);
void append_string(std::vector<uint32_t>& words, std::string_view text);

// Words of an OpSwitch literal for a selector of this type (1, or 2 for 64-bit integers).
uint32_t switch_literal_words(const Definitions& definitions, const Instruction& op_switch);

}  // namespace pasta::spirv
