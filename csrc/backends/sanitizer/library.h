// The Compute Sanitizer's API library, found at run time: nothing of NVIDIA's is linked.
#pragma once

#include <sanitizer.h>

#include <string>
#include <vector>

namespace pasta::sanitizer {

struct Functions {
#define PASTA_SANITIZER(name) decltype(&::name) name = nullptr;
#include "backends/sanitizer/functions.def"
#undef PASTA_SANITIZER
};

struct Library {
  Functions call;
  std::string path;   // of the library in use
  std::string error;  // why there is none; empty when there is one
  // At least this version, as 1000 * major + minor. The library does not tell; what lies beside it does.
  int version = 0;
  bool version_known = false;
};

// Looks, once, at PASTA_SANITIZER_PATH, the paths in PASTA_SANITIZER_HINTS (a colon list that the launcher makes
// from the wheels of the target's Python), the toolkit and the loader's path. Of those found the newest is taken.
const Library& library();

// The text of an error.
std::string describe(SanitizerResult result);

// 13005 for a library of the wheel 13.5 or of such a toolkit; 0 when nothing beside it tells.
int version_beside(const std::string& path);

}  // namespace pasta::sanitizer
