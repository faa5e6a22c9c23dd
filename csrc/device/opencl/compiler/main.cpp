// pasta-opencl-compiler: one request on standard input, its answer on the same socket.
#include <csignal>

#include "device/opencl/compiler_process.h"

int main() {
  // The program started us with all signals blocked, so that none reached its handlers.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  return pasta::memory::serve_compiler(0);
}
