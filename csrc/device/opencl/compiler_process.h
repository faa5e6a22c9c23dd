// The OpenCL C compiler in a process of its own. The libraries end the process that calls them, or
// crash it, over programs that they do not like; and they leave a lot of memory behind.
//
//   program ── request ──▶ pasta-opencl-compiler ── FrontEnd
//           ◀── result ──
//
// The process is no child of the program: no SIGCHLD, nothing for wait() to find, no file of the
// program's. It is over when the result is there.
#pragma once

#include <string>
#include <vector>

#include "device/opencl/frontend.h"

namespace pasta::memory {

// Runs `executable`, which looks for the library as FrontEnd::find() does. Never throws; waits no
// longer than a minute.
CompileResult compile_apart(const std::string& executable, const CompileRequest& request,
                            const std::vector<std::string>& directories);

// The other side: reads one request from `socket` and answers it. Returns the exit status.
int serve_compiler(int socket);

}  // namespace pasta::memory
