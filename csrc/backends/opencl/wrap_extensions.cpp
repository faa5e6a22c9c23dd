// Functions of extensions. A program gets their addresses from the runtime by name; we hand out
// ours, and keep the runtime's for them to call.
#include <atomic>
#include <string_view>

#include "backends/opencl/allocations.h"
#include "backends/opencl/copies.h"
#include "backends/opencl/creation.h"
#include "backends/opencl/enqueued.h"
#include "backends/opencl/fills.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/memory_kernel.h"
#include "backends/opencl/memory_launch.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/query.h"
#include "backends/opencl/queues.h"
#include "backends/opencl/wrappers.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

constexpr size_t kFirstExtension =
    static_cast<size_t>(Entry::clCreateCommandQueueWithPropertiesKHR);
constexpr size_t kExtensions = kEntries - kFirstExtension;

// A platform's own functions. Not part of State: the addresses that we handed out outlive a fork.
struct Platform {
  std::atomic<cl_platform_id> platform{nullptr};
  std::atomic<void*> functions[kExtensions] = {};
};
constexpr size_t kMaxPlatforms = 16;
Platform g_platforms[kMaxPlatforms];

std::atomic<void*>* function_of(cl_platform_id platform, Entry entry, bool make) {
  for (Platform& known : g_platforms) {
    cl_platform_id at = known.platform.load();
    if (at == nullptr && make) known.platform.compare_exchange_strong(at, platform);
    if (known.platform.load() == platform)
      return &known.functions[static_cast<size_t>(entry) - kFirstExtension];
    if (known.platform.load() == nullptr) break;
  }
  return nullptr;
}

// The runtime's function for an object of `context`. The program has our wrapper from one platform
// and may call it for another: as without us, that is an error of the program, which the first
// platform's function then reports.
template <class Function>
Function runtime_function(Entry entry, cl_context context) {
  std::atomic<void*>* found = nullptr;
  guard([&] {
    if (const auto known = find_context(context))
      found = function_of(known->platform, entry, false);
  });
  void* function = found != nullptr ? found->load() : nullptr;
  for (size_t i = 0; function == nullptr && i < kMaxPlatforms; ++i) {
    function = g_platforms[i].functions[static_cast<size_t>(entry) - kFirstExtension].load();
  }
  return reinterpret_cast<Function>(function);
}

cl_context context_of(cl_command_queue queue) {
  return query<cl_context>(next(queue).clGetCommandQueueInfo, queue, CL_QUEUE_CONTEXT, nullptr);
}

template <class Function, Entry entry>
struct InExtension {
  static Function find(cl_command_queue queue) {
    return runtime_function<Function>(entry, context_of(queue));
  }
};

// -- cl_khr_create_command_queue ------------------------------------------------------------------

cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                          const cl_queue_properties* properties, cl_int* error) {
  constexpr Entry entry = Entry::clCreateCommandQueueWithPropertiesKHR;
  return create_queue_by_list(entry, runtime_function<CreateQueueByList>(entry, context), context,
                              device, properties, error);
}

// -- cl_intel_unified_shared_memory ---------------------------------------------------------------

using HostAlloc = void*(CL_API_CALL*)(cl_context, const cl_properties*, size_t, cl_uint, cl_int*);
using DeviceAlloc = void*(CL_API_CALL*)(cl_context, cl_device_id, const cl_properties*, size_t,
                                        cl_uint, cl_int*);
using Free = cl_int(CL_API_CALL*)(cl_context, void*);

void* CL_API_CALL host_alloc(cl_context context, const cl_properties* properties, size_t bytes,
                             cl_uint alignment, cl_int* error) {
  constexpr Entry entry = Entry::clHostMemAllocINTEL;
  const auto function = runtime_function<HostAlloc>(entry, context);
  if (!recording()) return function(context, properties, bytes, alignment, error);
  Creation creation(entry, error);
  void* const pointer = function(context, properties, bytes, alignment, creation.error());
  return creation.finish(pointer, [&] {
    add_pointer(entry, creation.call(), context, nullptr, MemoryKind::host_usm, pointer, bytes);
  });
}

template <Entry entry, MemoryKind kind>
void* CL_API_CALL device_alloc(cl_context context, cl_device_id device,
                               const cl_properties* properties, size_t bytes, cl_uint alignment,
                               cl_int* error) {
  const auto function = runtime_function<DeviceAlloc>(entry, context);
  if (!recording()) return function(context, device, properties, bytes, alignment, error);
  Creation creation(entry, error);
  void* const pointer = function(context, device, properties, bytes, alignment, creation.error());
  return creation.finish(
      pointer, [&] { add_pointer(entry, creation.call(), context, device, kind, pointer, bytes); });
}

template <Entry entry>
cl_int CL_API_CALL free_usm(cl_context context, void* pointer) {
  const auto function = runtime_function<Free>(entry, context);
  if (!recording()) return function(context, pointer);
  ApiCall call(entry);
  guard([&] { free_pointer(call, pointer); });
  const cl_int result = function(context, pointer);
  call.finish(result);
  return result;
}

using Memcpy = cl_int(CL_API_CALL*)(cl_command_queue, cl_bool, void*, const void*, size_t, cl_uint,
                                    const cl_event*, cl_event*);
using MemFill = cl_int(CL_API_CALL*)(cl_command_queue, void*, const void*, size_t, size_t, cl_uint,
                                     const cl_event*, cl_event*);
using MigrateMem = cl_int(CL_API_CALL*)(cl_command_queue, const void*, size_t,
                                        cl_mem_migration_flags, cl_uint, const cl_event*,
                                        cl_event*);

MemcpyRecord copy_usm(const Queue& queue, cl_bool blocking, void* destination, const void* source,
                      size_t bytes, cl_uint, const cl_event*, cl_event*) {
  return copy_record(queue, to_signed(bytes), find_pointer(source), find_pointer(destination),
                     blocking);
}

MemsetRecord fill_usm(const Queue&, void* pointer, const void* pattern, size_t pattern_bytes,
                      size_t bytes, cl_uint, const cl_event*, cl_event*) {
  return fill_record(find_pointer(pointer), to_signed(bytes),
                     pattern_value(pattern, pattern_bytes));
}

MemcpyRecord migrate_usm(const Queue& queue, const void* pointer, size_t bytes,
                         cl_mem_migration_flags flags, cl_uint, const cl_event*, cl_event*) {
  return migration_record(queue, flags, to_signed(bytes), find_pointer(pointer));
}

// -- Arguments of kernels -------------------------------------------------------------------------

void note_set(MeasuredKernel& kernel, cl_int status, cl_uint index, const void* pointer) {
  kernel.note_pointer(index, pointer, status);
}
// An address on a device: pasta knows those of SVM and USM, not those of buffers.
void note_set(MeasuredKernel& kernel, cl_int status, cl_uint index, cl_ulong address) {
  kernel.note_pointer(index, reinterpret_cast<const void*>(address), status);
}
void note_set(MeasuredKernel& kernel, cl_int status, cl_uint, size_t, const void*) {
  kernel.note_execution_info(status);
}

// What the program sets for its own kernel is set for the measured one, too.
template <Entry entry, class... Values>
cl_int CL_API_CALL set_for_both(cl_kernel kernel, Values... values) {
  const auto context =
      query<cl_context>(next(kernel).clGetKernelInfo, kernel, CL_KERNEL_CONTEXT, nullptr);
  using Set = cl_int(CL_API_CALL*)(cl_kernel, Values...);
  const auto function = runtime_function<Set>(entry, context);
  const cl_int result = function(kernel, values...);
  guard([&] {
    if (result != CL_SUCCESS || !recording()) return;
    const auto measured = find_measured_kernel(kernel);
    if (measured == nullptr || measured->handle() == nullptr) return;
    note_set(*measured, function(measured->handle(), values...), values...);
  });
  return result;
}

// -- cl_khr_command_buffer ------------------------------------------------------------------------

using EnqueueCommandBuffer = cl_int(CL_API_CALL*)(cl_uint, cl_command_queue*, void*, cl_uint,
                                                  const cl_event*, cl_event*);

cl_int CL_API_CALL enqueue_command_buffer(cl_uint queue_count, cl_command_queue* queues,
                                          void* commands, cl_uint wait_count,
                                          const cl_event* wait_list, cl_event* event) {
  constexpr Entry entry = Entry::clEnqueueCommandBufferKHR;
  const cl_context context = queue_count > 0 && queues != nullptr ? context_of(queues[0]) : nullptr;
  const auto function = runtime_function<EnqueueCommandBuffer>(entry, context);
  if (!collecting()) return function(queue_count, queues, commands, wait_count, wait_list, event);
  ApiCall call(entry);
  const cl_int result = function(queue_count, queues, commands, wait_count, wait_list, event);
  call.finish(result);
  report_loss("opencl", "kernel", kNullI64,
              "the commands of a cl_khr_command_buffer are not recorded one by one");
  return result;
}

// -- By name --------------------------------------------------------------------------------------

template <class Function, Entry entry, auto describe>
constexpr auto kEnqueued = Enqueued<InExtension<Function, entry>, entry, describe, Function>::call;

struct Extension {
  Entry entry;
  void* wrapper;
};

const Extension* find_extension(std::string_view name) {
  static const Extension extensions[] = {
#define PASTA_WRAPPER(name, wrapper) {Entry::name, reinterpret_cast<void*>(wrapper)}
      PASTA_WRAPPER(clCreateCommandQueueWithPropertiesKHR, create_queue),
      PASTA_WRAPPER(clHostMemAllocINTEL, host_alloc),
      PASTA_WRAPPER(clDeviceMemAllocINTEL,
                    (device_alloc<Entry::clDeviceMemAllocINTEL, MemoryKind::device_usm>)),
      PASTA_WRAPPER(clSharedMemAllocINTEL,
                    (device_alloc<Entry::clSharedMemAllocINTEL, MemoryKind::shared_usm>)),
      PASTA_WRAPPER(clMemFreeINTEL, free_usm<Entry::clMemFreeINTEL>),
      PASTA_WRAPPER(clMemBlockingFreeINTEL, free_usm<Entry::clMemBlockingFreeINTEL>),
      PASTA_WRAPPER(clEnqueueMemcpyINTEL,
                    (kEnqueued<Memcpy, Entry::clEnqueueMemcpyINTEL, copy_usm>)),
      PASTA_WRAPPER(clEnqueueMemFillINTEL,
                    (kEnqueued<MemFill, Entry::clEnqueueMemFillINTEL, fill_usm>)),
      PASTA_WRAPPER(clEnqueueMigrateMemINTEL,
                    (kEnqueued<MigrateMem, Entry::clEnqueueMigrateMemINTEL, migrate_usm>)),
      PASTA_WRAPPER(
          clSetKernelArgMemPointerINTEL,
          (set_for_both<Entry::clSetKernelArgMemPointerINTEL, cl_uint, const void*>)),
      PASTA_WRAPPER(clSetKernelArgDevicePointerEXT,
                    (set_for_both<Entry::clSetKernelArgDevicePointerEXT, cl_uint, cl_ulong>)),
      PASTA_WRAPPER(clSetKernelArgSVMPointerARM,
                    (set_for_both<Entry::clSetKernelArgSVMPointerARM, cl_uint, const void*>)),
      PASTA_WRAPPER(
          clSetKernelExecInfoARM,
          (set_for_both<Entry::clSetKernelExecInfoARM, cl_uint, size_t, const void*>)),
      PASTA_WRAPPER(clEnqueueCommandBufferKHR, enqueue_command_buffer),
#undef PASTA_WRAPPER
  };
  for (const Extension& extension : extensions) {
    if (name == entry_name(extension.entry)) return &extension;
  }
  return nullptr;
}

// What the program gets for a function that the runtime has at `theirs`.
void* hand_out(cl_platform_id platform, const char* name, void* theirs) {
  if (theirs == nullptr || platform == nullptr || !recording()) return theirs;
  const Extension* extension = find_extension(name);
  const bool sets_arguments = std::string_view(name).rfind("clSetKernel", 0) == 0;
  if (sets_arguments && !measures_memory()) return theirs;
  if (extension == nullptr) {
    // What it sets, a measured kernel would miss.
    if (sets_arguments)
      stop_measuring(std::string("the program sets arguments of kernels with ") + name);
    return theirs;
  }
  std::atomic<void*>* kept = function_of(platform, extension->entry, true);
  if (kept == nullptr) return theirs;
  kept->store(theirs);
  return extension->wrapper;
}

void* CL_API_CALL get_function(cl_platform_id platform, const char* name) {
  return hand_out(platform, name,
                  next(platform).clGetExtensionFunctionAddressForPlatform(platform, name));
}

// OpenCL 1.1: the loader picks the platform, by the suffix of the name.
void* CL_API_CALL get_function_of_any_platform(const char* name) {
  const auto any_platform = reinterpret_cast<cl_platform_id>(~uintptr_t{0});
  return hand_out(any_platform, name, next(nullptr).clGetExtensionFunctionAddress(name));
}

}  // namespace

void wrap_extensions(Dispatch& table) {
  table.clGetExtensionFunctionAddressForPlatform = get_function;
  table.clGetExtensionFunctionAddress = get_function_of_any_platform;
}

}  // namespace pasta::opencl
