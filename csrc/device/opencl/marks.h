// Which accesses have to mark their lines, so that no line is marked twice for nothing.
//
// Accesses of one block to neighbouring bytes (members of a struct, a value read and written back)
// mark once, for all of them. A mark that a dominating block has already made at the same address
// is left out. The set of lines marked, and the first and last byte, are exactly those of marking
// at every access.
#pragma once

#include "device/opencl/calltree.h"

namespace pasta::memory {

// Most lines that so many bytes, aligned so, can touch.
uint32_t most_lines(uint64_t bytes, uint64_t alignment);

// Sets InstanceAccess::mark.
void plan_marks(const Source& source, const CallTree& tree, Instance& instance);

}  // namespace pasta::memory
