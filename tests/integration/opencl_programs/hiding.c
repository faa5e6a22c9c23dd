// What a program sees of the profiling of its queues: hiding PLATFORM
#include "device.h"

// Prints what the queue says of itself, and what an event of it says of its times.
static void describe(const char* name, cl_command_queue queue) {
  cl_command_queue_properties flags = 0;
  OK(clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES, sizeof(flags), &flags, NULL));
  printf("%s: flags %llu", name, (unsigned long long)flags);
  if (version() >= 300) {
    cl_queue_properties list[16];
    size_t bytes = 99;
    const cl_int result = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, sizeof(list), list, &bytes);
    printf(" list %d", result);
    for (size_t i = 0; result == CL_SUCCESS && i < bytes / sizeof(list[0]); ++i) printf(" %llu", (unsigned long long)list[i]);
    const cl_int small = clGetCommandQueueInfo(queue, CL_QUEUE_PROPERTIES_ARRAY, sizeof(list[0]), list, NULL);
    printf(" small %d", small);
  }
  int value = 0;
  cl_event event;
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 4, NULL, &error);
  OK(error);
  OK(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, 4, &value, 0, NULL, &event));
  OK(clFinish(queue));
  cl_ulong start = 0;
  size_t bytes = 0;
  const cl_int result = clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof(start), &start, &bytes);
  printf(" times %d %d\n", result, start != 0);
  OK(clReleaseEvent(event));
  OK(clReleaseMemObject(buffer));
  OK(clReleaseCommandQueue(queue));
}

int main(int count, char** arguments) {
  CHECK(count == 2);
  open_device(arguments[1]);
  const cl_command_queue_properties out_of_order = CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE;
  const cl_command_queue_properties profiling = CL_QUEUE_PROFILING_ENABLE;
  describe("plain", clCreateCommandQueue(context, device, 0, &error));
  describe("plain, no error code", clCreateCommandQueue(context, device, 0, NULL));
  describe("profiling", clCreateCommandQueue(context, device, profiling, &error));
  describe("out of order", clCreateCommandQueue(context, device, out_of_order, &error));
  if (version() >= 200) {
    const cl_queue_properties empty[] = {0};
    const cl_queue_properties flags[] = {CL_QUEUE_PROPERTIES, out_of_order, 0};
    const cl_queue_properties both[] = {CL_QUEUE_PROPERTIES, out_of_order | profiling, 0};
    describe("null list", clCreateCommandQueueWithProperties(context, device, NULL, &error));
    describe("empty list", clCreateCommandQueueWithProperties(context, device, empty, &error));
    describe("list", clCreateCommandQueueWithProperties(context, device, flags, &error));
    describe("list with profiling", clCreateCommandQueueWithProperties(context, device, both, NULL));
    const cl_queue_properties wrong[] = {CL_QUEUE_PROPERTIES, (cl_queue_properties)1 << 20, 0};
    cl_command_queue queue = clCreateCommandQueueWithProperties(context, device, wrong, &error);
    printf("wrong: %d %d\n", queue != NULL, error);
  }
  printf("no context: %d", clCreateCommandQueue(NULL, device, 0, &error) != NULL);
  printf(" %d\n", error);
  return 0;
}
