// The functions of OpenCL as a table, and the two ways in which our wrappers get in front of them.
//
//   layer: a loader hands us the table that it would have called, we hand it the one to call instead
//   patch: we overwrite the entries of a driver's own table, which all its objects point at
//
// Whichever comes first is the only one in a process: no call is seen twice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/opencl/cl_api.h"

namespace pasta::opencl {

struct Dispatch {
#define PASTA_CL(version, interest, name) decltype(&::name) name;
#define PASTA_CL_SLOT(version, name) void* name;
#include "backends/opencl/dispatch.def"
#undef PASTA_CL
#undef PASTA_CL_SLOT
};

inline constexpr size_t kDispatchEntries = sizeof(Dispatch) / sizeof(void*);

// The table to call for `handle` (any OpenCL object; null is the first platform's), our wrappers
// left out. Valid once a door was opened. Entries that the driver or the loader does not have are
// null.
const Dispatch& next(const void* handle);

// Layer: `target` has `entries` entries. Returns our table (null entries: "keep the target's") and
// how many of its entries the loader may use, or null when calls are caught in another way already.
const Dispatch* open_layer(const void* target, cl_uint entries, cl_uint* usable);

// The loader that opened the layer goes away: nothing of it may be called any more.
void close_layer();

// True once a loader has opened the layer in this process.
bool layer_is_open();

// Patches the table of `platform`, once. False when that is not possible.
bool patch_platform(cl_platform_id platform);

}  // namespace pasta::opencl
