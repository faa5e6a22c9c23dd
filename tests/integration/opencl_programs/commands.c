// Every kind of command once, each with a number of bytes of its own: commands PLATFORM
#include "device.h"

static int native_calls;
static void CL_CALLBACK native(void* argument) { ++**(int**)argument; }

static void buffers(cl_command_queue queue) {
  static char host[4096];
  const size_t a[3] = {0, 0, 0}, rectangle[3] = {32, 3, 2};
  cl_mem one = clCreateBuffer(context, CL_MEM_READ_WRITE, 4096, NULL, &error);
  OK(error);
  cl_mem two = clCreateBuffer(context, CL_MEM_READ_WRITE, 2048, NULL, &error);
  OK(error);
  OK(clEnqueueWriteBuffer(queue, one, CL_FALSE, 0, 4096, host, 0, NULL, NULL));
  OK(clEnqueueReadBuffer(queue, one, CL_TRUE, 8, 1001, host, 0, NULL, NULL));
  OK(clEnqueueCopyBuffer(queue, one, two, 4, 0, 1002, 0, NULL, NULL));
  OK(clEnqueueWriteBufferRect(queue, one, CL_TRUE, a, a, rectangle, 64, 256, 40, 160, host, 0, NULL, NULL));
  OK(clEnqueueReadBufferRect(queue, one, CL_TRUE, a, a, rectangle, 64, 256, 40, 160, host, 0, NULL, NULL));
  OK(clEnqueueCopyBufferRect(queue, one, two, a, a, rectangle, 64, 256, 40, 160, 0, NULL, NULL));
  const int pattern = 0x01020304;
  OK(clEnqueueFillBuffer(queue, one, &pattern, 4, 0, 1004, 0, NULL, NULL));
  void* mapped = clEnqueueMapBuffer(queue, one, CL_TRUE, CL_MAP_READ, 0, 1005, 0, NULL, NULL, &error);
  OK(error);
  OK(clEnqueueUnmapMemObject(queue, one, mapped, 0, NULL, NULL));
  OK(clEnqueueMigrateMemObjects(queue, 1, &two, CL_MIGRATE_MEM_OBJECT_HOST, 0, NULL, NULL));
  OK(clFinish(queue));

  const cl_buffer_region region = {1024, 512};
  cl_mem part = clCreateSubBuffer(one, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
  OK(error);
  OK(clEnqueueReadBuffer(queue, part, CL_TRUE, 0, 500, host, 0, NULL, NULL));
  OK(clReleaseMemObject(part));

  static int memory[256];
  cl_mem own = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, sizeof(memory), memory, &error);
  OK(error);
  printf("own %p\n", (void*)memory);
  OK(clReleaseMemObject(own));
  OK(clReleaseMemObject(one));
  OK(clReleaseMemObject(two));
}

static void images(cl_command_queue queue) {
  cl_bool supported = CL_FALSE;
  OK(clGetDeviceInfo(device, CL_DEVICE_IMAGE_SUPPORT, sizeof(supported), &supported, NULL));
  if (!supported) return;
  static char host[64 * 32 * 4];
  const cl_image_format format = {CL_RGBA, CL_UNORM_INT8};
  const cl_image_desc shape = {.image_type = CL_MEM_OBJECT_IMAGE2D, .image_width = 64, .image_height = 32};
  cl_mem one = clCreateImage(context, CL_MEM_READ_WRITE, &format, &shape, NULL, &error);
  OK(error);
  cl_mem two = clCreateImage(context, CL_MEM_READ_WRITE, &format, &shape, NULL, &error);
  OK(error);
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 8192, NULL, &error);
  OK(error);
  const size_t origin[3] = {0, 0, 0};
  const size_t w[3] = {64, 32, 1}, r[3] = {63, 31, 1}, c[3] = {62, 30, 1}, tb[3] = {61, 29, 1}, tf[3] = {60, 28, 1},
               f[3] = {59, 27, 1}, m[3] = {58, 26, 1};
  OK(clEnqueueWriteImage(queue, one, CL_TRUE, origin, w, 0, 0, host, 0, NULL, NULL));
  OK(clEnqueueReadImage(queue, one, CL_TRUE, origin, r, 0, 0, host, 0, NULL, NULL));
  OK(clEnqueueCopyImage(queue, one, two, origin, origin, c, 0, NULL, NULL));
  OK(clEnqueueCopyImageToBuffer(queue, one, buffer, origin, tb, 0, 0, NULL, NULL));
  OK(clEnqueueCopyBufferToImage(queue, buffer, two, 0, origin, tf, 0, NULL, NULL));
  const float color[4] = {1, 0, 0, 1};
  OK(clEnqueueFillImage(queue, one, color, origin, f, 0, NULL, NULL));
  size_t pitch;
  void* mapped = clEnqueueMapImage(queue, one, CL_TRUE, CL_MAP_READ, origin, m, &pitch, NULL, 0, NULL, NULL, &error);
  OK(error);
  OK(clEnqueueUnmapMemObject(queue, one, mapped, 0, NULL, NULL));
  OK(clFinish(queue));
  OK(clReleaseMemObject(one));
  OK(clReleaseMemObject(two));
  OK(clReleaseMemObject(buffer));
  printf("images\n");
}

static void svm(cl_command_queue queue) {
  cl_device_svm_capabilities capabilities = 0;
  if (version() < 200) return;
  OK(clGetDeviceInfo(device, CL_DEVICE_SVM_CAPABILITIES, sizeof(capabilities), &capabilities, NULL));
  if (capabilities == 0) return;
  char* one = clSVMAlloc(context, CL_MEM_READ_WRITE, 3000, 0);
  char* two = clSVMAlloc(context, CL_MEM_READ_WRITE, 3001, 0);
  CHECK(one != NULL && two != NULL);
  static char host[3000];
  OK(clEnqueueSVMMemcpy(queue, CL_TRUE, one, host, 2001, 0, NULL, NULL));
  OK(clEnqueueSVMMemcpy(queue, CL_TRUE, host, one + 16, 2002, 0, NULL, NULL));
  OK(clEnqueueSVMMemcpy(queue, CL_FALSE, two, one, 2003, 0, NULL, NULL));
  const short pattern = 0x0102;
  OK(clEnqueueSVMMemFill(queue, one, &pattern, 2, 2004, 0, NULL, NULL));
  OK(clEnqueueSVMMap(queue, CL_TRUE, CL_MAP_READ, one, 2005, 0, NULL, NULL));
  OK(clEnqueueSVMUnmap(queue, one, 0, NULL, NULL));
  OK(clFinish(queue));
  clSVMFree(context, one);
  void* last[1] = {two};
  OK(clEnqueueSVMFree(queue, 1, last, NULL, NULL, 0, NULL, NULL));
  OK(clFinish(queue));
  printf("svm %p %p\n", (void*)one, (void*)two);
}

static void launches(cl_command_queue queue) {
  cl_program program = build(
      "kernel void plain(global int *a) { a[get_global_id(0)] = 1; }\n"
      "kernel __attribute__((reqd_work_group_size(8, 4, 1))) void fixed(global int *a) {\n"
      "  local int tile[32];\n"
      "  tile[get_local_id(0)] = a[0];\n"
      "  barrier(CLK_LOCAL_MEM_FENCE);\n"
      "  a[get_global_id(0)] = tile[0];\n"
      "}\n");
  cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, 65536, NULL, &error);
  OK(error);
  cl_kernel plain = clCreateKernel(program, "plain", &error);
  OK(error);
  cl_kernel fixed = clCreateKernel(program, "fixed", &error);
  OK(error);
  OK(clSetKernelArg(plain, 0, sizeof(buffer), &buffer));
  OK(clSetKernelArg(fixed, 0, sizeof(buffer), &buffer));
  const size_t offset[3] = {8, 0, 0}, global[3] = {128, 6, 4}, local[3] = {32, 3, 2}, two_d[2] = {16, 12};
  const size_t none[3] = {0, 0, 0};
  OK(clEnqueueNDRangeKernel(queue, plain, 3, offset, global, local, 0, NULL, NULL));
  OK(clEnqueueNDRangeKernel(queue, plain, 1, NULL, global, NULL, 0, NULL, NULL));
  // PoCL 3.0 refuses this one; a driver may not tell the required size.
  size_t required[3] = {0, 0, 0};
  OK(clGetKernelWorkGroupInfo(fixed, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(required), required, NULL));
  if (clEnqueueNDRangeKernel(queue, fixed, 2, NULL, two_d, NULL, 0, NULL, NULL) == CL_SUCCESS) {
    printf("fixed %zu\n", required[0]);
  }
  OK(clEnqueueTask(queue, plain, 0, NULL, NULL));
  CHECK(clEnqueueNDRangeKernel(queue, plain, 4, NULL, global, none, 0, NULL, NULL) != CL_SUCCESS);
  cl_device_exec_capabilities execution = 0;
  OK(clGetDeviceInfo(device, CL_DEVICE_EXECUTION_CAPABILITIES, sizeof(execution), &execution, NULL));
  if (execution & CL_EXEC_NATIVE_KERNEL) {
    int* argument = &native_calls;
    OK(clEnqueueNativeKernel(queue, native, &argument, sizeof(argument), 0, NULL, NULL, 0, NULL, NULL));
    OK(clFinish(queue));
    CHECK(native_calls == 1);
    printf("native\n");
  }
  OK(clFinish(queue));
  OK(clReleaseMemObject(buffer));
}

int main(int count, char** arguments) {
  CHECK(count == 2);
  open_device(arguments[1]);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
  OK(error);
  buffers(queue);
  images(queue);
  svm(queue);
  launches(queue);
  OK(clReleaseCommandQueue(queue));
  OK(clReleaseContext(context));
  return 0;
}
