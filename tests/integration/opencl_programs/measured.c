// Launches in unusual circumstances, for --memory: measured PLATFORM CASE
#include <pthread.h>

#include "device.h"

#define N 4096
#define THREADS 4
#define LAUNCHES 1000

static const char* const kSource =
    "kernel void increment(global int *a) { a[get_global_id(0)] += 1; }\n"
    "kernel void follow(global ulong *pointers) {\n"
    "  global int *to = (global int *)pointers[0];\n"
    "  to[get_global_id(0)] = 7;\n"
    "}\n";

static const size_t kItems = N;

static cl_kernel make_kernel(cl_program program, const char* name) {
  cl_kernel kernel = clCreateKernel(program, name, &error);
  OK(error);
  return kernel;
}

static cl_mem make_buffer(void) {
  static int zeros[N];
  cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(zeros), zeros, &error);
  OK(error);
  return buffer;
}

static cl_command_queue make_queue(cl_command_queue_properties properties) {
  cl_command_queue queue = clCreateCommandQueue(context, device, properties, &error);
  OK(error);
  return queue;
}

static void launch(cl_command_queue queue, cl_kernel kernel, const cl_event* after, cl_event* event) {
  OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &kItems, NULL, after != NULL, after, event));
}

static int first_of(cl_command_queue queue, cl_mem buffer) {
  int values[N];
  OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(values), values, 0, NULL, NULL));
  for (int i = 1; i < N; ++i) CHECK(values[i] == values[0]);
  return values[0];
}

// A user event holds all launches back until the program has enqueued the last one.
static int held(cl_program program) {
  cl_command_queue queue = make_queue(0);
  cl_kernel kernel = make_kernel(program, "increment");
  cl_mem buffer = make_buffer();
  OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
  cl_event start = clCreateUserEvent(context, &error);
  OK(error);
  for (int i = 0; i < LAUNCHES; ++i) launch(queue, kernel, i == 0 ? &start : NULL, NULL);
  OK(clSetUserEventStatus(start, CL_COMPLETE));
  return first_of(queue, buffer);
}

// Each launch waits for the one before it, by its event only.
static int out_of_order(cl_program program) {
  cl_command_queue queue = make_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  cl_kernel kernel = make_kernel(program, "increment");
  cl_mem buffer = make_buffer();
  OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
  cl_event last = NULL;
  for (int i = 0; i < LAUNCHES; ++i) {
    cl_event event;
    launch(queue, kernel, last == NULL ? NULL : &last, &event);
    if (last != NULL) OK(clReleaseEvent(last));
    last = event;
  }
  OK(clWaitForEvents(1, &last));
  OK(clReleaseEvent(last));
  return first_of(queue, buffer);
}

// More queues than there are buffers for results, one after the other.
static int many_queues(cl_program program) {
  cl_kernel kernel = make_kernel(program, "increment");
  cl_mem buffer = make_buffer();
  OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
  int value = 0;
  for (int i = 0; i < 20; ++i) {
    cl_command_queue queue = make_queue(0);
    launch(queue, kernel, NULL, NULL);
    value = first_of(queue, buffer);
    OK(clReleaseCommandQueue(queue));
  }
  return value;
}

// Programs and kernels that come and go, and take everything of theirs along.
static int come_and_go(cl_program program) {
  (void)program;
  cl_uint before, after;
  cl_command_queue queue = make_queue(0);
  cl_mem buffer = make_buffer();
  for (int i = 0; i < 10; ++i) {
    if (i == 1) OK(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(before), &before, NULL));
    cl_program own = build(kSource);
    cl_kernel kernel = make_kernel(own, "increment");
    OK(clReleaseProgram(own));
    OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
    launch(queue, kernel, NULL, NULL);
    OK(clFinish(queue));
    OK(clReleaseKernel(kernel));
  }
  OK(clGetContextInfo(context, CL_CONTEXT_REFERENCE_COUNT, sizeof(after), &after, NULL));
  CHECK(before == after);
  return first_of(queue, buffer);
}

// Every launch has a buffer of another size.
static int many_buffers(cl_program program) {
  cl_command_queue queue = make_queue(0);
  cl_kernel kernel = make_kernel(program, "increment");
  for (int i = 0; i < LAUNCHES; ++i) {
    cl_mem buffer = clCreateBuffer(context, 0, (N + i) * sizeof(int), NULL, &error);
    OK(error);
    OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
    launch(queue, kernel, NULL, NULL);
    if (i % 10 == 0) OK(clFinish(queue));
    OK(clReleaseMemObject(buffer));
  }
  OK(clFinish(queue));
  return LAUNCHES;
}

static cl_program g_program;
static cl_kernel g_shared_kernel;  // its arguments are set before the threads start
static cl_command_queue g_queue;

static void* work(void* result) {
  cl_kernel kernel = make_kernel(g_program, "increment");
  cl_mem buffer = make_buffer();
  OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
  for (int i = 0; i < LAUNCHES; ++i) {
    launch(g_queue, kernel, NULL, NULL);
    launch(g_queue, g_shared_kernel, NULL, NULL);
  }
  *(int*)result = first_of(g_queue, buffer);
  return NULL;
}

// Threads with kernels of their own, and one kernel that all of them launch, in one queue.
static int threads(cl_program program) {
  g_program = program;
  g_queue = make_queue(0);
  g_shared_kernel = make_kernel(program, "increment");
  cl_mem buffer = make_buffer();
  OK(clSetKernelArg(g_shared_kernel, 0, sizeof(buffer), &buffer));
  pthread_t all[THREADS];
  int results[THREADS];
  for (int i = 0; i < THREADS; ++i) CHECK(pthread_create(&all[i], NULL, work, &results[i]) == 0);
  for (int i = 0; i < THREADS; ++i) {
    CHECK(pthread_join(all[i], NULL) == 0);
    CHECK(results[i] == LAUNCHES);
  }
  return first_of(g_queue, buffer);
}

// A pointer to unified shared memory as an argument, by the extension's own function; and one that
// is found in memory.
static int usm(cl_program program) {
  const clSharedMemAllocINTEL_fn allocate = (clSharedMemAllocINTEL_fn)
      clGetExtensionFunctionAddressForPlatform(platform, "clSharedMemAllocINTEL");
  const clSetKernelArgMemPointerINTEL_fn set_pointer = (clSetKernelArgMemPointerINTEL_fn)
      clGetExtensionFunctionAddressForPlatform(platform, "clSetKernelArgMemPointerINTEL");
  CHECK(allocate != NULL && set_pointer != NULL);
  cl_command_queue queue = make_queue(0);
  int* values = allocate(context, device, NULL, 2 * N * sizeof(int), 0, &error);
  OK(error);
  cl_ulong* pointers = allocate(context, device, NULL, sizeof(cl_ulong), 0, &error);
  OK(error);
  memset(values, 0, 2 * N * sizeof(int));
  pointers[0] = (cl_ulong)values;
  cl_kernel increment = make_kernel(program, "increment");
  OK(set_pointer(increment, 0, values + N));
  launch(queue, increment, NULL, NULL);
  cl_kernel follow = make_kernel(program, "follow");
  OK(set_pointer(follow, 0, pointers));
  const cl_bool indirect = CL_TRUE;
  OK(clSetKernelExecInfo(follow, CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL, sizeof(indirect), &indirect));
  launch(queue, follow, NULL, NULL);
  OK(clFinish(queue));
  CHECK(values[N] == 1 && values[2 * N - 1] == 1);
  return values[0] + values[N - 1];
}

// The argument by two functions in turn, the second one an extension's: the last one to set it counts.
static int by_extension(cl_program program, const char* name) {
  const clSharedMemAllocINTEL_fn allocate = (clSharedMemAllocINTEL_fn)
      clGetExtensionFunctionAddressForPlatform(platform, "clSharedMemAllocINTEL");
  const clSetKernelArgDevicePointerEXT_fn set_pointer =
      (clSetKernelArgDevicePointerEXT_fn)clGetExtensionFunctionAddressForPlatform(platform, name);
  CHECK(allocate != NULL && set_pointer != NULL);
  cl_command_queue queue = make_queue(0);
  cl_kernel kernel = make_kernel(program, "increment");
  cl_mem buffer = make_buffer();
  int* values = allocate(context, device, NULL, N * sizeof(int), 0, &error);
  OK(error);
  memset(values, 0, N * sizeof(int));
  OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
  launch(queue, kernel, NULL, NULL);
  OK(set_pointer(kernel, 0, (cl_mem_device_address_ext)values));
  launch(queue, kernel, NULL, NULL);
  launch(queue, kernel, NULL, NULL);
  OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
  launch(queue, kernel, NULL, NULL);
  OK(clFinish(queue));
  for (int i = 0; i < N; ++i) CHECK(values[i] == 2);
  return first_of(queue, buffer);
}
static int device_pointer(cl_program program) { return by_extension(program, "clSetKernelArgDevicePointerEXT"); }
static int unknown_setter(cl_program program) { return by_extension(program, "clSetKernelArgOfTheFutureEXT"); }

int main(int count, char** arguments) {
  static const struct {
    const char* name;
    int (*run)(cl_program);
  } cases[] = {{"held", held},       {"out_of_order", out_of_order}, {"many_queues", many_queues},
               {"threads", threads}, {"come_and_go", come_and_go},   {"usm", usm},
               {"many_buffers", many_buffers},
               {"device_pointer", device_pointer}, {"unknown_setter", unknown_setter}};
  CHECK(count == 3);
  open_device(arguments[1]);
  cl_program program = build(kSource);
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    if (strcmp(arguments[2], cases[i].name) == 0) printf("%d\n", cases[i].run(program));
  }
  return 0;
}
