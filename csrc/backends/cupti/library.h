// CUPTI, found at run time: nothing of NVIDIA's is linked.
#pragma once

#include <cupti.h>

#include <string>

namespace pasta::cupti {

struct Functions {
#define PASTA_CUPTI(name) decltype(&::name) name = nullptr;
#define PASTA_CUPTI_OPTIONAL(name) decltype(&::name) name = nullptr;
#include "backends/cupti/functions.def"
#undef PASTA_CUPTI
#undef PASTA_CUPTI_OPTIONAL
};

struct Library {
  Functions call;
  void* handle = nullptr;
  std::string path;   // of the library in use
  std::string error;  // why there is none; empty when there is one
  uint32_t version = 0;  // as cuptiGetVersion: 130000 is CUDA 13.0, below 1000 an older numbering
};

// Looks, once, at PASTA_CUPTI_PATH, the copy that the program has mapped, the paths in PASTA_CUPTI_HINTS (a
// colon list that the launcher makes from the wheels of the target's Python), the toolkit and the loader's path.
const Library& library();

// The text of a CUPTI error, and what a user does about it.
std::string describe(CUptiResult result);
const char* remedy(CUptiResult result);

}  // namespace pasta::cupti
