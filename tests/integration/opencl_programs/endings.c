// Programs that end, or go on, in unusual ways: endings PLATFORM CASE
#include "device.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static cl_kernel kernel;
static const size_t global = 64;

static cl_command_queue open_queue(cl_command_queue_properties flags) {
  cl_command_queue queue = clCreateCommandQueue(context, device, flags, &error);
  OK(error);
  return queue;
}

static void launch(cl_command_queue queue, const cl_event* after) {
  OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, after != NULL, after, NULL));
}

// Five launches wait for an event that nobody sets.
static void never(void) {
  cl_event event = clCreateUserEvent(context, &error);
  OK(error);
  cl_command_queue queue = open_queue(0);
  for (int i = 0; i < 5; ++i) launch(queue, &event);
  OK(clFlush(queue));
}

// A launch that cannot run, since the event that it waits for failed.
static void failed(void) {
  cl_event event = clCreateUserEvent(context, &error);
  OK(error);
  cl_command_queue queue = open_queue(0);
  launch(queue, &event);
  OK(clSetUserEventStatus(event, -5));
  clFinish(queue);
}

// Two chains of launches in a queue out of order: the first chain starts last.
static void out_of_order(void) {
  cl_event event = clCreateUserEvent(context, &error);
  OK(error);
  cl_command_queue queue = open_queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
  for (int i = 0; i < 200; ++i) launch(queue, &event);
  for (int i = 0; i < 200; ++i) launch(queue, NULL);
  OK(clFlush(queue));
  OK(clSetUserEventStatus(event, CL_COMPLETE));
  OK(clFinish(queue));
}

// Nothing ever waits: what has ended is recorded all the same.
static void no_wait(void) {
  cl_command_queue queue = open_queue(0);
  cl_event last;
  for (int i = 0; i < 2000; ++i) launch(queue, NULL);
  OK(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &global, NULL, 0, NULL, &last));
  OK(clFlush(queue));
  cl_int status = CL_QUEUED;
  while (status != CL_COMPLETE) {
    OK(clGetEventInfo(last, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), &status, NULL));
    usleep(1000);
  }
}

static void* work(void* shared) {
  cl_command_queue own = open_queue(0);
  cl_kernel mine = clCreateKernel(*(cl_program*)shared, "add_one", &error);
  OK(error);
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 256, NULL, &error);
  OK(clSetKernelArg(mine, 0, sizeof(buffer), &buffer));
  for (int i = 0; i < 500; ++i) {
    OK(clEnqueueNDRangeKernel(own, mine, 1, NULL, &global, NULL, 0, NULL, NULL));
    if (i % 100 == 0) OK(clFinish(own));
  }
  OK(clFinish(own));
  OK(clReleaseKernel(mine));
  OK(clReleaseMemObject(buffer));
  OK(clReleaseCommandQueue(own));
  return NULL;
}

// Four threads with a queue, a kernel and a buffer each.
static void threads(void) {
  cl_program program;
  OK(clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof(program), &program, NULL));
  pthread_t ids[4];
  for (int i = 0; i < 4; ++i) CHECK(pthread_create(&ids[i], NULL, work, &program) == 0);
  for (int i = 0; i < 4; ++i) CHECK(pthread_join(ids[i], NULL) == 0);
}

// A child that touches no OpenCL object ends by itself, with launches of its parent pending. (In a child that calls
// exit, Intel's runtime hangs without us too.)
static void forks(void) {
  cl_command_queue queue = open_queue(0);
  for (int i = 0; i < 10; ++i) launch(queue, NULL);
  const pid_t child = fork();
  if (child == 0) _exit(3);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  for (int i = 0; i < 10; ++i) launch(queue, NULL);
  OK(clFinish(queue));
}

static void at_thread_end(void* queue) {
  launch(queue, NULL);
  OK(clFinish(queue));
}

static void* short_work(void* queue) {
  pthread_key_t key;
  CHECK(pthread_key_create(&key, at_thread_end) == 0);
  launch(queue, NULL);
  CHECK(pthread_setspecific(key, queue) == 0);
  return NULL;
}

// Threads, one after the other, that launch once more while they end.
static void thread_ends(void) {
  cl_command_queue queue = open_queue(0);
  for (int i = 0; i < 20; ++i) {
    pthread_t id;
    CHECK(pthread_create(&id, NULL, short_work, queue) == 0);
    CHECK(pthread_join(id, NULL) == 0);
  }
}

static cl_command_queue late_queue;
static void at_exit(void) {
  launch(late_queue, NULL);
  OK(clFinish(late_queue));
}

// Launches from an atexit handler, after the recording has been told of the exit.
static void late(void) {
  late_queue = open_queue(0);
  launch(late_queue, NULL);
  OK(clFinish(late_queue));
  atexit(at_exit);
}

// As programs do that are in a hurry.
static void hurry(void) {
  cl_command_queue queue = open_queue(0);
  for (int i = 0; i < 10; ++i) launch(queue, NULL);
  OK(clFinish(queue));
  _exit(7);
}

int main(int count, char** arguments) {
  static const struct {
    const char* name;
    void (*run)(void);
  } cases[] = {{"never", never},     {"failed", failed}, {"out_of_order", out_of_order}, {"no_wait", no_wait},
               {"threads", threads}, {"thread_ends", thread_ends}, {"forks", forks},   {"late", late},                 {"hurry", hurry}};
  CHECK(count == 3);
  open_device(arguments[1]);
  kernel = add_one();
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 256, NULL, &error);
  OK(error);
  OK(clSetKernelArg(kernel, 0, sizeof(buffer), &buffer));
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
    if (strcmp(arguments[2], cases[i].name) == 0) cases[i].run();
  }
  printf("end\n");
  return 0;
}
