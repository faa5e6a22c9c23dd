// Launches of which some are measured: memory_sampling MODE. Which, and what is found, states test_gpu_sampling.py.
// Each mode checks its own results, which code that changes between launches must not alter.
#include <cstring>
#include <thread>
#include <vector>

#include "memory_check.h"
#include "memory_sampling.h"

// Of this module; other_increment (memory_sampling_other.cu) is of another.
__global__ void increment(float* values) { values[blockIdx.x * blockDim.x + threadIdx.x] += 1; }
__global__ void late(float* values) { values[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

__global__ void wait_for_the_host(volatile int* flag) {
  while (*flag == 0) {
  }
}

// Runs for long, and touches memory all the time.
__global__ void busy(volatile unsigned* count, unsigned times) {
  for (unsigned i = 0; i < times; ++i) *count = *count + 1;
}

// `kN` floats that must have been incremented so often in the end.
class Values {
 public:
  Values() {
    CHECK(cudaMalloc(&memory_, kN * sizeof(float)));
    CHECK(cudaMemset(memory_, 0, kN * sizeof(float)));
    CHECK(cudaDeviceSynchronize());
  }
  void launch(void (*kernel)(float*), int times, cudaStream_t stream = nullptr) {
    for (int i = 0; i < times; ++i) kernel<<<kN / 256, 256, 0, stream>>>(memory_);
    increments_ += times;
  }
  void add(int increments) { increments_ += increments; }
  void check() {
    std::vector<float> found(kN);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(found.data(), memory_, kN * sizeof(float), cudaMemcpyDeviceToHost));
    for (const float value : found) {
      if (value == static_cast<float>(increments_)) continue;
      std::fprintf(stderr, "%f instead of %d\n", value, increments_);
      std::exit(1);
    }
  }

 private:
  float* memory_ = nullptr;
  int increments_ = 0;
};

void launch_cycles(cudaStream_t stream) {
  Values values;
  values.launch(increment, 3000, stream);
  values.launch(late, 1, stream);
  values.launch(increment, 2000, stream);
  values.check();
}

void cycles() { launch_cycles(nullptr); }

void cycles_in_a_stream() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  launch_cycles(stream);
}

void two_modules() {
  Values values;
  for (int i = 0; i < 100; ++i) values.launch(increment, 1), values.launch(other_increment, 1);
  values.check();
}

// Ten increments, while at least at first a kernel runs in a created stream.
void beside_a_kernel() {
  constexpr unsigned kTimes = 400'000;
  Values values;
  unsigned* count = nullptr;
  CHECK(cudaMalloc(&count, sizeof(*count)));
  CHECK(cudaMemset(count, 0, sizeof(*count)));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  busy<<<1, 1, 0, stream>>>(count, kTimes);
  values.launch(increment, 10);
  values.check();
  unsigned found = 0;
  CHECK(cudaMemcpy(&found, count, sizeof(found), cudaMemcpyDeviceToHost));
  if (found != kTimes) std::exit(1);
}

// An increment while a kernel in another stream runs until the program goes on, and ten later ones. All are loaded
// before: that could wait for it too.
void behind_a_kernel() {
  Values values;
  volatile int* flag = nullptr;
  CHECK(cudaMallocHost(const_cast<int**>(&flag), sizeof(*flag)));
  *flag = 0;
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, increment));
  CHECK(cudaFuncGetAttributes(&attributes, wait_for_the_host));
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  wait_for_the_host<<<1, 1, 0, stream>>>(flag);
  values.launch(increment, 1);
  *flag = 1;
  CHECK(cudaStreamSynchronize(stream));
  values.launch(increment, 10);
  values.check();
}

// A graph of one node, 30 times, and launches of its module before it is made and after.
void launch_graph(int before) {
  Values values;
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, late));
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  values.launch(increment, before);
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  values.launch(late, 1, stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  CHECK(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 30; ++i) CHECK(cudaGraphLaunch(executable, stream));
  values.add(30 - 1);
  values.launch(increment, 2000);
  values.check();
}

void graph() { launch_graph(5); }
void graph_of_plain_code() { launch_graph(0); }

void launch_in_threads(bool own_streams) {
  std::vector<std::thread> workers;
  for (int t = 0; t < 4; ++t) {
    workers.emplace_back([own_streams] {
      Values values;
      cudaStream_t stream = nullptr;
      if (own_streams) CHECK(cudaStreamCreate(&stream));
      for (int i = 0; i < 15; ++i) {
        values.launch(increment, 100, stream);
        CHECK(cudaStreamSynchronize(stream));
      }
      values.check();
    });
  }
  for (std::thread& worker : workers) worker.join();
}

void threads() { launch_in_threads(false); }
void threads_in_streams() { launch_in_threads(true); }

int main(int argc, char** argv) {
  struct Mode {
    const char* name;
    void (*run)();
  };
  const Mode modes[] = {{"cycles", cycles},
                        {"cycles_in_a_stream", cycles_in_a_stream},
                        {"two_modules", two_modules},
                        {"beside", beside_a_kernel},
                        {"behind", behind_a_kernel},
                        {"graph", graph},
                        {"graph_of_plain_code", graph_of_plain_code},
                        {"threads", threads},
                        {"threads_in_streams", threads_in_streams}};
  for (const Mode& mode : modes) {
    if (argc < 2 || std::strcmp(argv[1], mode.name) != 0) continue;
    mode.run();
    CHECK(cudaGetLastError());
    return 0;
  }
  return 2;
}
