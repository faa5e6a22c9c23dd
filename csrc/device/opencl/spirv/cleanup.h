// Takes out of a module what nothing refers to any more.
#pragma once

#include <set>

#include "device/opencl/spirv/module.h"

namespace pasta::spirv {

// Drops what instruction sets for debug information declare and say, and those sets; not OpLine.
void strip_debug_sets(Module& module);

// Drops line and debug-info instructions, and the instruction sets that they come from.
void strip_debug_information(Module& module);

// Drops functions that no entry point reaches. Exported ones go too: this is for programs that are
// complete.
void drop_unreachable_functions(Module& module);

// Drops names and decorations of these ids.
void forget(Module& module, const std::set<Id>& ids);

}  // namespace pasta::spirv
