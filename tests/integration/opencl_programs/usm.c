// Intel's unified shared memory, whose functions are looked up by name: usm PLATFORM
#include "device.h"

#define LOOK_UP(name) \
  ((name##_fn)clGetExtensionFunctionAddressForPlatform(platform, #name))

int main(int count, char** arguments) {
  CHECK(count == 2);
  open_device(arguments[1]);
  const clHostMemAllocINTEL_fn host_alloc = LOOK_UP(clHostMemAllocINTEL);
  if (host_alloc == NULL) {
    printf("none\n");
    return 0;
  }
  const clDeviceMemAllocINTEL_fn device_alloc = LOOK_UP(clDeviceMemAllocINTEL);
  const clSharedMemAllocINTEL_fn shared_alloc = LOOK_UP(clSharedMemAllocINTEL);
  const clMemFreeINTEL_fn mem_free = LOOK_UP(clMemFreeINTEL);
  const clMemBlockingFreeINTEL_fn blocking_free = LOOK_UP(clMemBlockingFreeINTEL);
  const clEnqueueMemcpyINTEL_fn copy = LOOK_UP(clEnqueueMemcpyINTEL);
  const clEnqueueMemFillINTEL_fn fill = LOOK_UP(clEnqueueMemFillINTEL);
  const clEnqueueMigrateMemINTEL_fn migrate = LOOK_UP(clEnqueueMigrateMemINTEL);
  CHECK(clGetExtensionFunctionAddressForPlatform(platform, "clNoSuchFunctionINTEL") == NULL);

  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
  OK(error);
  char* on_host = host_alloc(context, NULL, 1000, 0, &error);
  OK(error);
  char* on_device = device_alloc(context, device, NULL, 2000, 0, NULL);
  CHECK(on_device != NULL);
  char* shared = shared_alloc(context, device, NULL, 3000, 0, &error);
  OK(error);
  static char own[3000];
  const long pattern = 0x0102030405060708;
  OK(copy(queue, CL_TRUE, on_device, own, 1001, 0, NULL, NULL));
  OK(copy(queue, CL_FALSE, on_device, on_host + 10, 902, 0, NULL, NULL));
  OK(copy(queue, CL_TRUE, own, shared, 1003, 0, NULL, NULL));
  OK(fill(queue, shared, &pattern, 8, 800, 0, NULL, NULL));
  // Intel's CPU runtime has the function and refuses it.
  const cl_int migrated = migrate(queue, shared, 1005, 0, 0, NULL, NULL);
  OK(clFinish(queue));
  printf("%p %p %p %d\n", (void*)on_host, (void*)on_device, (void*)shared, migrated);
  OK(mem_free(context, on_host));
  OK(mem_free(context, on_device));
  OK(blocking_free(context, shared));
  return 0;
}
