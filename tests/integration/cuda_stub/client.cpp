// A program that uses CUPTI itself: 10 launches before, 20 while it records kernels, 30 after; prints how many kernels it got,
// and how many buffers that were not its own.
#include <cuda.h>
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace {

std::set<uint8_t*> g_buffers;
int g_kernels = 0, g_others = 0, g_foreign = 0;

void CUPTIAPI requested(uint8_t** buffer, size_t* bytes, size_t* max_records) {
  *bytes = 4096;  // some 20 records
  *max_records = 0;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *bytes));
  g_buffers.insert(*buffer);
}

void CUPTIAPI completed(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  if (g_buffers.erase(buffer) == 0) {
    ++g_foreign;
    return;
  }
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    ++(record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? g_kernels : g_others);
  }
  std::free(buffer);
}

void launch(int times) {
  for (int i = 0; i < times; ++i) cuLaunchKernel(nullptr, 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr);
}

}  // namespace

int main() {
  CUcontext context;
  if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate(&context, nullptr, 0, 0) != CUDA_SUCCESS) return 1;
  launch(10);
  CUpti_SubscriberHandle subscriber;
  const auto ignore = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
  if (cuptiSubscribe(&subscriber, ignore, nullptr) != CUPTI_SUCCESS) return 2;
  cuptiActivityRegisterCallbacks(requested, completed);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  launch(20);
  cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityFlushAll(0);
  launch(30);
  cuptiActivityFlushAll(0);
  std::printf("%d kernels, %d others, %d foreign buffers\n", g_kernels, g_others, g_foreign);
  return 0;
}
