// The OpenCL objects of this process: what the tables need to know about each, kept while
// recording.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/opencl/address_ranges.h"
#include "backends/opencl/cl_api.h"
#include "backends/opencl/device_clock.h"
#include "backends/opencl/entry.h"
#include "backends/opencl/handle_map.h"
#include "backends/opencl/memory_program.h"
#include "backends/opencl/normalize.h"
#include "backends/opencl/pending.h"
#include "schema/tables.h"

namespace pasta::opencl {

class MeasuredKernel;
class ResultBuffer;

struct Device {
  int32_t id;
  std::string name;
  std::mutex clock_mutex;
  DeviceClock clock;
  int64_t next_clock_row_ns = 0;
};

struct Context {
  int32_t id;
  int32_t device_id;  // kNullI32 when it has several
  cl_platform_id platform;
  std::atomic<int> references{1};  // the program's own
};

struct Queue {
  int32_t id;
  std::shared_ptr<Device> device;
  std::shared_ptr<Context> context;
  bool out_of_order;
  bool profiled;               // its events have times ...
  bool hides_profiling;        // ... which the program did not ask for, and must not see
  QueueProperties properties;  // the list that the program gave; empty for none
  std::atomic<int> references{1};
  PendingCommands pending;
  std::recursive_mutex results_mutex;
  std::shared_ptr<ResultBuffer> results;  // of --memory; null before the first measured launch
};

struct MemoryObject {
  int64_t object_id = kNullI64;
  int64_t parent_id = kNullI64;
  int64_t address = kNullI64;
  int64_t bytes = kNullI64;
  uint32_t element_bytes = 0;  // of an image; 0: not known, or no image
  MemoryKind kind = MemoryKind::unknown;
  int32_t device_id = kNullI32;
  int32_t context_id = kNullI32;
  Entry allocator;
};

// Bytes of a region of an image; kNullI64 when its element's size is not known.
inline int64_t image_bytes(const MemoryObject& image, const size_t region[3]) {
  return image.element_bytes == 0 ? kNullI64 : region_bytes(region, image.element_bytes);
}

// A kernel function of a program; any number of cl_kernel objects share it.
struct KernelFunction {
  std::string name;
  StringId name_id;
  int32_t local_memory_bytes = kNullI32;    // __local variables of the function itself
  int64_t private_memory_bytes = kNullI64;  // a work-item
  size_t required_block[3] = {0, 0, 0};     // reqd_work_group_size; zeros when it has none
};

struct Program {
  // The program is built anew: its functions may have other sizes.
  void forget_functions() {
    {
      std::lock_guard lock(mutex);
      functions.clear();
    }
    std::lock_guard lock(measured_mutex);
    measured.reset();
    parts.clear();
  }

  int64_t id;
  BuildSource source;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const KernelFunction>> functions;

  // For --memory. The mutex is held while the program is built a second time.
  std::mutex measured_mutex;
  std::shared_ptr<const MeasuredProgram> measured;  // null before the first kernel
  std::vector<SpecializationConstant> constants;    // that the program has set
  ProgramParts parts;                               // what it was compiled or linked from
};

// All of it. A fork's child gets a new one and leaks its parent's, whose locks may be held by
// threads that the child does not have. Never destroyed: drivers call back during the process's
// end.
struct State {
  State();

  // Tables that are asked for.
  const bool wants_kernels, wants_copies, wants_fills, wants_api, wants_all_api;

  HandleMap<std::shared_ptr<Device>> devices;
  HandleMap<std::shared_ptr<Context>> contexts;
  HandleMap<std::shared_ptr<Queue>> queues;
  HandleMap<std::shared_ptr<Program>> programs;
  HandleMap<std::shared_ptr<const KernelFunction>> kernels;
  HandleMap<std::shared_ptr<MeasuredKernel>> measured_kernels;  // with --memory only
  HandleMap<MemoryObject> memory;        // an entry goes when its object is destroyed
  AddressRanges<MemoryObject> pointers;  // SVM and USM allocations
  HandleMap<int64_t> mapped_bytes;       // size of the mapping at an address, for its unmap

  std::atomic<int32_t> next_device_id{0}, next_context_id{0}, next_queue_id{0};
  std::atomic<uint32_t> entry_names[kEntries] =
      {};  // StringId of each function's name, 0: not yet interned
};
State& state();

// Forgets every object, with no call of OpenCL.
void forget_objects();

// The object behind a handle. An object that was not seen being made is looked at then; null when
// the handle is not valid.
std::shared_ptr<Device> find_device(cl_device_id handle);
std::shared_ptr<Context> find_context(cl_context handle);
// The reference is valid until this thread asks for another one.
const std::shared_ptr<Queue>& find_queue(cl_command_queue handle);
const std::shared_ptr<const KernelFunction>& find_kernel(cl_kernel handle);
MemoryObject find_memory(cl_mem handle);  // a default MemoryObject when it is not known
MemoryObject find_pointer(
    const void* pointer);  // SVM or USM; `pageable` host memory when it is neither

// Takes note of an object that the program has just made. `hides_profiling`: we added it.
void add_context(cl_context handle);
void add_queue(cl_command_queue handle, bool hides_profiling, QueueProperties properties);
std::shared_ptr<Program> add_program(cl_program handle, BuildSource source);
std::shared_ptr<Program> find_program(cl_program handle);
void add_kernel(cl_kernel handle);

}  // namespace pasta::opencl
