// A number for every function that can be recorded, and whether it is recorded by default.
#pragma once

#include <cstddef>

namespace pasta::opencl {

enum class Entry : unsigned char {
#define PASTA_CL(version, interest, name) name,
#define PASTA_CL_SLOT(version, name) name,
#define PASTA_CL_EXTENSION(name) name,
#include "backends/opencl/dispatch.def"
#include "backends/opencl/extensions.def"
#undef PASTA_CL
#undef PASTA_CL_SLOT
#undef PASTA_CL_EXTENSION
  kCount
};
inline constexpr size_t kEntries = static_cast<size_t>(Entry::kCount);

enum class Interest : unsigned char { never, query, call };

inline constexpr Interest kInterests[] = {
#define PASTA_CL(version, interest, name) Interest::interest,
#define PASTA_CL_SLOT(version, name) Interest::never,
#define PASTA_CL_EXTENSION(name) Interest::call,
#include "backends/opencl/dispatch.def"
#include "backends/opencl/extensions.def"
#undef PASTA_CL
#undef PASTA_CL_SLOT
#undef PASTA_CL_EXTENSION
};
constexpr Interest interest(Entry entry) { return kInterests[static_cast<size_t>(entry)]; }

inline constexpr const char* kEntryNames[] = {
#define PASTA_CL(version, interest, name) #name,
#define PASTA_CL_SLOT(version, name) #name,
#define PASTA_CL_EXTENSION(name) #name,
#include "backends/opencl/dispatch.def"
#include "backends/opencl/extensions.def"
#undef PASTA_CL
#undef PASTA_CL_SLOT
#undef PASTA_CL_EXTENSION
};
constexpr const char* entry_name(Entry entry) { return kEntryNames[static_cast<size_t>(entry)]; }

}  // namespace pasta::opencl
