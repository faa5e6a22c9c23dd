// Turns filled activity buffers into rows: names, memory objects and threads are remembered here, the rest
// is normalize.h. Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backends/cupti/buffers.h"
#include "backends/cupti/normalize.h"
#include "backends/cupti/outer_calls.h"
#include "session/session.h"

namespace pasta::cupti {

class Decoder {
 public:
  void decode(const FilledBuffer& buffer, const ClockMap& clock);
  // Emits the calls that wait for the next of their thread (outer_calls.h).
  void release_calls(const ClockMap& clock);

 private:
  struct KernelName {
    std::string mangled;  // as CUPTI gave it, to see that the pointer still means this kernel
    std::string readable;
    StringId mangled_id, readable_id;
    std::string_view collective;
  };
  struct MemoryObject {
    int64_t object_id, bytes;
    MemoryKind kind;
  };
  struct Call {
    StringId name;
    bool selected;
    SyncKind waits_for;
  };

  void decode(const CUpti_Activity& record, const ClockMap& clock);
  void decode_kernel(const CUpti_ActivityKernel9& record, const ClockMap& clock);
  void decode_graph(const CUpti_ActivityGraphTrace& record, const ClockMap& clock);
  void decode_alloc(const CUpti_ActivityMemory3& record, const ClockMap& clock);
  void decode_api(const CUpti_ActivityAPI& record, const ClockMap& clock);
  void emit_call(const CUpti_ActivityAPI& record, const ClockMap& clock);
  void emit_wait(const CUpti_ActivityAPI& record, SyncKind kind, const ClockMap& clock);
  void decode_device(const CUpti_ActivityDevice4& record);
  const KernelName& kernel_name(const char* name);
  const Call& call_name(const CUpti_ActivityAPI& record);
  void note_thread(int32_t thread_id);

  std::unordered_map<const char*, KernelName> kernel_names_;
  std::unordered_map<int64_t, MemoryObject> objects_;  // by address
  std::unordered_map<uint64_t, Call> calls_;           // by domain and callback id
  std::unordered_set<int32_t> threads_;
  OuterCalls outer_calls_;
};

}  // namespace pasta::cupti
