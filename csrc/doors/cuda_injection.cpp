// The CUDA door: the driver loads the library named by CUDA_INJECTION64_PATH in every process that calls
// cuInit, and calls this from inside it.
#include <cstdlib>

#include "backends/cupti/collector.h"
#include "doors/export.h"
#include "schema/types.h"
#include "session/lifetime.h"

PASTA_EXPORT int InitializeInjection() {
  // Without LD_PRELOAD nothing else sees the process end while CUDA still works.
  if (pasta::cupti::Collector::instance().start()) std::atexit([] { pasta::finish("exit", pasta::kNullI32); });
  // 0 would make cuInit fail: a program that cannot be recorded still runs.
  return 1;
}
