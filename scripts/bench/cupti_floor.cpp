// The floor under any CUPTI profiler: kernel and copy records enabled, buffers taken and given back unread.
#include <cupti.h>

#include <cstdlib>
#include <initializer_list>

static void CUPTIAPI requested(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *bytes = 1 << 20;
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *bytes));
}

static void CUPTIAPI completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t) { std::free(buffer); }

extern "C" int InitializeInjection() {
  cuptiActivityRegisterCallbacks(requested, completed);
  for (const CUpti_ActivityKind kind : {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                        CUPTI_ACTIVITY_KIND_MEMSET}) {
    cuptiActivityEnable(kind);
  }
  std::atexit([] { cuptiActivityFlushAll(1); });
  return 1;
}
