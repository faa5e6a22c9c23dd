// A driver in front of another one (PASTA_TEST_DRIVER: its library), with other abilities. PASTA_TEST_SHIM lists them:
//
//   device_pointer   clSetKernelArgDevicePointerEXT, for addresses of unified shared memory
//   unknown_setter   clSetKernelArgOfTheFutureEXT, the same function under a name that nobody knows
//   no_il            takes no SPIR-V
//   little_memory    no buffer of more than PASTA_TEST_MOST_BYTES, unless it is filled from the host's memory
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// Entries of a driver's table of functions (cl_khr_icd), at which all its objects point.
enum { kPlatformInfo = 1, kDeviceInfo = 3, kCreateBuffer = 14, kFindFunction = 107, kEntries = 108 };
static void* original[kEntries];  // the driver's own
#define ORIGINAL(name, entry) ((__typeof__(&name))original[entry])

typedef void*(CL_API_CALL* find_fn)(const char*);
typedef cl_int(CL_API_CALL* get_platforms_fn)(cl_uint, cl_platform_id*, cl_uint*);
static clSetKernelArgMemPointerINTEL_fn set_usm_pointer;

static int can(const char* ability) { return strstr(getenv("PASTA_TEST_SHIM"), ability) != NULL; }

static cl_int CL_API_CALL set_device_pointer(cl_kernel kernel, cl_uint index, cl_mem_device_address_ext address) {
  return set_usm_pointer(kernel, index, (const void*)(uintptr_t)address);
}

static void* CL_API_CALL find_function(cl_platform_id platform, const char* name) {
  const __typeof__(&find_function) find = (__typeof__(&find_function))original[kFindFunction];
  set_usm_pointer = (clSetKernelArgMemPointerINTEL_fn)find(platform, "clSetKernelArgMemPointerINTEL");
  if (strcmp(name, "clSetKernelArgDevicePointerEXT") == 0 && can("device_pointer")) return (void*)set_device_pointer;
  if (strcmp(name, "clSetKernelArgOfTheFutureEXT") == 0 && can("unknown_setter")) return (void*)set_device_pointer;
  return find(platform, name);
}

static cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info which, size_t bytes, void* value,
                                      size_t* needed) {
  if (which != CL_DEVICE_IL_VERSION || !can("no_il"))
    return ORIGINAL(clGetDeviceInfo, kDeviceInfo)(device, which, bytes, value, needed);
  if (value != NULL && bytes > 0) *(char*)value = 0;
  if (needed != NULL) *needed = 1;
  return CL_SUCCESS;
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t bytes, void* host,
                                        cl_int* error) {
  if (!can("little_memory") || host != NULL || bytes <= strtoull(getenv("PASTA_TEST_MOST_BYTES"), NULL, 10))
    return ORIGINAL(clCreateBuffer, kCreateBuffer)(context, flags, bytes, host, error);
  if (error != NULL) *error = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return NULL;
}

static void* driver_function(const char* name) {
  return dlsym(dlopen(getenv("PASTA_TEST_DRIVER"), RTLD_NOW | RTLD_LOCAL), name);
}

CL_API_ENTRY void* CL_API_CALL clGetExtensionFunctionAddress(const char* name);
CL_API_ENTRY cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint capacity, cl_platform_id* platforms, cl_uint* count);

CL_API_ENTRY cl_int CL_API_CALL clIcdGetPlatformIDsKHR(cl_uint capacity, cl_platform_id* platforms, cl_uint* count) {
  const find_fn find = (find_fn)driver_function("clGetExtensionFunctionAddress");
  const get_platforms_fn get_platforms = (get_platforms_fn)find("clIcdGetPlatformIDsKHR");
  const cl_int result = get_platforms(capacity, platforms, count);
  if (result != CL_SUCCESS || platforms == NULL || original[kPlatformInfo] != NULL) return result;
  void** const table = *(void***)platforms[0];
  memcpy(original, table, sizeof(original));
  const uintptr_t page = (uintptr_t)table & ~(uintptr_t)4095;
  if (mprotect((void*)page, (uintptr_t)(table + kEntries) - page, PROT_READ | PROT_WRITE) != 0) abort();
  table[kFindFunction] = (void*)find_function;
  table[kDeviceInfo] = (void*)device_info;
  table[kCreateBuffer] = (void*)create_buffer;
  return result;
}

CL_API_ENTRY void* CL_API_CALL clGetExtensionFunctionAddress(const char* name) {
  if (strcmp(name, "clIcdGetPlatformIDsKHR") == 0) return (void*)clIcdGetPlatformIDsKHR;
  return ((find_fn)driver_function("clGetExtensionFunctionAddress"))(name);
}

CL_API_ENTRY cl_int CL_API_CALL clGetPlatformInfo(cl_platform_id platform, cl_platform_info which, size_t bytes,
                                                  void* value, size_t* needed) {
  return ORIGINAL(clGetPlatformInfo, kPlatformInfo)(platform, which, bytes, value, needed);
}
