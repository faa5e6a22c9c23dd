#include "device/opencl/frontend.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace pasta::memory {

// The binary interface of opencl-clang: a C function, and a result that is a C++ object with these
// virtual functions, in this order (the destructor is the library's own). Outside the unnamed
// namespace: there, the compiler would know that nothing implements it.
class ClangResult {
 public:
  virtual size_t ir_bytes() const = 0;
  virtual const void* ir() const = 0;
  virtual const char* ir_name() const = 0;
  virtual int ir_type() const = 0;
  virtual const char* log() const = 0;
  virtual void release() = 0;

 protected:
  ~ClangResult() = default;
};

namespace {

using CompileFunction = int (*)(const char* source, const char** headers, unsigned header_count,
                                const char** header_names, const char* precompiled,
                                size_t precompiled_bytes, const char* options,
                                const char* extra_options, const char* version,
                                ClangResult** result);

constexpr const char* kNames[] = {"libcommon_clang.so",    "libcommon_clang.so.2",
                                  "libopencl-clang.so.14", "libopencl-clang.so.15",
                                  "libopencl-clang.so.16", "libopencl-clang.so"};

constexpr const char* kNoExtensions = " -spirv-ext=-all";

// SPIR-V extensions stay off: devices reject modules that declare what they do not take, and the
// compilers declare more than they use. The extensions of the language that need no SPIR-V
// extension are switched on one by one.
std::string extra_options(const CompileRequest& request, const char* extensions) {
  std::string options = std::string("-emit-spirv") + extensions;
  std::istringstream names(request.device_extensions);
  std::string enabled;
  for (std::string name; names >> name;) {
    enabled += (enabled.empty() ? "+" : ",+") + name;
    // OpenCL C 3.0 has a feature of the same meaning, and compilers insist that the two agree.
    if (name == "cl_khr_fp64") enabled += ",+__opencl_c_fp64";
  }
  if (!enabled.empty()) options += " -cl-ext=" + enabled;
  return options;
}

// Lines for the sites; the language version of the device where the program asks for none, which is
// OpenCL C 1.2 in the standard's own terms, as the drivers have it.
std::string all_options(const CompileRequest& request) {
  std::string options = request.options;
  if (options.find("-cl-std=") == std::string::npos) options += " -cl-std=CL1.2";
  return options + " -gline-tables-only";
}

}  // namespace

std::unique_ptr<FrontEnd> FrontEnd::load(const std::string& path, std::string* why) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* error = dlerror();
    *why = error ? error : "cannot load " + path;
    return nullptr;
  }
  void* compile = dlsym(library, "Compile");
  if (!compile) {
    *why = path + " has no function Compile";
    dlclose(library);
    return nullptr;
  }
  return std::unique_ptr<FrontEnd>(new FrontEnd(compile, path));
}

std::unique_ptr<FrontEnd> FrontEnd::find(const std::vector<std::string>& directories,
                                         std::string* why) {
  if (const char* path = std::getenv("PASTA_OPENCL_CLANG"); path && *path) return load(path, why);
  for (const std::string& directory : directories) {
    for (const char* name : kNames) {
      if (auto found = load(directory + "/" + name, why)) return found;
    }
  }
  for (const char* name : kNames) {
    if (auto found = load(name, why)) return found;
  }
  *why = "no OpenCL C compiler library (libcommon_clang.so or libopencl-clang.so) was found";
  return nullptr;
}

CompileResult FrontEnd::compile(const CompileRequest& request) const {
  CompileResult result = run(request, kNoExtensions);
  // Older versions have no such option, and use no extensions.
  if (result.words.empty() && result.log.find("-spirv-ext") != std::string::npos) {
    result = run(request, "");
  }
  return result;
}

CompileResult FrontEnd::run(const CompileRequest& request, const char* extensions) const {
  CompileResult result;
  std::vector<const char*> texts, names;
  for (const auto& [name, text] : request.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  std::string options = all_options(request);
  std::string extra = extra_options(request, extensions);
  std::string version = std::to_string(request.device_c_version);
  ClangResult* output = nullptr;
  int status = reinterpret_cast<CompileFunction>(compile_)(
      request.source.c_str(), texts.data(), static_cast<unsigned>(texts.size()), names.data(),
      nullptr, 0, options.c_str(), extra.c_str(), version.c_str(), &output);
  if (!output) {
    result.log = "the OpenCL C compiler failed with status " + std::to_string(status);
    return result;
  }
  if (const char* log = output->log()) result.log = log;
  size_t bytes = output->ir_bytes();
  if (status == 0 && output->ir() && bytes % 4 == 0 && bytes > 0) {
    result.words.resize(bytes / 4);
    std::memcpy(result.words.data(), output->ir(), bytes);
  }
  output->release();
  if (result.words.empty() && result.log.empty()) {
    result.log = "the OpenCL C compiler failed with status " + std::to_string(status);
  }
  return result;
}

}  // namespace pasta::memory
