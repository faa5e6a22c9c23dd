// What the OpenCL test programs share: a device by the name of its platform, and a check that ends the program.
#pragma once
#define _GNU_SOURCE
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);      \
      exit(1);                                                             \
    }                                                                      \
  } while (0)
#define OK(call) CHECK((call) == CL_SUCCESS)

#ifdef LOOKED_UP  // in this library, by name, as programs do that carry no OpenCL loader: not linked with one
#include "looked_up.h"
#endif

static cl_platform_id platform;
static cl_device_id device;
static cl_context context;
static cl_int error;

static inline void open_device(const char* name) {
  cl_platform_id platforms[16];
  cl_uint count = 0;
  OK(clGetPlatformIDs(16, platforms, &count));
  for (cl_uint i = 0; i < count; ++i) {
    char text[256];
    OK(clGetPlatformInfo(platforms[i], CL_PLATFORM_NAME, sizeof(text), text, NULL));
    if (strstr(text, name) != NULL) platform = platforms[i];
  }
  CHECK(platform != NULL);
  OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
  context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
  OK(error);
}

static inline int version(void) {
  char text[128];
  int major = 0, minor = 0;
  OK(clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof(text), text, NULL));
  sscanf(text, "OpenCL %d.%d", &major, &minor);
  return 100 * major + 10 * minor;
}

static inline cl_program build(const char* source) {
  cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &error);
  OK(error);
  OK(clBuildProgram(program, 1, &device, "", NULL, NULL));
  return program;
}

static inline cl_kernel add_one(void) {
  cl_kernel kernel =
      clCreateKernel(build("kernel void add_one(global int *a) { a[get_global_id(0)] += 1; }"), "add_one", &error);
  OK(error);
  return kernel;
}
