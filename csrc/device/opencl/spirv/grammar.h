// Which words of an instruction are ids: what cloning, renaming and reference checks need to know.
//
// Only instructions that may stand in an OpenCL module are listed; shape_of() says null for any
// other, and a kernel that holds one is left alone.
#pragma once

#include <cstdint>

namespace pasta::spirv {

// One letter an operand, in the order of the words:
//   T result type   R result id   i id   l literal word   s text up to its NUL
//   * the rest are ids   L the rest are literals
//   M optional memory access (mask, then what it asks for)   I optional image operands (mask, then
//   ids) S the rest are OpSwitch (literal, label) pairs            X the rest belong to an extended
//   instruction
struct Shape {
  uint16_t first;  // opcodes first ... last have this shape
  uint16_t last;
  const char* operands;

  bool has_type() const { return operands[0] == 'T'; }
  bool has_result() const { return operands[has_type()] == 'R'; }
};

const Shape* shape_of(uint16_t opcode);

}  // namespace pasta::spirv
