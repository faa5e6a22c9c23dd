// The C interface of the injected library, for Python (pasta.range, pasta.start, the site hooks) and for any
// program that looks these names up with dlsym(RTLD_DEFAULT, ...). Every function is safe at any time.
#include "doors/export.h"
#include "session/session.h"

using pasta::AnnotationSource;

// 1 while this process is being recorded.
PASTA_EXPORT int pasta_recording() { return pasta::ensure_session() ? 1 : 0; }

PASTA_EXPORT void pasta_range_push(const char* name) {
  if (name != nullptr) pasta::range_push(name, AnnotationSource::pasta);
}

PASTA_EXPORT void pasta_range_pop() { pasta::range_pop(AnnotationSource::pasta); }

PASTA_EXPORT void pasta_range_mark(const char* name) {
  if (name != nullptr) pasta::range_mark(name, AnnotationSource::pasta);
}

// A range that may end on another thread: returns the id to end it with.
PASTA_EXPORT long long pasta_range_start(const char* name) {
  return name == nullptr ? pasta::kNullI64 : pasta::range_start(name, AnnotationSource::pasta);
}

PASTA_EXPORT void pasta_range_end(long long range_id) { pasta::range_end(range_id); }

PASTA_EXPORT void pasta_start() { pasta::collection_start(); }
PASTA_EXPORT void pasta_stop() { pasta::collection_stop(); }

// Collects what devices have finished and writes everything to disk; at most `timeout_ms`.
PASTA_EXPORT void pasta_flush(int timeout_ms) { pasta::flush(timeout_ms * 1'000'000LL); }
