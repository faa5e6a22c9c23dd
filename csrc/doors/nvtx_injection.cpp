// The NVTX door: NVTX loads the library named by NVTX_INJECTION64_PATH at a program's first annotation.
#include "backends/nvtx/nvtx.h"
#include "doors/export.h"

PASTA_EXPORT int InitializeInjectionNvtx2(pasta::nvtx::GetExportTable get_export_table) {
  return pasta::nvtx::install(get_export_table) ? 1 : 0;
}

PASTA_EXPORT int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t* module) {
  return pasta::nvtx::install_extension(module) ? 1 : 0;
}
