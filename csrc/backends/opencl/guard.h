// No exception may leave a function that the program or the driver calls.
#pragma once

#include "session/session.h"

namespace pasta::opencl {

template <class Work>
void guard(Work&& work) noexcept {
  try {
    work();
  } catch (...) {
    report_loss("opencl", "", kNullI64, "out of memory in the profiler");
  }
}

}  // namespace pasta::opencl
