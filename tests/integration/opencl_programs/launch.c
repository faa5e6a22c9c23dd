// 100 launches, then the result: launch PLATFORM
#include "device.h"

int main(int count, char** arguments) {
  CHECK(count == 2);
  open_device(arguments[1]);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
  OK(error);
  cl_kernel kernel = add_one();
  int values[64] = {0};
  cl_mem buffer =
      clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof(values), values, &error);
  OK(error);
  OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
  const size_t global = 64, local = 64;
  for (int i = 0; i < 100; ++i) {
    OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL));
  }
  OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(values), values, 0, NULL, NULL));
  for (int i = 0; i < 64; ++i) CHECK(values[i] == 100);
  printf("100\n");
  return 0;
}
