// OpenCL C -> SPIR-V, with a compiler library that is already on the machine.
//
// Two libraries have the same C entry point, `Compile` (opencl-clang): libcommon_clang.so, inside
// the Intel OpenCL runtime's wheel, and Debian's libopencl-clang.so. They are loaded when first
// needed; nothing links them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pasta::memory {

struct CompileRequest {
  std::string source;
  std::string options;  // the program's own build options
  // Headers of clCompileProgram: name as in #include, text.
  std::vector<std::pair<std::string, std::string>> headers;
  // Extensions and features of OpenCL C that the device has, separated by spaces: what
  // CL_DEVICE_EXTENSIONS and CL_DEVICE_OPENCL_C_FEATURES list.
  std::string device_extensions;
  uint32_t device_c_version = 300;  // highest OpenCL C of the device: 120, 200, 300
};

struct CompileResult {
  std::vector<uint32_t> words;  // SPIR-V; empty: it failed
  std::string log;              // of the compiler, or why there is none
  bool has_compiler = true;     // false: there is no library
};

class FrontEnd {
 public:
  // Looks for the library: PASTA_OPENCL_CLANG (a path), then `directories` (such as that of the
  // device's own library), then the loader's search path. Null with `*why` set when there is none.
  static std::unique_ptr<FrontEnd> find(const std::vector<std::string>& directories,
                                        std::string* why);
  // Loads this library.
  static std::unique_ptr<FrontEnd> load(const std::string& path, std::string* why);

  // Thread-safe as far as the library is. Never throws.
  CompileResult compile(const CompileRequest& request) const;
  const std::string& path() const { return path_; }

 private:
  CompileResult run(const CompileRequest& request, const char* extensions) const;

  FrontEnd(void* compile, std::string path) : compile_(compile), path_(std::move(path)) {}
  void* compile_;
  std::string path_;
};

}  // namespace pasta::memory
