// The functions that launch.c uses, found with dlopen and dlsym.
#pragma once
#include <dlfcn.h>

#define FUNCTIONS(X) \
  X(clGetPlatformIDs) \
  X(clGetPlatformInfo) \
  X(clGetDeviceIDs) \
  X(clGetDeviceInfo) \
  X(clCreateContext) \
  X(clCreateProgramWithSource) \
  X(clBuildProgram) \
  X(clCreateKernel) \
  X(clCreateCommandQueue) \
  X(clCreateBuffer) \
  X(clSetKernelArg) \
  X(clEnqueueNDRangeKernel) \
  X(clEnqueueReadBuffer)

#define X(name) static __typeof__(&name) my_##name;
FUNCTIONS(X)
#undef X

__attribute__((constructor)) static void look_up(void) {
  void* library = dlopen(LOOKED_UP, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
#define X(name) CHECK((my_##name = (__typeof__(&name))dlsym(library, #name)) != NULL);
  FUNCTIONS(X)
#undef X
}

#define clGetPlatformIDs my_clGetPlatformIDs
#define clGetPlatformInfo my_clGetPlatformInfo
#define clGetDeviceIDs my_clGetDeviceIDs
#define clGetDeviceInfo my_clGetDeviceInfo
#define clCreateContext my_clCreateContext
#define clCreateProgramWithSource my_clCreateProgramWithSource
#define clBuildProgram my_clBuildProgram
#define clCreateKernel my_clCreateKernel
#define clCreateCommandQueue my_clCreateCommandQueue
#define clCreateBuffer my_clCreateBuffer
#define clSetKernelArg my_clSetKernelArg
#define clEnqueueNDRangeKernel my_clEnqueueNDRangeKernel
#define clEnqueueReadBuffer my_clEnqueueReadBuffer
