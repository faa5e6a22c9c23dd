// The CUDA door: the driver loads the library named by CUDA_INJECTION64_PATH in every process that calls
// cuInit, and calls this from inside it. CUPTI and the Sanitizer exclude each other: --memory chooses.
#include <cstdlib>

#ifdef PASTA_HAS_CUPTI
#include "backends/cupti/collector.h"
#endif
#ifdef PASTA_HAS_SANITIZER
#include "backends/sanitizer/backend.h"
#endif
#include "doors/export.h"
#include "schema/types.h"
#include "session/lifetime.h"
#include "session/session.h"

namespace {

bool start_backend() {
#ifdef PASTA_HAS_SANITIZER
  if (pasta::sanitizer::requested()) return pasta::sanitizer::start();
#else
  const char* const memory = std::getenv("PASTA_MEMORY");
  if (memory != nullptr && *memory != '\0') {
    pasta::report_loss("sanitizer", "access_object", pasta::kNullI64,
                       "this build of pasta has no memory pass for CUDA: times are recorded instead",
                       "build it where nvcc and nvidia-cuda-sanitizer-api are installed");
  }
#endif
#ifdef PASTA_HAS_CUPTI
  return pasta::cupti::Collector::instance().start();
#else
  return false;
#endif
}

}  // namespace

PASTA_EXPORT int InitializeInjection() {
  // Without LD_PRELOAD nothing else sees the process end while CUDA still works.
  if (start_backend()) std::atexit([] { pasta::finish("exit", pasta::kNullI32); });
  // 0 would make cuInit fail: a program that cannot be recorded still runs.
  return 1;
}
