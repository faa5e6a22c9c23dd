#include "device/opencl/spirv/module.h"

#include <algorithm>

namespace pasta::spirv {
namespace {

constexpr size_t kHeaderWords = 5;

Section section_of(uint16_t opcode) {
  switch (opcode) {
    case OpCapability: return Section::capabilities;
    case OpExtension: return Section::extensions;
    case OpExtInstImport: return Section::imports;
    case OpMemoryModel: return Section::memory_model;
    case OpEntryPoint: return Section::entry_points;
    case OpExecutionMode:
    case OpExecutionModeId: return Section::execution_modes;
    case OpString:
    case OpSource:
    case OpSourceContinued:
    case OpSourceExtension:
    case OpName:
    case OpMemberName:
    case OpModuleProcessed: return Section::debug;
    case OpDecorate:
    case OpMemberDecorate:
    case OpDecorationGroup:
    case OpGroupDecorate:
    case OpGroupMemberDecorate:
    case OpDecorateId:
    case OpDecorateString:
    case OpMemberDecorateString: return Section::annotations;
    default: return Section::globals;
  }
}

// How many words an optional mask of memory or image operands brings along, itself included.
size_t memory_access_words(const std::vector<uint32_t>& words, size_t at,
                           std::vector<size_t>* ids) {
  if (at >= words.size()) return 0;
  uint32_t mask = words[at];
  if (mask & ~0x3003fu) throw Unsupported("memory access operands that pasta does not know");
  size_t next = at + 1;
  if (mask & MemoryAccessAligned) ++next;                   // a literal
  for (uint32_t bit : {0x8u, 0x10u, 0x10000u, 0x20000u}) {  // scopes and alias lists
    if (mask & bit) ids->push_back(next++);
  }
  return next - at;
}

bool is_vector_load(uint32_t instruction) {
  return instruction == kStdVloadn || instruction == kStdVloadHalfn ||
         instruction == kStdVloadaHalfn;
}

bool has_rounding_mode(uint32_t instruction) {
  return instruction == kStdVstoreHalfR || instruction == kStdVstoreHalfnR ||
         instruction == kStdVstoreaHalfnR;
}

}  // namespace

Instruction Instruction::from_words(std::vector<uint32_t> words) {
  Instruction instruction;
  instruction.words_ = std::move(words);
  if (instruction.words_.empty()) throw Malformed("empty instruction");
  if (instruction.words_.size() > 0xffff) throw Malformed("instruction of more than 65535 words");
  uint16_t opcode = instruction.opcode();
  instruction.words_[0] = static_cast<uint32_t>(instruction.words_.size()) << 16 | opcode;
  instruction.shape_ = shape_of(opcode);
  if (instruction.shape_) {
    instruction.first_operand_ =
        1 + instruction.shape_->has_type() + instruction.shape_->has_result();
    if (instruction.words_.size() < instruction.first_operand_) {
      throw Malformed("instruction " + std::to_string(opcode) + " is too short");
    }
  }
  return instruction;
}

Instruction Instruction::make(Op opcode, const std::vector<uint32_t>& operands) {
  std::vector<uint32_t> words{opcode};
  words.insert(words.end(), operands.begin(), operands.end());
  return from_words(std::move(words));
}

Instruction Instruction::make(Op opcode, Id type, Id result,
                              const std::vector<uint32_t>& operands) {
  std::vector<uint32_t> words{opcode};
  if (type) words.push_back(type);
  words.push_back(result);
  words.insert(words.end(), operands.begin(), operands.end());
  return from_words(std::move(words));
}

uint32_t Instruction::operand(size_t index) const {
  if (index >= operand_count()) {
    throw Malformed("instruction " + std::to_string(opcode()) + " lacks operand " +
                    std::to_string(index));
  }
  return words_[first_operand_ + index];
}

void Instruction::set_operand(size_t index, uint32_t value) {
  operand(index);
  words_[first_operand_ + index] = value;
}

void Instruction::append(uint32_t word) {
  words_.push_back(word);
  if (words_.size() > 0xffff) throw Malformed("instruction of more than 65535 words");
  words_[0] = static_cast<uint32_t>(words_.size()) << 16 | opcode();
}

bool Instruction::is_terminator() const {
  return (opcode() >= OpBranch && opcode() <= OpUnreachable);
}

std::vector<size_t> Instruction::id_positions(uint32_t literal_words) const {
  if (!shape_)
    throw Unsupported("SPIR-V instruction " + std::to_string(opcode()) +
                      ", which pasta does not know");
  std::vector<size_t> ids;
  size_t at = 1;
  for (const char* kind = shape_->operands; *kind; ++kind) {
    switch (*kind) {
      case 'T':
      case 'R':
      case 'i': ids.push_back(at++); break;
      case 'l': ++at; break;
      case 's':
        while (at < words_.size() && (words_[at] >> 24) != 0) ++at;
        ++at;
        break;
      case '*':
        while (at < words_.size()) ids.push_back(at++);
        break;
      case 'L': at = words_.size(); break;
      case 'M': at += memory_access_words(words_, at, &ids); break;
      case 'I':
        for (++at; at < words_.size(); ++at) ids.push_back(at);
        break;
      case 'S':
        for (at += literal_words; at < words_.size(); at += literal_words + 1) ids.push_back(at);
        break;
      case 'X': {
        uint32_t number = words_.size() > 4 ? words_[4] : 0;
        size_t literals = is_vector_load(number) || has_rounding_mode(number) ? 1 : 0;
        while (at + literals < words_.size()) ids.push_back(at++);
        at = words_.size();
        break;
      }
    }
  }
  if (!ids.empty() && ids.back() >= words_.size()) {
    throw Malformed("instruction " + std::to_string(opcode()) + " is too short");
  }
  return ids;
}

std::vector<const Instruction*> Function::parameters() const {
  std::vector<const Instruction*> found;
  for (const Instruction& instruction : head) {
    if (instruction.opcode() == OpFunctionParameter) found.push_back(&instruction);
  }
  return found;
}

Module Module::parse(const uint32_t* words, size_t count) {
  if (count < kHeaderWords) throw Malformed("shorter than a SPIR-V header");
  if (words[0] != kMagic) throw Malformed("no SPIR-V magic number");
  Module module;
  std::copy(words, words + kHeaderWords, module.header_.begin());
  if (module.bound() == 0 || module.bound() > kMaxBound) throw Malformed("id bound out of range");

  size_t section = 0;
  Function* function = nullptr;
  std::vector<Instruction> pending;  // stands before the next OpFunction or OpLabel
  bool in_block = false;
  for (size_t at = kHeaderWords; at < count;) {
    size_t length = words[at] >> 16;
    if (length == 0 || length > count - at)
      throw Malformed("instruction runs past the end of the module");
    Instruction instruction = Instruction::from_words({words + at, words + at + length});
    at += length;
    uint16_t opcode = instruction.opcode();

    if (opcode == OpFunction) {
      if (function) throw Malformed("function inside a function");
      function = &module.functions.emplace_back();
      function->head = std::move(pending);
      pending.clear();
      function->function_at = function->head.size();
      function->head.push_back(std::move(instruction));
      function->function_type();  // both operands are there
    } else if (!function) {
      if (instruction.is_debug_line() || !module.functions.empty()) {
        pending.push_back(std::move(instruction));
      } else {
        section = std::max(
            section, static_cast<size_t>(pending.empty() ? section_of(opcode) : Section::globals));
        auto& into = module.sections_[section];
        into.insert(into.end(), pending.begin(), pending.end());
        pending.clear();
        into.push_back(std::move(instruction));
      }
    } else if (opcode == OpFunctionEnd) {
      if (in_block) throw Malformed("block without a terminator");
      function->tail = std::move(pending);
      pending.clear();
      function->tail.push_back(std::move(instruction));
      function = nullptr;
    } else if (in_block) {
      if (opcode == OpLabel) throw Malformed("block without a terminator");
      in_block = !instruction.is_terminator();
      function->blocks.back().instructions.push_back(std::move(instruction));
    } else if (opcode == OpLabel) {
      Block& block = function->blocks.emplace_back();
      block.label = instruction.result();
      block.instructions = std::move(pending);
      pending.clear();
      block.instructions.push_back(std::move(instruction));
      in_block = true;
    } else if (opcode == OpFunctionParameter && function->blocks.empty()) {
      function->head.insert(function->head.end(), pending.begin(), pending.end());
      pending.clear();
      function->head.push_back(std::move(instruction));
    } else {
      pending.push_back(std::move(instruction));
    }
  }
  if (function) throw Malformed("function without an end");
  // What stands after the last function: keep it where it was.
  if (!pending.empty()) {
    auto& last = module.functions.empty() ? module.sections_[static_cast<size_t>(Section::globals)]
                                          : module.functions.back().tail;
    last.insert(last.end(), pending.begin(), pending.end());
  }
  return module;
}

std::vector<uint32_t> Module::write() const {
  std::vector<uint32_t> out(header_.begin(), header_.end());
  auto put = [&](const std::vector<Instruction>& instructions) {
    for (const Instruction& i : instructions)
      out.insert(out.end(), i.words().begin(), i.words().end());
  };
  for (const auto& section : sections_) put(section);
  for (const Function& function : functions) {
    put(function.head);
    for (const Block& block : function.blocks) put(block.instructions);
    put(function.tail);
  }
  return out;
}

Id Module::new_id() {
  if (header_[3] >= kMaxBound) throw Unsupported("no SPIR-V ids left");
  return header_[3]++;
}

Definitions::Definitions(const Module& module) : table_(module.bound(), nullptr) {
  auto add = [&](const std::vector<Instruction>& instructions) {
    for (const Instruction& instruction : instructions) {
      if (!instruction.shape() || !instruction.shape()->has_result()) continue;
      Id id = instruction.result();
      if (id == 0 || id >= table_.size()) throw Malformed("result id out of bounds");
      if (table_[id]) throw Malformed("id " + std::to_string(id) + " is defined twice");
      table_[id] = &instruction;
    }
  };
  for (size_t s = 0; s < kSections; ++s) add(module.section(static_cast<Section>(s)));
  for (const Function& function : module.functions) {
    add(function.head);
    for (const Block& block : function.blocks) add(block.instructions);
  }
}

const Instruction& Definitions::at(Id id) const {
  const Instruction* found = find(id);
  if (!found) throw Malformed("id " + std::to_string(id) + " is not defined");
  return *found;
}

std::string literal_string(const Instruction& instruction, size_t index, size_t* next) {
  std::string text;
  for (; index < instruction.operand_count(); ++index) {
    uint32_t word = instruction.operand(index);
    for (int byte = 0; byte < 4; ++byte, word >>= 8) {
      if ((word & 0xff) == 0) {
        if (next) *next = index + 1;
        return text;
      }
      text.push_back(static_cast<char>(word & 0xff));
    }
  }
  throw Malformed("text without an end");
}

void append_string(std::vector<uint32_t>& words, std::string_view text) {
  uint32_t word = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    word |= static_cast<uint32_t>(static_cast<unsigned char>(text[i])) << (i % 4 * 8);
    if (i % 4 == 3) {
      words.push_back(word);
      word = 0;
    }
  }
  words.push_back(word);
}

uint32_t switch_literal_words(const Definitions& definitions, const Instruction& op_switch) {
  const Instruction& selector = definitions.at(op_switch.operand(0));
  const Instruction& type = definitions.at(selector.type());
  return type.opcode() == OpTypeInt && type.operand(0) > 32 ? 2 : 1;
}

}  // namespace pasta::spirv
