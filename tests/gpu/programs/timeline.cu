// Known numbers of everything: timeline MODE. The tests state what each mode must leave in a trace.
#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    const cudaError_t error = (call);                                                   \
    if (error != cudaSuccess) {                                                         \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));               \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (false)

__global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

__global__ void touch(float* a, size_t n) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i < n) a[i] += 1;
}

__global__ void fault(int* nothing) { *nothing = 1; }

constexpr int kN = 1 << 20;

struct Vectors {
  float *a, *b, *c;
  Vectors() {
    CHECK(cudaMalloc(&a, kN * sizeof(float)));
    CHECK(cudaMalloc(&b, kN * sizeof(float)));
    CHECK(cudaMalloc(&c, kN * sizeof(float)));
  }
  ~Vectors() {
    cudaFree(a);
    cudaFree(b);
    cudaFree(c);
  }
  void launch(cudaStream_t stream = nullptr) { add<<<kN / 256, 256, 0, stream>>>(a, b, c, kN); }
};

// 100 launches of 4096 x 256; 2 copies up and 1 down of 4 MiB each; 1 fill of 4 MiB.
int launches() {
  std::vector<float> host(kN, 1.0f);
  Vectors v;
  CHECK(cudaMemcpy(v.a, host.data(), kN * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(v.b, host.data(), kN * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(v.c, 0, kN * sizeof(float)));
  for (int i = 0; i < 100; ++i) v.launch();
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(host.data(), v.c, kN * sizeof(float), cudaMemcpyDeviceToHost));
  std::printf("%g\n", host[kN - 1]);
  return host[0] == 2.0f ? 0 : 1;
}

// A graph of 40 nodes, replayed 50 times: 2,000 kernels.
int graph() {
  Vectors v;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 40; ++i) v.launch(stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 50; ++i) CHECK(cudaGraphLaunch(executable, stream));
  CHECK(cudaStreamSynchronize(stream));
  return 0;
}

// 8 threads with a stream each, 200 launches a thread.
int threads() {
  Vectors v;
  std::vector<std::thread> workers;
  for (int t = 0; t < 8; ++t) {
    workers.emplace_back([&] {
      cudaStream_t stream;
      CHECK(cudaStreamCreate(&stream));
      for (int i = 0; i < 200; ++i) v.launch(stream);
      CHECK(cudaStreamSynchronize(stream));
    });
  }
  for (auto& worker : workers) worker.join();
  return 0;
}

// Two driver contexts on one device, 10 launches in each through the runtime.
int contexts() {
  cuInit(0);
  for (int c = 0; c < 2; ++c) {
    CUcontext context;
#if CUDA_VERSION >= 13000
    if (cuCtxCreate(&context, nullptr, 0, 0) != CUDA_SUCCESS) return 1;
#else
    if (cuCtxCreate(&context, 0, 0) != CUDA_SUCCESS) return 1;
#endif
    Vectors v;
    for (int i = 0; i < 10; ++i) v.launch();
    CHECK(cudaDeviceSynchronize());
  }
  return 0;
}

// 64 MiB of managed memory: written by the host, touched by the device, read by the host.
int managed() {
  const size_t n = 16 << 20;
  float* a;
  CHECK(cudaMallocManaged(&a, n * sizeof(float)));
  for (size_t i = 0; i < n; ++i) a[i] = 1;
  touch<<<n / 256, 256>>>(a, n);
  CHECK(cudaDeviceSynchronize());
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += a[i];
  std::printf("%g\n", sum);
  return sum == 2.0 * n ? 0 : 1;
}

// 50 launches, then _exit with status 9 without any synchronisation but one.
int leave() {
  Vectors v;
  for (int i = 0; i < 50; ++i) v.launch();
  CHECK(cudaDeviceSynchronize());
  _exit(9);
}

// Launches without end, until killed.
int forever() {
  Vectors v;
  for (int i = 0;; ++i) {
    v.launch();
    if (i % 1000 == 0) {
      CHECK(cudaDeviceSynchronize());
      std::printf("%d\n", i);
      std::fflush(stdout);
    }
  }
}

// 20 launches, then nothing, until killed.
int lingers() {
  Vectors v;
  for (int i = 0; i < 20; ++i) v.launch();
  CHECK(cudaDeviceSynchronize());
  std::printf("done\n");
  std::fflush(stdout);
  for (;;) pause();
}

// Forks before CUDA is used; the child launches 30, the parent 20.
int forks() {
  const pid_t child = fork();
  Vectors v;
  for (int i = 0; i < (child == 0 ? 30 : 20); ++i) v.launch();
  CHECK(cudaDeviceSynchronize());
  if (child == 0) return 0;
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// 25 good launches, then one that writes to address 0 and poisons the context.
int faults() {
  Vectors v;
  for (int i = 0; i < 25; ++i) v.launch();
  CHECK(cudaDeviceSynchronize());
  fault<<<1, 1>>>(nullptr);
  std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  return 3;
}

// 10 launches, 20 between cudaProfilerStart and cudaProfilerStop, 30 launches.
int profiled() {
  Vectors v;
  for (int i = 0; i < 60; ++i) {
    if (i == 10) CHECK(cudaProfilerStart());
    if (i == 30) CHECK(cudaProfilerStop());
    v.launch();
  }
  CHECK(cudaDeviceSynchronize());
  return 0;
}

// 3 objects of 1 MiB from the device's memory pool, given back to it.
int pool() {
  constexpr size_t kBytes = 1 << 20;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  float* objects[3];
  for (float*& object : objects) {
    CHECK(cudaMallocAsync(&object, kBytes, stream));
    touch<<<kBytes / 4 / 256, 256, 0, stream>>>(object, kBytes / 4);
  }
  for (float* object : objects) CHECK(cudaFreeAsync(object, stream));
  CHECK(cudaStreamSynchronize(stream));
  return 0;
}

// Two devices: 7 launches on the first, 9 on the second, 4 copies of 4 MiB from the first to the second.
int peers() {
  int devices = 0, access = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) return 77;
  CHECK(cudaDeviceCanAccessPeer(&access, 0, 1));
  if (access == 0) return 77;
  CHECK(cudaSetDevice(1));
  Vectors second;
  for (int i = 0; i < 9; ++i) second.launch();
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaSetDevice(0));
  CHECK(cudaDeviceEnablePeerAccess(1, 0));
  Vectors first;
  for (int i = 0; i < 7; ++i) first.launch();
  for (int i = 0; i < 4; ++i) CHECK(cudaMemcpyPeer(second.a, 1, first.a, 0, kN * sizeof(float)));
  CHECK(cudaDeviceSynchronize());
  return 0;
}

int main(int argc, char** argv) {
  struct Mode {
    const char* name;
    int (*run)();
  };
  const Mode modes[] = {{"launches", launches}, {"graph", graph},     {"threads", threads},
                        {"contexts", contexts}, {"managed", managed}, {"leave", leave},
                        {"forever", forever},   {"forks", forks},     {"faults", faults},
                        {"pool", pool},         {"peers", peers},     {"profiled", profiled},
                        {"lingers", lingers}};
  for (const Mode& mode : modes) {
    if (argc > 1 && std::strcmp(argv[1], mode.name) == 0) return mode.run();
  }
  return 2;
}
