// Starts the torch backend in a process in which torch appears, and tells how far it can be
// trusted.
#pragma once

#include <string_view>

namespace pasta::torch {

// torch is about to be imported: installation waits until that is done.
void importing();

// torch is imported, or the import failed (then `version` is empty). Installs the operator
// callbacks. Before the program's first operator when the import hook calls it.
void imported(std::string_view version);

// The same for a program that no import hook told us about: called whenever torch reports an
// allocation. Its version is then unknown.
void install_on_first_use();

// A version whose operators and tensors were compared with torch.profiler's on this project's
// machines.
bool is_verified(std::string_view version);

}  // namespace pasta::torch
