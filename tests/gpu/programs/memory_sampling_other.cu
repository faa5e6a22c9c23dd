// A kernel in a module of its own.
#include "memory_sampling.h"

__global__ void other_increment(float* values) { values[blockIdx.x * blockDim.x + threadIdx.x] += 1; }
