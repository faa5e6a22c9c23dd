// The handles of kernels for which fake_driver.cpp stands in: those of a library point to a KernelHandle, functions to
// the byte after its first.
#pragma once

#include <cstdint>

namespace fake {

struct KernelHandle {
  uintptr_t module;
  const char* name;  // null: the driver does not tell it
};

}  // namespace fake
