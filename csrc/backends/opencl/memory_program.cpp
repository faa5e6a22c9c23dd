#include "backends/opencl/memory_program.h"

#include <dlfcn.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "backends/opencl/dispatch.h"
#include "backends/opencl/memory_options.h"
#include "backends/opencl/normalize.h"
#include "backends/opencl/query.h"
#include "device/opencl/frontend.h"
#include "device/opencl/instrument.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

constexpr size_t kLogBytes = 300;  // of a compiler's log, in a row of `loss`

std::string device_text(cl_device_id device, cl_device_info which) {
  return query_text(next(device).clGetDeviceInfo, device, which);
}

bool has_extension(const std::string& extensions, std::string_view name) {
  std::istringstream words(extensions);
  for (std::string word; words >> word;) {
    if (word == name) return true;
  }
  return false;
}

// The source that a program passes has no name: compilers number it, or say where they had it from.
bool is_unnamed(const std::string& file) {
  return file == "<stdin>" || file.find_first_not_of("0123456789") == std::string::npos;
}

// Newer compilers put a kernel's code into a function of this name, which the kernel calls.
std::string name_in_source(const std::string& function) {
  constexpr std::string_view prefix = "__clang_ocl_kern_imp_";
  return function.rfind(prefix, 0) == 0 ? function.substr(prefix.size()) : function;
}

// What all of the devices can do.
memory::Reducers reducers_for(const std::vector<cl_device_id>& devices) {
  const MemoryOptions& options = memory_options();
  memory::Reducers reducers;
  reducers.lines = options.objects || options.lines;
  reducers.trace = options.trace;
  for (cl_device_id device : devices) {
    const auto info = next(device).clGetDeviceInfo;
    const std::string extensions = device_text(device, CL_DEVICE_EXTENSIONS);
    const auto type = query<cl_device_type>(info, device, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU);
    reducers.many_cores = reducers.many_cores || (type & CL_DEVICE_TYPE_CPU) == 0;
    reducers.int64_atomics = reducers.int64_atomics &&
                             has_extension(extensions, "cl_khr_int64_base_atomics") &&
                             has_extension(extensions, "cl_khr_int64_extended_atomics");
    reducers.sub_groups =
        reducers.sub_groups && query<cl_uint>(info, device, CL_DEVICE_MAX_NUM_SUB_GROUPS, 0) > 0;
  }
  return reducers;
}

// Folder of the device's driver, whose wheel may bring the compiler along. An OpenCL object begins
// with the address of its driver's table of functions (cl_khr_icd).
std::string driver_folder(cl_device_id device) {
  void* const function = **reinterpret_cast<void***>(device);
  Dl_info info;
  if (function == nullptr || dladdr(function, &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

// The compiler of this process; null with `*why`.
const memory::FrontEnd* front_end(cl_device_id device, std::string* why) {
  static std::mutex mutex;
  static const memory::FrontEnd* found = nullptr;
  std::lock_guard lock(mutex);
  if (found == nullptr) found = memory::FrontEnd::find({driver_folder(device)}, why).release();
  return found;
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

// True when the module says that it was OpenCL C before 2.0 (OpSource, SPIR-V
// specification 3.52.2). Launches of such a program must divide into whole work-groups; the
// measured one is of version 2.0, where they need not.
bool needs_whole_groups(const std::vector<uint32_t>& words) {
  constexpr size_t kHeaderWords = 5;
  constexpr uint32_t kOpSource = 3, kOpenClC = 3, kVersion2 = 200000;
  for (size_t at = kHeaderWords; at + 2 < words.size();) {
    const uint32_t count = words[at] >> 16;
    if ((words[at] & 0xffff) == kOpSource && words[at + 1] == kOpenClC)
      return words[at + 2] < kVersion2;
    if (count == 0) break;
    at += count;
  }
  return false;
}

std::string build_text(cl_program program, cl_device_id device, cl_program_build_info which) {
  const auto read = [device](cl_program object, cl_program_build_info asked, size_t bytes,
                             void* value, size_t* size) {
    return next(object).clGetProgramBuildInfo(object, device, asked, bytes, value, size);
  };
  return query_text(read, program, which);
}

}  // namespace

MeasuredFunction::MeasuredFunction(memory::KernelPlan plan) : plan_(std::move(plan)) {
  for (size_t i = 0; i < plan_.sites.size(); ++i) site_ids_.push_back(next_id());
}

bool MeasuredFunction::samples(const std::array<size_t, 3>& global) {
  const MemoryOptions& options = memory_options();
  if (options.sample_first == INT64_MAX) return true;
  std::lock_guard lock(mutex_);
  const int64_t launch = launches_[global]++;
  return launch < options.sample_first ||
         (launch - options.sample_first + 1) % options.sample_every == 0;
}

void MeasuredFunction::emit_lines() {
  {
    std::lock_guard lock(mutex_);
    if (lines_emitted_) return;
    lines_emitted_ = true;
  }
  for (uint32_t i = 0; i < plan_.sites.size(); ++i) {
    const memory::Site& site = plan_.sites[i];
    LineRecord row;
    row.site_id = site_id(i);
    row.kernel = intern(plan_.name);
    if (site.line != 0) {
      row.file = intern(is_unnamed(site.file) ? "<program source>" : site.file);
      row.line = static_cast<int32_t>(site.line);
    }
    const std::string function = name_in_source(site.function);
    if (function != plan_.name) row.function = intern(function);
    emit(row);
  }
}

std::shared_ptr<const MeasuredProgram> MeasuredProgram::make(
    cl_program program, const std::vector<SpecializationConstant>& constants) {
  auto made = std::make_shared<MeasuredProgram>();
  made->build(program, constants);
  return made;
}

MeasuredProgram::~MeasuredProgram() {
  if (handle_ != nullptr) next(handle_).clReleaseProgram(handle_);
}

std::shared_ptr<MeasuredFunction> MeasuredProgram::find(const std::string& kernel,
                                                        Unmeasured* why) const {
  if (const auto found = functions_.find(kernel); found != functions_.end()) return found->second;
  *why = why_;
  if (const auto reason = skipped_.find(kernel); reason != skipped_.end()) {
    why->cause = "kernel " + kernel + " cannot be measured: " + reason->second;
  } else if (why->cause.empty()) {
    why->cause = "kernel " + kernel + " is not in the program's SPIR-V";
  }
  return nullptr;
}

bool MeasuredProgram::build(cl_program program,
                            const std::vector<SpecializationConstant>& constants) {
  const Dispatch& cl = next(program);
  const auto unmeasured = [this](std::string cause, std::string remedy = {}) {
    why_ = {std::move(cause), std::move(remedy)};
    return false;
  };
  const auto info = cl.clGetProgramInfo;
  const auto devices = query_list<cl_device_id>(info, program, CL_PROGRAM_DEVICES);
  const auto context = query<cl_context>(info, program, CL_PROGRAM_CONTEXT, nullptr);
  if (devices.empty() || context == nullptr) return unmeasured("the program has no device");
  if (cl.clCreateProgramWithIL == nullptr ||
      device_text(devices[0], CL_DEVICE_IL_VERSION).find("SPIR-V") == std::string::npos) {
    return unmeasured("the device takes no SPIR-V: its kernels cannot be measured",
                      "use a device that does, such as the CPU of pip install 'pasta[cpu]'");
  }

  const std::string options = build_text(program, devices[0], CL_PROGRAM_BUILD_OPTIONS);
  std::vector<uint32_t> words = query_list<uint32_t>(info, program, CL_PROGRAM_IL);
  if (words.empty()) {
    const std::vector<char> source = query_list<char>(info, program, CL_PROGRAM_SOURCE);
    memory::CompileRequest request;
    request.source.assign(source.begin(), std::find(source.begin(), source.end(), '\0'));
    if (request.source.empty()) {
      return unmeasured("a program that is loaded as a binary or linked cannot be measured",
                        "let the program build its kernels from source, without a cache");
    }
    std::string why;
    const memory::FrontEnd* const compiler = front_end(devices[0], &why);
    if (compiler == nullptr) {
      return unmeasured(why,
                        "pip install 'pasta[cpu]', or apt install libopencl-clang14, or set "
                        "PASTA_OPENCL_CLANG to the library");
    }
    request.options = options;
    request.device_extensions = device_text(devices[0], CL_DEVICE_EXTENSIONS);
    request.device_c_version = c_version(devices[0]);
    memory::CompileResult compiled = compiler->compile(request);
    if (compiled.words.empty()) {
      return unmeasured("the program could not be compiled to SPIR-V: " +
                        compiled.log.substr(0, kLogBytes));
    }
    words = std::move(compiled.words);
  }

  memory::InstrumentOptions wanted;
  wanted.reducers = reducers_for(devices);
  memory::Instrumented result = memory::instrument(words.data(), words.size(), wanted);
  if (!result.error.empty()) return unmeasured("the program's SPIR-V is refused: " + result.error);
  for (memory::Skipped& skipped : result.skipped) skipped_[skipped.kernel] = skipped.reason;
  if (result.kernels.empty()) return unmeasured("the program has no kernel that can be measured");

  cl_int status = CL_SUCCESS;
  handle_ =
      cl.clCreateProgramWithIL(context, result.words.data(), 4 * result.words.size(), &status);
  for (const SpecializationConstant& constant : constants) {
    if (handle_ == nullptr || status != CL_SUCCESS) break;
    status = cl.clSetProgramSpecializationConstant(handle_, constant.id, constant.value.size(),
                                                   constant.value.data());
  }
  if (handle_ != nullptr && status == CL_SUCCESS) {
    std::string kept = options_for_spirv(options);
    if (needs_whole_groups(words)) kept += "-cl-uniform-work-group-size";
    status = cl.clBuildProgram(handle_, static_cast<cl_uint>(devices.size()), devices.data(),
                               kept.c_str(), nullptr, nullptr);
  }
  if (handle_ == nullptr || status != CL_SUCCESS) {
    const std::string log =
        handle_ != nullptr ? build_text(handle_, devices[0], CL_PROGRAM_BUILD_LOG) : "";
    return unmeasured("the driver refuses the measured program with status " +
                      std::to_string(status) + ": " + log.substr(0, kLogBytes));
  }
  for (memory::KernelPlan& plan : result.kernels) {
    std::string name = plan.name;
    functions_[std::move(name)] = std::make_shared<MeasuredFunction>(std::move(plan));
  }
  return true;
}

}  // namespace pasta::opencl
