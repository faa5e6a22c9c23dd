#include "backends/opencl/memory_program.h"

#include <mutex>
#include <optional>
#include <sstream>
#include <string_view>

#include "backends/opencl/device_info.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/memory_options.h"
#include "backends/opencl/query.h"
#include "device/opencl/instrument.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

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
  reducers.blocks = options.blocks;
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
  const bool wants = options.compares_lanes(), compares_lanes = reducers.int64_atomics;
  if (const cl_uint width = warp_size(devices.front()); width != 0) reducers.width = width;
  if (wants && !compares_lanes) {
    static std::once_flag said;
    std::call_once(said, [] {
      report_loss("opencl", "access_site", kNullI64,
                  "the device cannot compare work-items: it has no 64-bit atomics", "");
    });
  }
  reducers.divergence = wants && compares_lanes;
  reducers.coalescing = options.coalescing && compares_lanes;
  reducers.bank_conflicts = reducers.coalescing && options.shared;
  return reducers;
}

}  // namespace

MeasuredFunction::MeasuredFunction(memory::KernelPlan plan) : plan_(std::move(plan)) {
  for (size_t i = 0; i < plan_.sites.size(); ++i) site_ids_.push_back(next_id());
}

bool MeasuredFunction::samples(const std::array<size_t, 3>& global) {
  const Sampling& sampling = memory_options().sampling;
  if (!sampling.leaves_out()) return true;
  std::lock_guard lock(mutex_);
  return sampling.takes(launches_[global]++);
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
    cl_program program, const std::vector<SpecializationConstant>& constants,
    const ProgramParts& parts) {
  auto made = std::make_shared<MeasuredProgram>();
  made->build(program, constants, parts);
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
                            const std::vector<SpecializationConstant>& constants,
                            const ProgramParts& parts) {
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

  const std::optional<ProgramSpirv> spirv = spirv_of(program, devices[0], parts, &why_);
  if (!spirv) return false;
  memory::InstrumentOptions wanted;
  wanted.reducers = reducers_for(devices);
  wanted.own_variables = false;
  memory::Instrumented result = memory::instrument(spirv->words.data(), spirv->words.size(), wanted);
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
    status = cl.clBuildProgram(handle_, static_cast<cl_uint>(devices.size()), devices.data(),
                               spirv->options.c_str(), nullptr, nullptr);
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
