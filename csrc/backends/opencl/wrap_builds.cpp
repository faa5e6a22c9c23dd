// Compiling and linking: the rows of `build`, one for each device; and, for --memory, what a linked
// program was compiled from.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/opencl/api_call.h"
#include "backends/opencl/creation.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/memory_launch.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/query.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

using BuildNotify = void(CL_CALLBACK*)(cl_program, void*);

// Result of the build on one device; `result` is that of the call, which covers all its devices.
cl_int result_on(cl_program program, cl_device_id device, cl_int result, cl_int failure) {
  cl_build_status status = CL_BUILD_NONE;
  next(program).clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_STATUS, sizeof(status),
                                      &status, nullptr);
  if (status == CL_BUILD_SUCCESS) return CL_SUCCESS;
  return status == CL_BUILD_ERROR && result == CL_SUCCESS ? failure : result;
}

// What is known when a build starts, for its rows when it has ended: at the return of the call or,
// when the program gave a callback, perhaps later and on a thread of the driver.
class Build {
 public:
  // `failure`: the error code of a build that fails after its call has returned.
  Build(BuildSource source, cl_int failure, std::vector<cl_device_id> devices, const char* options)
      : failure_(failure),
        devices_(std::move(devices)),
        options_(options != nullptr ? options : "") {
    row_.start_ns = now_ns();
    row_.thread_id = thread_id();
    row_.source = source;
  }

  // Of a program that is linked.
  void set_parts(ProgramParts parts) { parts_ = std::move(parts); }

  // Writes the rows, the first time that it is called.
  void finish(cl_program program, cl_int result) {
    if (written_.exchange(true)) return;
    row_.end_ns = now_ns();
    row_.options = intern(options_);
    row_.result = result;
    if (program == nullptr) {
      emit(row_);
      return;
    }
    const auto info = next(program).clGetProgramInfo;
    const bool is_new = row_.source == BuildSource::linked;
    const auto known = is_new ? add_program(program, row_.source) : find_program(program);
    row_.program_id = known->id;
    if (is_new) {
      std::lock_guard lock(known->measured_mutex);
      known->parts = std::move(parts_);
    }
    if (const auto context = query<cl_context>(info, program, CL_PROGRAM_CONTEXT, nullptr)) {
      if (const auto found = find_context(context)) row_.context_id = found->id;
    }
    if (devices_.empty()) devices_ = query_list<cl_device_id>(info, program, CL_PROGRAM_DEVICES);
    for (cl_device_id device : devices_) {
      const auto log_of = [device](cl_program object, cl_program_build_info which, size_t bytes,
                                   void* value, size_t* size) {
        return next(object).clGetProgramBuildInfo(object, device, which, bytes, value, size);
      };
      const std::string log = query_text(log_of, program, CL_PROGRAM_BUILD_LOG);
      BuildRecord row = row_;
      row.device_id = find_device(device)->id;
      row.log = log.empty() ? StringId{} : intern(log);
      row.result = result_on(program, device, result, failure_);
      emit(row);
    }
  }

 private:
  cl_int failure_;
  std::vector<cl_device_id> devices_;
  std::string options_;
  BuildRecord row_;
  ProgramParts parts_;
  std::atomic<bool> written_{false};
};

// For --memory. What the programs that are linked were compiled from; a library was linked, too.
ProgramParts parts_of(cl_uint count, const cl_program* programs) {
  ProgramParts parts;
  for (cl_uint i = 0; i < count && programs != nullptr; ++i) {
    const std::shared_ptr<Program> known = find_program(programs[i]);
    std::lock_guard lock(known->measured_mutex);
    parts.insert(parts.end(), known->parts.begin(), known->parts.end());
    if (known->parts.empty()) parts.push_back(nullptr);
  }
  return parts;
}

std::vector<cl_device_id> device_list(cl_uint count, const cl_device_id* devices) {
  return devices == nullptr ? std::vector<cl_device_id>{}
                            : std::vector<cl_device_id>(devices, devices + count);
}

// The program's callback, with ours in front of it. Shared with the driver, which may never call
// it: then this much memory is lost, as the program's own.
struct Notification {
  std::shared_ptr<Build> build;
  BuildNotify notify;
  void* user_data;
};

void CL_CALLBACK notify_of_build(cl_program program, void* data) {
  auto* const notification = static_cast<Notification*>(data);
  const BuildNotify notify = notification->notify;
  void* const user_data = notification->user_data;
  guard([&] { notification->build->finish(program, CL_SUCCESS); });
  delete notification;
  notify(program, user_data);
}

// The callback to give the runtime in place of the program's: none where the program gave none.
class Callback {
 public:
  Callback(const std::shared_ptr<Build>& build, BuildNotify notify, void* user_data)
      : notify_(notify), user_data_(user_data) {
    if (notify == nullptr || build == nullptr) return;
    guard([&] {
      user_data_ = new Notification{build, notify, user_data};
      notify_ = notify_of_build;
    });
  }
  BuildNotify notify() const { return notify_; }
  void* user_data() const { return user_data_; }

 private:
  BuildNotify notify_;
  void* user_data_;
};

// A build whose call has returned. With a callback that is no end yet, unless it failed at once.
void returned(const std::shared_ptr<Build>& build, cl_program program, cl_int result,
              bool has_callback) {
  if (build != nullptr && (!has_callback || result != CL_SUCCESS)) build->finish(program, result);
}

cl_int CL_API_CALL build_program(cl_program program, cl_uint count, const cl_device_id* devices,
                                 const char* options, BuildNotify notify, void* user_data) {
  const auto function = next(program).clBuildProgram;
  if (!recording()) return function(program, count, devices, options, notify, user_data);
  std::shared_ptr<Build> build;
  guard([&] {
    const std::shared_ptr<Program> known = find_program(program);
    known->forget_functions();
    build = std::make_shared<Build>(known->source, CL_BUILD_PROGRAM_FAILURE,
                                    device_list(count, devices), options);
  });
  const Callback callback(build, notify, user_data);
  ApiCall call(Entry::clBuildProgram);
  const cl_int result =
      function(program, count, devices, options, callback.notify(), callback.user_data());
  call.finish(result);
  guard([&] { returned(build, program, result, notify != nullptr); });
  return result;
}

cl_int CL_API_CALL compile_program(cl_program program, cl_uint count, const cl_device_id* devices,
                                   const char* options, cl_uint header_count,
                                   const cl_program* headers, const char** header_names,
                                   BuildNotify notify, void* user_data) {
  const auto function = next(program).clCompileProgram;
  if (!recording()) {
    return function(program, count, devices, options, header_count, headers, header_names, notify,
                    user_data);
  }
  std::shared_ptr<Build> build;
  guard([&] {
    const std::shared_ptr<Program> known = find_program(program);
    build = std::make_shared<Build>(known->source, CL_COMPILE_PROGRAM_FAILURE,
                                    device_list(count, devices), options);
    if (!measures_memory()) return;
    const auto part = part_of(program, options, header_count, headers, header_names);
    std::lock_guard lock(known->measured_mutex);
    part->has_constants = !known->constants.empty();
    known->parts = {part};
  });
  const Callback callback(build, notify, user_data);
  ApiCall call(Entry::clCompileProgram);
  const cl_int result = function(program, count, devices, options, header_count, headers,
                                 header_names, callback.notify(), callback.user_data());
  call.finish(result);
  guard([&] { returned(build, program, result, notify != nullptr); });
  return result;
}

cl_program CL_API_CALL link_program(cl_context context, cl_uint count, const cl_device_id* devices,
                                    const char* options, cl_uint input_count,
                                    const cl_program* inputs, BuildNotify notify, void* user_data,
                                    cl_int* error) {
  const auto function = next(context).clLinkProgram;
  if (!recording()) {
    return function(context, count, devices, options, input_count, inputs, notify, user_data,
                    error);
  }
  std::shared_ptr<Build> build;
  guard([&] {
    build = std::make_shared<Build>(BuildSource::linked, CL_LINK_PROGRAM_FAILURE,
                                    device_list(count, devices), options);
    if (measures_memory()) build->set_parts(parts_of(input_count, inputs));
  });
  const Callback callback(build, notify, user_data);
  Creation creation(Entry::clLinkProgram, error);
  const cl_program program = function(context, count, devices, options, input_count, inputs,
                                      callback.notify(), callback.user_data(), creation.error());
  creation.finish(program, [] {});
  guard([&] { returned(build, program, *creation.error(), notify != nullptr); });
  return program;
}

}  // namespace

void wrap_builds(Dispatch& table) {
  table.clBuildProgram = build_program;
  table.clCompileProgram = compile_program;
  table.clLinkProgram = link_program;
}

}  // namespace pasta::opencl
