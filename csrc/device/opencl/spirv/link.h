// Several modules -> one, as clLinkProgram makes of programs that were compiled one by one.
#pragma once

#include <vector>

#include "device/opencl/spirv/module.h"

namespace pasta::spirv {

// Functions and variables that one module imports and another exports become one; imports that no
// module exports (built-in functions of the device) stay, each once. Of debug information, lines
// remain (OpLine). Throws Malformed, or
// Unsupported for modules that do not fit together. `modules` holds at least one.
Module link(std::vector<Module> modules);

}  // namespace pasta::spirv
