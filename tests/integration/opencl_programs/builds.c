// Builds that succeed, fail, end later, and link: builds PLATFORM
#include "device.h"
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static int notified;

static void CL_CALLBACK notify(cl_program program, void* user_data) {
  (void)program;
  pthread_mutex_lock(&mutex);
  notified += *(int*)user_data;
  pthread_cond_signal(&ended);
  pthread_mutex_unlock(&mutex);
}

static void wait_for(int expected) {
  pthread_mutex_lock(&mutex);
  while (notified != expected) pthread_cond_wait(&ended, &mutex);
  pthread_mutex_unlock(&mutex);
}

static cl_program source(const char* text) {
  cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
  OK(error);
  return program;
}

int main(int count, char** arguments) {
  CHECK(count == 2);
  open_device(arguments[1]);
  int by = 3;
  OK(clBuildProgram(source("kernel void good(global int *a) { *a = VALUE; }"), 1, &device, "-DVALUE=7", NULL, NULL));
  const cl_int failure = clBuildProgram(source("kernel void bad( { }"), 0, NULL, NULL, NULL, NULL);
  CHECK(failure == CL_BUILD_PROGRAM_FAILURE);
  OK(clBuildProgram(source("kernel void later(global int *a) { *a = 1; }"), 1, &device, "", notify, &by));
  wait_for(3);

  cl_program part = source("int twice(int x) { return 2 * x; }");
  cl_program rest = source("int twice(int x); kernel void linked(global int *a) { *a = twice(*a); }");
  OK(clCompileProgram(part, 1, &device, "", 0, NULL, NULL, NULL, NULL));
  OK(clCompileProgram(rest, 1, &device, "", 0, NULL, NULL, NULL, NULL));
  cl_program parts[2] = {part, rest};
  cl_program whole = clLinkProgram(context, 1, &device, "", 2, parts, NULL, NULL, &error);
  OK(error);
  cl_kernel kernel = clCreateKernel(whole, "linked", &error);
  OK(error);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
  int value = 21;
  cl_mem buffer = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(value), &value, &error);
  OK(error);
  OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
  const size_t one = 1;
  OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL));
  OK(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof(value), &value, 0, NULL, NULL));
  printf("%d\n", value);
  return 0;
}
