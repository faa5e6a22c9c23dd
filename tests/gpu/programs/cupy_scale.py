"""CuPy: 25 launches of a kernel of 64 blocks of 128 threads; 4 MiB up and down; prints the sum."""

import cupy
import numpy

scale = cupy.RawKernel(
    """
    extern "C" __global__ void scale(float* x, float factor) {
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (1 << 20); i += gridDim.x * blockDim.x) x[i] *= factor;
    }
    """,
    "scale",
)
x = cupy.asarray(numpy.ones(1 << 20, dtype=numpy.float32))
for _ in range(25):
    scale((64,), (128,), (x, numpy.float32(1)))
print(cupy.asnumpy(x).sum())
