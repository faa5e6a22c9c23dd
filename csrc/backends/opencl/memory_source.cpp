#include "backends/opencl/memory_source.h"

#include <dlfcn.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "backends/opencl/dispatch.h"
#include "backends/opencl/normalize.h"
#include "backends/opencl/query.h"
#include "device/opencl/compiler_process.h"
#include "device/opencl/spirv/link.h"

namespace pasta::opencl {
namespace {

// Folder of the library that a function is in.
std::string folder_of(const void* function) {
  Dl_info info;
  if (function == nullptr || dladdr(function, &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

// "OpenCL C 3.0" -> 300; the compilers know these three.
uint32_t c_version(cl_device_id device) {
  constexpr std::string_view prefix = "OpenCL C ";
  std::string text = device_text(device, CL_DEVICE_OPENCL_C_VERSION);
  if (text.rfind(prefix, 0) != 0) return 120;
  const int version = version_number(("OpenCL " + text.substr(prefix.size())).c_str());
  return version >= 300 ? 300 : version >= 200 ? 200 : 120;
}

// Options of clBuildProgram that still mean something for SPIR-V (OpenCL 3.0, 5.8.6.3 and 5.8.6.4).
std::string options_for_spirv(const std::string& options) {
  constexpr std::string_view kept[] = {"-cl-single-precision-constant",
                                       "-cl-denorms-are-zero",
                                       "-cl-fp32-correctly-rounded-divide-sqrt",
                                       "-cl-opt-disable",
                                       "-cl-mad-enable",
                                       "-cl-no-signed-zeros",
                                       "-cl-unsafe-math-optimizations",
                                       "-cl-finite-math-only",
                                       "-cl-fast-relaxed-math",
                                       "-cl-uniform-work-group-size",
                                       "-cl-no-subgroup-ifp"};
  std::istringstream words(options);
  std::string result;
  for (std::string word; words >> word;) {
    if (std::find(std::begin(kept), std::end(kept), word) != std::end(kept)) result += word + ' ';
  }
  return result;
}

// True when the module says that it, or a part, was OpenCL C before 2.0 (OpSource, SPIR-V
// specification 3.52.2). Launches of such a program must divide into whole work-groups; the
// measured one is of version 2.0, where they need not.
bool needs_whole_groups(const std::vector<uint32_t>& words) {
  constexpr size_t kHeaderWords = 5;
  constexpr uint32_t kOpSource = 3, kOpenClC = 3, kVersion2 = 200000;
  for (size_t at = kHeaderWords; at + 2 < words.size();) {
    const uint32_t count = words[at] >> 16;
    if ((words[at] & 0xffff) == kOpSource && words[at + 1] == kOpenClC &&
        words[at + 2] < kVersion2) {
      return true;
    }
    if (count == 0) break;
    at += count;
  }
  return false;
}

constexpr const char* kWholeGroups = "-cl-uniform-work-group-size";

// The SPIR-V of one part; empty with `*why`.
std::vector<uint32_t> words_of(const ProgramPart& part, cl_device_id device, Unmeasured* why) {
  if (!part.il.empty()) return part.il;
  if (part.source.empty()) {
    *why = {"a program that is loaded as a binary cannot be measured",
            "let the program build its kernels from source, without a cache"};
    return {};
  }
  memory::CompileRequest request;
  request.source = part.source;
  request.options = part.options;
  request.headers = part.headers;
  request.device_extensions = device_text(device, CL_DEVICE_EXTENSIONS);
  request.device_c_version = c_version(device);
  const std::string executable =
      folder_of(reinterpret_cast<const void*>(&words_of)) + "/pasta-opencl-compiler";
  // The driver's wheel may bring the compiler along. An OpenCL object begins with the address of
  // its driver's table of functions (cl_khr_icd).
  memory::CompileResult compiled =
      memory::compile_apart(executable, request, {folder_of(**reinterpret_cast<void***>(device))});
  if (!compiled.has_compiler) {
    *why = {compiled.log,
            "pip install 'pasta[cpu]', or apt install libopencl-clang14, or set "
            "PASTA_OPENCL_CLANG to the library"};
  } else if (compiled.words.empty()) {
    why->cause =
        "the program could not be compiled to SPIR-V: " + compiled.log.substr(0, kLogBytes);
  }
  return compiled.words;
}

std::string source_of(cl_program program) {
  const auto info = next(program).clGetProgramInfo;
  const std::vector<char> text = query_list<char>(info, program, CL_PROGRAM_SOURCE);
  return {text.begin(), std::find(text.begin(), text.end(), '\0')};
}

}  // namespace

std::string device_text(cl_device_id device, cl_device_info which) {
  return query_text(next(device).clGetDeviceInfo, device, which);
}

std::string build_text(cl_program program, cl_device_id device, cl_program_build_info which) {
  const auto read = [device](cl_program object, cl_program_build_info asked, size_t bytes,
                             void* value, size_t* size) {
    return next(object).clGetProgramBuildInfo(object, device, asked, bytes, value, size);
  };
  return query_text(read, program, which);
}

std::shared_ptr<ProgramPart> part_of(cl_program program, const char* options, cl_uint header_count,
                                     const cl_program* headers, const char** header_names) {
  auto part = std::make_shared<ProgramPart>();
  const auto info = next(program).clGetProgramInfo;
  part->il = query_list<uint32_t>(info, program, CL_PROGRAM_IL);
  if (part->il.empty()) part->source = source_of(program);
  part->options = options != nullptr ? options : "";
  for (cl_uint i = 0; i < header_count && headers != nullptr && header_names != nullptr; ++i) {
    part->headers.emplace_back(header_names[i], source_of(headers[i]));
  }
  return part;
}

std::optional<ProgramSpirv> spirv_of(cl_program program, cl_device_id device,
                                     const ProgramParts& parts, Unmeasured* why) {
  ProgramSpirv result;
  const std::string options = build_text(program, device, CL_PROGRAM_BUILD_OPTIONS);
  if (parts.empty()) {
    result.words = words_of(*part_of(program, options.c_str(), 0, nullptr, nullptr), device, why);
    if (result.words.empty()) return std::nullopt;
    result.options = options_for_spirv(options);
    if (needs_whole_groups(result.words)) result.options += kWholeGroups;
    return result;
  }
  try {
    std::vector<spirv::Module> modules;
    for (const auto& part : parts) {
      if (part == nullptr) {
        why->cause = "a linked program has a part that was not seen being compiled";
        return std::nullopt;
      }
      if (part->has_constants) {
        why->cause = "a linked program has specialization constants";
        return std::nullopt;
      }
      const std::string kept = options_for_spirv(part->options);
      if (modules.empty()) result.options = kept;
      if (kept != result.options) {
        why->cause = "the parts of a linked program have different options for their arithmetic";
        return std::nullopt;
      }
      const std::vector<uint32_t> words = words_of(*part, device, why);
      if (words.empty()) return std::nullopt;
      modules.push_back(spirv::Module::parse(words));
    }
    result.words = spirv::link(std::move(modules)).write();
  } catch (const std::exception& reason) {
    why->cause = std::string("the program cannot be linked a second time: ") + reason.what();
    return std::nullopt;
  }
  result.options += options_for_spirv(options);
  if (needs_whole_groups(result.words)) result.options += kWholeGroups;
  return result;
}

}  // namespace pasta::opencl
