// Functions that the libtorch of this process exports, found without linking it.
//
// Python loads libtorch with RTLD_LOCAL, so that dlsym(RTLD_NEXT) does not see it: the library is
// looked up among the loaded ones and asked for the symbol.
#pragma once

namespace pasta::torch {

enum class Library { c10, torch_cpu };

// The function `symbol` (mangled), or null when the library is not loaded or exports no such name.
void* find_symbol(Library library, const char* symbol);
bool is_loaded(Library library);

template <class Function>
Function* find_function(Library library, const char* symbol) {
  return reinterpret_cast<Function*>(find_symbol(library, symbol));
}

}  // namespace pasta::torch
