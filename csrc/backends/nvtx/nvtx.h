// NVTX annotations to ranges. Every library that uses NVTX (version 3 is header-only) has an implementation
// of its own and asks the injection for callbacks once.
#pragma once

struct nvtxExtModuleInfo_t;

namespace pasta::nvtx {

using GetExportTable = const void* (*)(unsigned);

// Installs our callbacks in the implementation that `get_export_table` belongs to. False when it is none that
// we know.
bool install(GetExportTable get_export_table);
// The same for an extension of NVTX, of which we know the one with payloads.
bool install_extension(nvtxExtModuleInfo_t* module);

}  // namespace pasta::nvtx
