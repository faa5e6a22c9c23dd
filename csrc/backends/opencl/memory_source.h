// Programs as SPIR-V, whichever way the program made them.
//
//   clBuildProgram            source ── FrontEnd ──┐
//   clCreateProgramWithIL     SPIR-V ──────────────┼──▶ SPIR-V
//   clCompileProgram ... ──▶ parts, each like these ── link(): what clLinkProgram made
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/cl_api.h"

namespace pasta::opencl {

// Why something is not measured, and what to do about it.
struct Unmeasured {
  std::string cause, remedy;
};

// What clCompileProgram was given: the program may change it, or let go of it, before it links.
struct ProgramPart {
  std::string source;         // OpenCL C; empty for ...
  std::vector<uint32_t> il;   // SPIR-V; empty, too: a binary
  std::string options;        // those of clCompileProgram
  std::vector<std::pair<std::string, std::string>> headers;  // name, text
  bool has_constants = false;                                // specialization constants were set
};
// Of a program that is compiled or linked; empty for one that is built. Null: a part that was not
// seen being compiled.
using ProgramParts = std::vector<std::shared_ptr<const ProgramPart>>;

std::string device_text(cl_device_id device, cl_device_info which);
std::string build_text(cl_program program, cl_device_id device, cl_program_build_info which);
inline constexpr size_t kLogBytes = 300;  // of a compiler's log, in a row of `loss`

std::shared_ptr<ProgramPart> part_of(cl_program program, const char* options, cl_uint header_count,
                                     const cl_program* headers, const char** header_names);

struct ProgramSpirv {
  std::vector<uint32_t> words;
  std::string options;  // to build it with
};
// Of a program that is built, or linked from `parts`. Nothing, with `*why`, when there is none.
std::optional<ProgramSpirv> spirv_of(cl_program program, cl_device_id device,
                                     const ProgramParts& parts, Unmeasured* why);

}  // namespace pasta::opencl
