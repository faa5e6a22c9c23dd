/* program [launches N] [runtime N] [copies N] [graphs N] [waits N] [profiled N] [linger 1]: N launches of 4096 x 256 by the driver, N
   by the runtime, N copies of 4096 bytes up, N graph launches, N waits by the runtime, N launches between cuProfilerStart
   and cuProfilerStop; always one buffer of 1 MiB, one fill of 512 bytes and one wait by the driver. Errors are the program's
   own: told and exit 1. With linger it waits for a signal instead of ending. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(call)                                             \
  do {                                                          \
    const CUresult error = (call);                              \
    if (error != CUDA_SUCCESS) {                                \
      fprintf(stderr, "program: %s failed: %d\n", #call, error); \
      return 1;                                                 \
    }                                                           \
  } while (0)

typedef struct {
  unsigned x, y, z;
} dim3;
int cudaDeviceSynchronize(void);
int cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, void*);
CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

static int count(int argc, char** argv, const char* name) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], name) == 0) return atoi(argv[i + 1]);
  }
  return 0;
}

int main(int argc, char** argv) {
  static const char host[4096];
  CUdevice device;
  CUcontext context;
  CUdeviceptr memory;
  CHECK(cuInit(0));
  CHECK(cuDeviceGet(&device, 0));
  CHECK(cuCtxCreate(&context, NULL, 0, device));
  CHECK(cuMemAlloc(&memory, 1 << 20));
  CHECK(cuMemsetD8(memory, 7, 512));
  for (int i = 0; i < count(argc, argv, "copies"); ++i) CHECK(cuMemcpyHtoD(memory, host, sizeof(host)));
  for (int i = 0; i < count(argc, argv, "profiled"); ++i) {
    if (i == 0) cuProfilerStart();
    CHECK(cuLaunchKernel(NULL, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    if (i + 1 == count(argc, argv, "profiled")) cuProfilerStop();
  }
  for (int i = 0; i < count(argc, argv, "launches"); ++i) {
    CHECK(cuCtxGetDevice(&device)); /* what nobody wants to see */
    CHECK(cuLaunchKernel(NULL, 4096, 1, 1, 256, 1, 1, 0, NULL, NULL, NULL));
  }
  for (int i = 0; i < count(argc, argv, "runtime"); ++i) {
    cudaLaunchKernel(NULL, (dim3){4096, 1, 1}, (dim3){256, 1, 1}, NULL, 0, NULL);
  }
  for (int i = 0; i < count(argc, argv, "graphs"); ++i) CHECK(cuGraphLaunch(NULL, NULL));
  for (int i = 0; i < count(argc, argv, "waits"); ++i) cudaDeviceSynchronize();
  CHECK(cuCtxSynchronize());
  CHECK(cuMemFree(memory));
  printf("done\n");
  fflush(stdout);
  if (count(argc, argv, "linger")) pause();
  return 3;
}
