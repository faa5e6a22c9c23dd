// The one assertion of the C++ tests: prints what failed and makes main() return 1.
#pragma once

#include <cstdio>

inline int g_failures = 0;

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
      ++g_failures;                                                            \
    }                                                                          \
  } while (false)
