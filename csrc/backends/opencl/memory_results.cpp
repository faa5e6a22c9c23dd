#include "backends/opencl/memory_results.h"

#include <time.h>

#include <algorithm>
#include <atomic>

#include "backends/opencl/dispatch.h"
#include "backends/opencl/memory_options.h"
#include "backends/opencl/memory_rows.h"
#include "backends/opencl/objects.h"
#include "backends/opencl/query.h"
#include "device/opencl/decode.h"
#include "device/opencl/layout.h"
#include "device/opencl/trace_reduce.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

// Each queue takes a quarter of --memory-buffer, so four can be measured at a time.
constexpr size_t kQueues = 4;
std::atomic<size_t> g_bytes_taken{0};

// At a wait of the program, the counts are read when they fill this share of the buffer, or are
// this old.
constexpr size_t kHarvestShare = 4;
constexpr int64_t kHarvestIntervalNs = 1'000'000'000;

// A full buffer waits for the launches in it: as long as one runs, but never longer than the second
// bound, since a kernel may itself wait for the program.
constexpr int64_t kStalledNs = 200'000'000;
constexpr int64_t kLongestWaitNs = 10'000'000'000;
constexpr timespec kPoll = {0, 50'000};

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kLineBytes = 64;
constexpr size_t kMapShare = 16;  // a buffer has room for the maps of as many objects; a byte a line
constexpr size_t kLeastBytes = size_t{256} << 10;  // of a buffer: what --memory-buffer=1M gives

// Of the work-groups that run at a time, a compute unit.
constexpr cl_uint kWorkGroupsPerUnit = 2;

// What comparing work-items takes of a buffer: each access of the work-groups that run, or only what
// they have counted.
size_t scratch_bytes(size_t buffer_bytes) {
  const MemoryOptions& options = memory_options();
  return options.coalescing ? buffer_bytes / 2 : options.divergence ? buffer_bytes / 16 : 0;
}

// Zeroed at a time, at least and at most, and as much again as before: memory that is used for the first time is dear,
// and so are many commands.
constexpr size_t kLeastZeroBytes = size_t{32} << 10, kMostZeroBytes = size_t{1} << 20;

cl_int status_of(cl_event event) {
  return query<cl_int>(next(event).clGetEventInfo, event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                       CL_COMPLETE);
}

bool is_wanted(memory::Space space) {
  return space != memory::Space::local || memory_options().shared;
}

// Says what of a launch could not be counted.
void report_uncounted(const memory::KernelPlan& plan, const memory::LaunchAccess& access) {
  if (access.lines_lost) {
    report_loss("opencl", "access_object", 1,
                "the device forms sub-groups across the rows of a work-group: the lines of a launch "
                "are not counted",
                "report this device to pasta's authors");
  }
  if (!plan.reducers.compares_lanes() || !access.lanes_lost) return;
  report_loss("opencl", "access_site", 1,
              "the work-items of a launch found no room to be compared: sites of it have no "
              "executions or sectors",
              "raise --memory-buffer, or launch less work");
}

// Takes what compares work-items from the trace, if all of it found room.
void add_trace(const ResultBuffer::Launch& launch, const uint8_t* slot,
               memory::LaunchAccess& access) {
  const memory::Reducers& reducers = launch.function->plan().reducers;
  if (!reducers.trace) return;
  if (access.trace_lost > 0) {
    report_loss("opencl", "access_site", static_cast<int64_t>(access.trace_lost),
                "accesses found no room in the trace: their launches have no sectors",
                "raise --memory-buffer, or launch less work");
    return;
  }
  const memory::LaunchAccess traced =
      memory::reduce_trace(launch.function->plan(), *launch.binding, slot,
                           launch.binding->slot_bytes, {reducers.width});
  for (size_t i = 0; i < access.sites.size() && i < traced.sites.size(); ++i) {
    access.sites[i].executions = traced.sites[i].executions;
    access.sites[i].sectors = traced.sites[i].sectors;
    access.sites[i].ideal_sectors = traced.sites[i].ideal_sectors;
    access.sites[i].bank_conflicts = traced.sites[i].bank_conflicts;
  }
}

void emit_launch(const ResultBuffer::Launch& launch, const uint8_t* slot) {
  const memory::KernelPlan& plan = launch.function->plan();
  memory::LaunchAccess access =
      memory::decode(plan, *launch.binding, launch.work_items, slot, launch.binding->slot_bytes);
  report_uncounted(plan, access);
  add_trace(launch, slot, access);
  const MemoryOptions& options = memory_options();
  if (options.objects || options.lines) {
    for (const memory::ObjectAccess& object : access.objects) {
      if (is_wanted(object.space)) emit(object_row(launch.id, object));
    }
  }
  if (options.blocks) {
    for (const memory::BlockAccess& block : access.blocks) emit(block_row(launch.id, block));
  }
  if (!options.measures_sites()) return;
  launch.function->emit_lines();
  for (const memory::SiteAccess& site : access.sites) {
    const memory::Site& known = plan.sites[site.site];
    if (site.lanes == 0 || !is_wanted(known.space)) continue;
    emit(site_row(launch.id, launch.function->site_id(site.site), known, site));
  }
}

}  // namespace

std::shared_ptr<ResultBuffer> ResultBuffer::make(cl_command_queue queue, Unmeasured* why) {
  const Dispatch& cl = next(queue);
  const auto info = cl.clGetCommandQueueInfo;
  const auto context = query<cl_context>(info, queue, CL_QUEUE_CONTEXT, nullptr);
  const auto device = query<cl_device_id>(info, queue, CL_QUEUE_DEVICE, nullptr);
  const size_t wanted = memory_options().buffer_bytes / kQueues / kPageBytes * kPageBytes;
  if (context == nullptr || device == nullptr) return nullptr;
  if (g_bytes_taken.fetch_add(wanted) + wanted > memory_options().buffer_bytes) {
    g_bytes_taken.fetch_sub(wanted);
    *why = {"no device memory for the counts of another queue", "raise --memory-buffer"};
    return nullptr;
  }
  cl_int status = CL_SUCCESS;
  cl_mem buffer = nullptr;
  size_t bytes = wanted;
  while (buffer == nullptr && bytes >= kLeastBytes) {
    buffer = cl.clCreateBuffer(context, CL_MEM_READ_WRITE, bytes, nullptr, &status);
    if (buffer == nullptr) bytes = bytes / 2 / kPageBytes * kPageBytes;
  }
  g_bytes_taken.fetch_sub(wanted - bytes);
  const auto units =
      query<cl_uint>(cl.clGetDeviceInfo, device, CL_DEVICE_MAX_COMPUTE_UNITS, 1);
  const memory::ScratchPool scratch =
      memory::ScratchPool::fit(bytes, scratch_bytes(bytes), kWorkGroupsPerUnit * units);
  const cl_command_queue reader =
      buffer != nullptr ? cl.clCreateCommandQueue(context, device, 0, &status) : nullptr;
  auto made = std::make_shared<ResultBuffer>(queue, reader, buffer, bytes, scratch);
  if (buffer == nullptr || reader == nullptr) {
    *why = {"the device has no memory for counts: status " + std::to_string(status),
            "let the program use less of it"};
    return nullptr;
  }
  if (bytes < wanted) {
    report_loss("opencl", "access_object", kNullI64,
                "the device has not enough memory for the counts: objects of more than " +
                    std::to_string(made->arena_bytes_ / kMapShare * kLineBytes) + " bytes are seen in pages",
                "let the program use less of it, or lower --memory-buffer");
  }
  return made;
}

ResultBuffer::~ResultBuffer() {
  for (const Launch& launch : launches_) next(launch.event).clReleaseEvent(launch.event);
  if (ready_ != nullptr) next(ready_).clReleaseEvent(ready_);
  if (buffer_ != nullptr) next(buffer_).clReleaseMemObject(buffer_);
  if (reader_ != nullptr) next(reader_).clReleaseCommandQueue(reader_);
  g_bytes_taken.fetch_sub(bytes_);
}

std::optional<memory::Arena::Place> ResultBuffer::place(
    const std::shared_ptr<const memory::Binding>& binding) {
  if (refused_ || !arena_.fits(*binding)) return std::nullopt;
  if (!scratch_is_zero_) {
    scratch_is_zero_ = true;
    refused_ = !zero(arena_bytes_, bytes_);
    if (refused_) return std::nullopt;
  }
  if (launches_.empty()) harvest_at_ns_ = now_ns() + kHarvestIntervalNs;
  std::optional<memory::Arena::Place> place = arena_.place(*binding);
  if (!place && wait_for_launches() && emit_rows()) {
    clear();
    place = arena_.place(*binding);
  }
  if (!place) return std::nullopt;
  if (place->binding_offset) {
    bindings_begin_ = std::min<size_t>(bindings_begin_, *place->binding_offset);
    refused_ = !write(binding, *place->binding_offset);
  }
  refused_ = refused_ || !zero_ahead();
  return refused_ ? std::nullopt : place;
}

bool ResultBuffer::make_ready(cl_int result, cl_event event) {
  if (result != CL_SUCCESS) return false;
  if (ready_ != nullptr) next(ready_).clReleaseEvent(ready_);
  ready_ = event;
  return true;
}

bool ResultBuffer::write(const std::shared_ptr<const memory::Binding>& binding, uint64_t offset) {
  bindings_.push_back(binding);
  const std::vector<uint64_t>& words = binding->words;
  cl_event event = nullptr;
  const cl_int result = next(queue_).clEnqueueWriteBuffer(
      queue_, buffer_, CL_FALSE, offset, words.size() * sizeof(words[0]), words.data(),
      ready_ != nullptr, ready_ != nullptr ? &ready_ : nullptr, &event);
  return make_ready(result, event);
}

bool ResultBuffer::zero_ahead() {
  if (arena_.used() <= zeroed_) return true;
  const size_t begin = zeroed_;
  const size_t ahead = std::clamp(zeroed_, kLeastZeroBytes, kMostZeroBytes);
  zeroed_ = std::min(bindings_begin_, std::max<size_t>(arena_.used(), zeroed_ + ahead));
  return zero(begin, zeroed_);
}

bool ResultBuffer::zero(size_t begin, size_t end) {
  const cl_uchar zero = 0;
  cl_event event = nullptr;
  const cl_int result = next(queue_).clEnqueueFillBuffer(
      queue_, buffer_, &zero, sizeof(zero), begin, end - begin, ready_ != nullptr,
      ready_ != nullptr ? &ready_ : nullptr, &event);
  return make_ready(result, event);
}

memory::BindingLimits ResultBuffer::limits() const {
  memory::BindingLimits limits;
  // So that sixteen objects find room in one buffer, and a trace takes no more than a quarter.
  limits.map_bytes = arena_bytes_ / kMapShare;
  if (memory_options().trace) limits.trace_records = arena_bytes_ / 4 / memory::kTraceRecordBytes;
  limits.scratch = scratch_;
  return limits;
}

ResultBuffer::Progress ResultBuffer::progress() const {
  // From the back: what was launched last ends last, as a rule.
  bool all_ended = ready_ == nullptr || status_of(ready_) <= CL_COMPLETE;
  for (size_t i = launches_.size(); i-- > 0;) {
    const cl_int status = status_of(launches_[i].event);
    if (status == CL_RUNNING) return Progress::running;
    if (status > CL_COMPLETE) all_ended = false;
  }
  return all_ended ? Progress::ended : Progress::waiting;
}

bool ResultBuffer::wait_for_launches() {
  next(queue_).clFlush(queue_);
  const int64_t start_ns = now_ns();
  int64_t moved_ns = start_ns;
  while (true) {
    const Progress now = progress();
    if (now == Progress::ended) break;
    const int64_t time_ns = now_ns();
    if (now == Progress::running) moved_ns = time_ns;
    if (time_ns - moved_ns > kStalledNs || time_ns - start_ns > kLongestWaitNs) stalled_ = true;
    if (stalled_) return false;
    nanosleep(&kPoll, nullptr);
  }
  stalled_ = false;
  return true;
}

bool ResultBuffer::emit_rows() {
  // The events make the device's writes visible to our queue.
  std::vector<cl_event> ended;
  for (Launch& launch : launches_) {
    const cl_int status = status_of(launch.event);
    if (status == CL_COMPLETE) {
      ended.push_back(launch.event);
    } else if (!launch.is_lost) {
      launch.is_lost = true;
      report_loss("opencl", "access_object", 1,
                  status < 0 ? "a measured launch failed on the device"
                             : "a measured launch had not ended when the recording did",
                  status < 0 ? "" : "wait for it (clFinish) before the end");
    }
  }
  if (ended.empty()) return true;
  const Dispatch& cl = next(reader_);
  cl_int status = CL_SUCCESS;
  void* const mapped =
      cl.clEnqueueMapBuffer(reader_, buffer_, CL_TRUE, CL_MAP_READ, 0, arena_.used(),
                            static_cast<cl_uint>(ended.size()), ended.data(), nullptr, &status);
  if (mapped == nullptr || status != CL_SUCCESS) {
    report_loss("opencl", "access_object", static_cast<int64_t>(ended.size()),
                "the driver does not give the counts back: status " + std::to_string(status));
    return false;
  }
  for (Launch& launch : launches_) {
    if (!launch.is_lost)
      emit_launch(launch, static_cast<const uint8_t*>(mapped) + launch.slot_offset);
    launch.is_lost = true;  // its rows are written: there is nothing more to say about it
  }
  return cl.clEnqueueUnmapMemObject(reader_, buffer_, mapped, 0, nullptr, nullptr) == CL_SUCCESS &&
         cl.clFinish(reader_) == CL_SUCCESS;
}

void ResultBuffer::clear() {
  for (const Launch& launch : launches_) next(launch.event).clReleaseEvent(launch.event);
  launches_.clear();
  bindings_.clear();
  if (ready_ != nullptr) next(ready_).clReleaseEvent(ready_);
  ready_ = nullptr;
  arena_.reset();
  zeroed_ = 0;
  bindings_begin_ = arena_bytes_;
}

void ResultBuffer::harvest(bool now) {
  if (launches_.empty()) return;
  if (!now && arena_.used() < arena_bytes_ / kHarvestShare && now_ns() < harvest_at_ns_) return;
  if (progress() != Progress::ended) return;
  if (emit_rows()) clear();
}

void ResultBuffer::finish() {
  if (launches_.empty() || !emit_rows()) return;
  if (progress() == Progress::ended) clear();
}

void harvest_results(Queue& queue) {
  std::lock_guard lock(queue.results_mutex);
  if (queue.results != nullptr) queue.results->harvest(false);
}

void finish_results(Queue& queue) {
  std::lock_guard lock(queue.results_mutex);
  if (queue.results == nullptr) return;
  queue.results->finish();
}

void release_results(Queue& queue) {
  // A queue whose lock is taken is in use by another thread: next time.
  std::unique_lock lock(queue.results_mutex, std::try_to_lock);
  if (!lock || queue.results == nullptr) return;
  queue.results->harvest(true);
  if (queue.results->empty()) queue.results.reset();
}

}  // namespace pasta::opencl
