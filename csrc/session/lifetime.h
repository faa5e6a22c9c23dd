// The end of a process image, for the doors that see it come: exit, _exit, exec.
#pragma once

#include <cstdint>

namespace pasta {

// Harvests the backends, writes the process's end and everything else. `status` is kNullI32 when unknown.
// Only the first call in a process image does anything; at most about four seconds.
void finish(const char* how, int32_t status);
// Writes what destructors and atexit handlers of the program still emitted. No vendor call.
void finish_last();
// The exec that finish("exec") announced did not happen.
void resume_after_failed_exec();

}  // namespace pasta
