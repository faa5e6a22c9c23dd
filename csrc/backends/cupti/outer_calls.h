// Which calls the program made: the runtime does its work by calls of the driver or of its own, and CUPTI may record
// both, with one correlation id. As in Nsight Systems, the outer one counts. Used by one thread.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace pasta::cupti {

class OuterCalls {
 public:
  using Call = CUpti_ActivityAPI;

  // Takes the next record of a call. Calls `outer(call)` for each call that is known to be the program's own, in the
  // order of its thread, and `inner(call, its_outer)` for each that another one made. A record is written when the call
  // returns, the inner one's first: each waits here for the next of its thread.
  template <class Outer, class Inner>
  void add(const Call& call, Outer&& outer, Inner&& inner) {
    const uint32_t thread = call.threadId;  // the record is packed: no reference to its fields
    std::vector<Call>& waiting = waiting_[thread];
    if (!waiting.empty() && waiting.front().correlationId != call.correlationId) release(waiting, outer);
    for (const Call& before : waiting) {
      if (within(call, before)) return inner(call, before);
    }
    size_t kept = 0;
    for (const Call& before : waiting) {
      if (within(before, call)) inner(before, call);
      else waiting[kept++] = before;
    }
    waiting.resize(kept);
    waiting.push_back(call);
    any_ = true;
  }

  // Waits no longer.
  template <class Outer>
  void release(Outer&& outer) {
    if (!any_) return;
    any_ = false;
    for (auto& thread : waiting_) release(thread.second, outer);
  }

 private:
  static bool within(const Call& inner, const Call& outer) {
    return inner.start >= outer.start && inner.end <= outer.end;
  }

  template <class Outer>
  static void release(std::vector<Call>& waiting, Outer& outer) {
    for (const Call& call : waiting) outer(call);
    waiting.clear();
  }

  std::unordered_map<uint32_t, std::vector<Call>> waiting_;  // by thread; calls of one correlation id
  bool any_ = false;  // waits
};

}  // namespace pasta::cupti
