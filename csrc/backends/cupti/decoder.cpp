#include "backends/cupti/decoder.h"
#include "session/demangle.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <unistd.h>

#include "backends/cupti/library.h"

namespace pasta::cupti {
namespace {

template <class Record>
const Record& as(const CUpti_Activity& record) {
  return *reinterpret_cast<const Record*>(&record);
}

// The gate closes the activity kinds when it closes: what comes here was launched while it was open. Only room can have
// run out since.
bool was_open() { return (gate_state.load(std::memory_order_relaxed) & kClosedFull) == 0; }

// Rows that belong to no launch, and yet only to a part of the run. Launches are counted as their records come, in the
// order in which they ran, and so is what lies between them.
bool is_between(CUpti_ActivityKind kind) {
  return kind == CUPTI_ACTIVITY_KIND_MEMCPY || kind == CUPTI_ACTIVITY_KIND_MEMCPY2 ||
         kind == CUPTI_ACTIVITY_KIND_MEMSET || kind == CUPTI_ACTIVITY_KIND_RUNTIME ||
         kind == CUPTI_ACTIVITY_KIND_DRIVER;
}

}  // namespace

void Decoder::decode(const FilledBuffer& buffer, const ClockMap& clock) {
  CUpti_Activity* record = nullptr;
  while (library().call.cuptiActivityGetNextRecord(buffer.data, buffer.valid_bytes, &record) == CUPTI_SUCCESS) {
    decode(*record, clock);
  }
  size_t dropped = 0;
  library().call.cuptiActivityGetNumDroppedRecords(buffer.context, buffer.stream, &dropped);
  if (dropped > 0) {
    report_loss("cupti", "", static_cast<int64_t>(dropped), "CUPTI had no free activity buffer",
                "raise --buffer-size, or trace less");
  }
}

void Decoder::decode(const CUpti_Activity& record, const ClockMap& clock) {
  const uint32_t closed = gate_state.load(std::memory_order_relaxed) & (kClosedLaunch | kClosedFull);
  if (closed != 0 && is_between(record.kind)) return;
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: decode_kernel(as<CUpti_ActivityKernel9>(record), clock); break;
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: decode_graph(as<CUpti_ActivityGraphTrace>(record), clock); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY: emit(to_memcpy(as<CUpti_ActivityMemcpy5>(record), clock)); break;
    case CUPTI_ACTIVITY_KIND_MEMCPY2: emit(to_memcpy(as<CUpti_ActivityMemcpyPtoP4>(record), clock)); break;
    case CUPTI_ACTIVITY_KIND_MEMSET: emit(to_memset(as<CUpti_ActivityMemset4>(record), clock)); break;
    case CUPTI_ACTIVITY_KIND_MEMORY2: decode_alloc(as<CUpti_ActivityMemory3>(record), clock); break;
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: decode_api(as<CUpti_ActivityAPI>(record), clock); break;
    case CUPTI_ACTIVITY_KIND_DEVICE: decode_device(as<CUpti_ActivityDevice4>(record)); break;
    case CUPTI_ACTIVITY_KIND_STREAM: emit(to_stream(as<CUpti_ActivityStream>(record))); break;
    case CUPTI_ACTIVITY_KIND_CONTEXT: emit(to_context(as<CUpti_ActivityContext>(record))); break;
    case CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER: {
      const auto& counter = as<CUpti_ActivityUnifiedMemoryCounter2>(record);
      UvmRecord row = to_uvm(counter, clock);
      if (const std::string_view cause = uvm_cause(counter); !cause.empty()) row.cause = intern(cause);
      emit(row);
      break;
    }
    default: break;
  }
}

const Decoder::KernelName& Decoder::kernel_name(const char* name) {
  if (name == nullptr) name = "";
  KernelName& known = kernel_names_[name];
  if (known.readable_id.value == 0 || known.mangled != name) {
    known.mangled = name;
    known.readable = demangle(name);
    known.readable_id = intern(known.readable);
    known.mangled_id = known.readable == known.mangled ? StringId{} : intern(known.mangled);
    known.collective = collective_kind(known.readable);
  }
  return known;
}

void Decoder::decode_kernel(const CUpti_ActivityKernel9& record, const ClockMap& clock) {
  const KernelName& name = kernel_name(record.name);
  if (!select_launch(name.readable, was_open())) return;
  KernelRecord row = to_kernel(record, clock);
  row.launch_id = next_id();
  row.name = name.readable_id;
  row.mangled = name.mangled_id;
  emit(row);
  if (name.collective.empty()) return;
  CollectiveRecord collective;
  collective.start_ns = row.start_ns;
  collective.end_ns = row.end_ns;
  collective.device_id = row.device_id;
  collective.context_id = row.context_id;
  collective.stream_id = row.stream_id;
  collective.correlation_id = row.correlation_id;
  collective.kind = intern(name.collective);
  emit(collective);
}

void Decoder::decode_graph(const CUpti_ActivityGraphTrace& record, const ClockMap& clock) {
  const std::string name = "CUDA graph " + std::to_string(record.graphId);
  if (!select_launch(name, was_open())) return;
  KernelRecord row = to_kernel(record, clock);
  row.launch_id = next_id();
  row.name = intern(name);
  emit(row);
}

void Decoder::decode_alloc(const CUpti_ActivityMemory3& record, const ClockMap& clock) {
  AllocRecord row = to_alloc(record, clock);
  if (row.action == AllocAction::alloc) {
    row.object_id = next_id();
    objects_[row.address] = {row.object_id, row.bytes, row.kind};
  } else if (const auto object = objects_.find(row.address); object != objects_.end()) {
    row.object_id = object->second.object_id;
    row.bytes = object->second.bytes;
    row.kind = object->second.kind;
    objects_.erase(object);
  }
  emit(row);
}

const Decoder::Call& Decoder::call_name(const CUpti_ActivityAPI& record) {
  const CUpti_CallbackId id = record.cbid;
  const auto domain =
      record.kind == CUPTI_ACTIVITY_KIND_DRIVER ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API;
  Call& call = calls_[uint64_t{domain} << 32 | id];
  if (call.name.value == 0) {
    const char* name = nullptr;
    if (library().call.cuptiGetCallbackName(domain, id, &name) != CUPTI_SUCCESS || name == nullptr) name = "unknown";
    call.selected = traces_all_api() || is_selected_call(name);
    call.waits_for = to_sync_kind(name);
    std::string_view text = name;
    // cudaLaunchKernel_v7000: the version tells users nothing.
    const size_t version = text.rfind("_v");
    if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && version != std::string_view::npos) text = text.substr(0, version);
    call.name = intern(text);
  }
  return call;
}

void Decoder::decode_api(const CUpti_ActivityAPI& record, const ClockMap& clock) {
  if (!call_name(record).selected) return;  // another client of CUPTI enabled it
  if (const std::string_view what = fault(static_cast<int32_t>(record.returnValue)); !what.empty()) {
    report_loss("cupti", "kernel", kNullI64,
                "a kernel of the program failed (" + std::string(what) + "): it and what ran with it are missing",
                "compute-sanitizer finds the place in the kernel");
  }
  const auto outer = [&](const CUpti_ActivityAPI& call) { emit_call(call, clock); };
  // The runtime may wait in a call that is not named for it.
  const auto inner = [&](const CUpti_ActivityAPI& call, const CUpti_ActivityAPI& of) {
    if (call_name(of).waits_for == SyncKind::null) emit_wait(call, call_name(call).waits_for, clock);
  };
  outer_calls_.add(record, outer, inner);
}

void Decoder::release_calls(const ClockMap& clock) {
  outer_calls_.release([&](const CUpti_ActivityAPI& call) { emit_call(call, clock); });
}

void Decoder::emit_call(const CUpti_ActivityAPI& record, const ClockMap& clock) {
  const Call& call = call_name(record);
  ApiRecord row = to_api(record, clock);
  row.name = call.name;
  note_thread(row.thread_id);
  emit(row);
  emit_wait(record, call.waits_for, clock);
}

void Decoder::emit_wait(const CUpti_ActivityAPI& record, SyncKind kind, const ClockMap& clock) {
  if (kind == SyncKind::null) return;
  const ApiRecord call = to_api(record, clock);
  SyncRecord sync;
  sync.start_ns = call.start_ns;
  sync.end_ns = call.end_ns;
  sync.thread_id = call.thread_id;
  sync.correlation_id = call.correlation_id;
  sync.kind = kind;
  emit(sync);
}

void Decoder::note_thread(int32_t thread_id) {
  if (!threads_.insert(thread_id).second) return;
  ThreadRecord row;
  row.thread_id = thread_id;
  char path[64], name[64] = {};
  std::snprintf(path, sizeof(path), "/proc/self/task/%d/comm", thread_id);
  if (std::FILE* file = std::fopen(path, "re")) {
    if (std::fgets(name, sizeof(name), file) != nullptr) {
      name[std::strcspn(name, "\n")] = '\0';
      row.name = intern(name);
    }
    std::fclose(file);
  }
  emit(row);
}

void Decoder::decode_device(const CUpti_ActivityDevice4& record) {
  DeviceRecord row = to_device(record);
  row.vendor = intern("NVIDIA");
  if (record.name != nullptr) row.name = intern(record.name);
  char text[41];
  format_uuid(record.uuid, text);
  row.uuid = intern(text);
  std::snprintf(text, sizeof(text), "%u.%u", record.computeCapabilityMajor, record.computeCapabilityMinor);
  row.architecture = intern(text);
  std::snprintf(text, sizeof(text), "CUDA, CUPTI %u", library().version);
  row.platform = intern(text);
  emit(row);
}

}  // namespace pasta::cupti
