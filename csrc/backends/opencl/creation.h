// A call that makes an object and returns it, with its error code in an argument that the program
// may leave out.
#pragma once

#include "backends/opencl/api_call.h"
#include "backends/opencl/cl_api.h"
#include "backends/opencl/guard.h"

namespace pasta::opencl {

class Creation {
 public:
  Creation(Entry entry, cl_int* error)
      : call_(entry), error_(error != nullptr ? error : &own_error_) {}

  // What to give the runtime for its error code.
  cl_int* error() { return error_; }
  const ApiCall& call() const { return call_; }

  // The call returned `object`, which is returned; `note()` takes note of it when there is one.
  template <class Object, class Note>
  Object finish(Object object, Note&& note) noexcept {
    call_.finish(*error_);
    if (object != nullptr) guard(note);
    return object;
  }

 private:
  ApiCall call_;
  cl_int own_error_ = CL_SUCCESS;
  cl_int* error_;
};

}  // namespace pasta::opencl
