#include "backends/opencl/objects.h"

#include "backends/opencl/device_info.h"
#include "backends/opencl/dispatch.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/harvest.h"
#include "backends/opencl/query.h"
#include "backends/opencl/thread_cache.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

std::atomic<State*> g_state{nullptr};

// Where this backend was run on real devices; docs/architecture.md says what each level means.
constexpr Backend kBackend = {
    "opencl",
    "run on Intel's CPU runtime, PoCL and Oclgrind; never run on a GPU",
    [](int64_t deadline_ns) { guard([&] { harvest_all(deadline_ns); }); },
    [] { forget_objects(); },
    nullptr,
};

std::shared_ptr<Context> make_context(cl_context handle) {
  const std::vector<cl_device_id> devices =
      query_list<cl_device_id>(next(handle).clGetContextInfo, handle, CL_CONTEXT_DEVICES);
  if (devices.empty()) return nullptr;
  auto context = std::make_shared<Context>();
  context->id = state().next_context_id++;
  context->device_id = kNullI32;
  for (cl_device_id device : devices) {
    const std::shared_ptr<Device> known = find_device(device);
    if (devices.size() == 1) context->device_id = known->id;
  }
  context->platform = query<cl_platform_id>(next(devices[0]).clGetDeviceInfo, devices[0],
                                            CL_DEVICE_PLATFORM, nullptr);
  return context;
}

std::shared_ptr<Queue> make_queue(cl_command_queue handle, bool hides_profiling,
                                  QueueProperties properties) {
  const auto info = next(handle).clGetCommandQueueInfo;
  const auto device = query<cl_device_id>(info, handle, CL_QUEUE_DEVICE, nullptr);
  const auto context = query<cl_context>(info, handle, CL_QUEUE_CONTEXT, nullptr);
  if (device == nullptr || context == nullptr) return nullptr;
  const auto flags = query<cl_command_queue_properties>(info, handle, CL_QUEUE_PROPERTIES, 0);
  auto queue = std::make_shared<Queue>();
  queue->id = state().next_queue_id++;
  queue->device = find_device(device);
  queue->context = find_context(context);
  if (queue->context == nullptr) return nullptr;
  queue->out_of_order = (flags & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
  queue->profiled = (flags & CL_QUEUE_PROFILING_ENABLE) != 0;
  queue->hides_profiling = hides_profiling;
  queue->properties = std::move(properties);

  StreamRecord row;
  row.stream_id = queue->id;
  row.context_id = queue->context->id;
  row.device_id = queue->device->id;
  if (flags & CL_QUEUE_ON_DEVICE) row.name = intern("on-device queue");
  row.priority = queue_priority(queue->properties);
  row.out_of_order = to_bool(queue->out_of_order);
  row.start_ns = now_ns();
  emit(row);
  return queue;
}

// The function that `kernel`, which has no arguments set yet, is an instance of. Its sizes are
// those of the program's first device.
std::shared_ptr<const KernelFunction> make_function(cl_program program, cl_kernel kernel,
                                                    std::string name) {
  auto function = std::make_shared<KernelFunction>();
  function->name_id = intern(name);
  function->name = std::move(name);
  const std::vector<cl_device_id> devices =
      query_list<cl_device_id>(next(program).clGetProgramInfo, program, CL_PROGRAM_DEVICES);
  if (devices.empty()) return function;
  const auto read = [&](cl_kernel_work_group_info which, size_t bytes, void* value) {
    return next(kernel).clGetKernelWorkGroupInfo(kernel, devices[0], which, bytes, value,
                                                 nullptr) == CL_SUCCESS;
  };
  cl_ulong bytes = 0;
  if (read(CL_KERNEL_LOCAL_MEM_SIZE, sizeof(bytes), &bytes) && bytes <= INT32_MAX) {
    function->local_memory_bytes = static_cast<int32_t>(bytes);
  }
  if (read(CL_KERNEL_PRIVATE_MEM_SIZE, sizeof(bytes), &bytes) && bytes <= INT64_MAX) {
    function->private_memory_bytes = static_cast<int64_t>(bytes);
  }
  size_t block[3] = {};
  if (read(CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof(block), block)) {
    for (int i = 0; i < 3; ++i) function->required_block[i] = block[i];
  }
  return function;
}

}  // namespace

State::State()
    : wants_kernels(traces(TableId::kernel)),
      wants_copies(traces(TableId::memcpy)),
      wants_fills(traces(TableId::memset)),
      wants_api(traces(TableId::api)),
      wants_all_api(traces_all_api()) {}

State& state() {
  State* current = g_state.load(std::memory_order_acquire);
  if (current != nullptr) return *current;
  auto* fresh = new State;
  if (g_state.compare_exchange_strong(current, fresh)) return *fresh;
  delete fresh;
  return *current;
}

void forget_objects() { g_state.store(nullptr); }

std::shared_ptr<Device> find_device(cl_device_id handle) {
  if (auto known = state().devices.find(handle)) return *known;
  auto device = std::make_shared<Device>();
  device->id = state().next_device_id++;
  state().devices.set(handle, device);
  register_backend(kBackend);
  emit(describe_device(handle, device->id));
  return device;
}

std::shared_ptr<Context> find_context(cl_context handle) {
  if (auto known = state().contexts.find(handle)) return *known;
  add_context(handle);
  return state().contexts.find(handle).value_or(nullptr);
}

void add_context(cl_context handle) {
  std::shared_ptr<Context> context = make_context(handle);
  if (context == nullptr) return;
  ContextRecord row;
  row.context_id = context->id;
  row.device_id = context->device_id;
  row.api = Api::opencl;
  row.start_ns = now_ns();
  emit(row);
  state().contexts.set(handle, std::move(context));
}

const std::shared_ptr<Queue>& find_queue(cl_command_queue handle) {
  return thread_cache().queue.find(state().queues, handle, [handle]() -> std::shared_ptr<Queue> {
    if (auto known = state().queues.find(handle)) return *known;
    add_queue(handle, false, {});
    return state().queues.find(handle).value_or(nullptr);
  });
}

void add_queue(cl_command_queue handle, bool hides_profiling, QueueProperties properties) {
  if (auto queue = make_queue(handle, hides_profiling, std::move(properties))) {
    state().queues.set(handle, std::move(queue));
  }
}

std::shared_ptr<Program> find_program(cl_program handle) {
  if (auto known = state().programs.find(handle)) return *known;
  return add_program(handle, BuildSource::unknown);
}

std::shared_ptr<Program> add_program(cl_program handle, BuildSource source) {
  auto program = std::make_shared<Program>();
  program->id = next_id();
  program->source = source;
  state().programs.set(handle, program);
  return program;
}

const std::shared_ptr<const KernelFunction>& find_kernel(cl_kernel handle) {
  return thread_cache().kernel.find(state().kernels, handle,
                                    [handle]() -> std::shared_ptr<const KernelFunction> {
                                      if (auto known = state().kernels.find(handle)) return *known;
                                      add_kernel(handle);
                                      return state().kernels.find(handle).value_or(nullptr);
                                    });
}

void add_kernel(cl_kernel handle) {
  const auto info = next(handle).clGetKernelInfo;
  const auto program_handle = query<cl_program>(info, handle, CL_KERNEL_PROGRAM, nullptr);
  std::string name = query_text(info, handle, CL_KERNEL_FUNCTION_NAME);
  if (program_handle == nullptr) return;
  const std::shared_ptr<Program> program = find_program(program_handle);
  std::shared_ptr<const KernelFunction> function;
  {
    std::lock_guard lock(program->mutex);
    const auto found = program->functions.find(name);
    if (found != program->functions.end()) function = found->second;
  }
  if (function == nullptr) {
    function = make_function(program_handle, handle, name);
    std::lock_guard lock(program->mutex);
    program->functions.insert_or_assign(std::move(name), function);
  }
  state().kernels.set(handle, std::move(function));
}

MemoryObject find_memory(cl_mem handle) {
  return state().memory.find(handle).value_or(MemoryObject{});
}

MemoryObject find_pointer(const void* pointer) {
  if (auto known = state().pointers.find(reinterpret_cast<uintptr_t>(pointer))) return *known;
  MemoryObject host;
  host.kind = MemoryKind::pageable;
  return host;
}

}  // namespace pasta::opencl
