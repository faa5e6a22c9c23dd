// A program that is a CUPTI client itself (torch.profiler): CUPTI serves one, so pasta stands between.
//
// The door csrc/doors/cupti_symbols.cpp replaces the calls by which such a client registers. pasta keeps the
// only registration; the client's wishes are remembered here, the union of both is enabled, and the records of
// the kinds that the client asked for are copied into buffers of the client's own. It sees what it would
// see without pasta.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace pasta::cupti {

class Client {
 public:
  static Client& instance();

  void register_buffers(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete);
  void want(CUpti_ActivityKind kind, bool wanted);
  // One API call, by its callback id, on top of what want() said of its kind.
  void want_call(CUpti_ActivityKind kind, CUpti_CallbackId id, bool wanted);
  bool wants(CUpti_ActivityKind kind);
  bool wants_call(CUpti_ActivityKind kind, CUpti_CallbackId id);
  bool listens();  // it would be handed a part of the next buffer
  // Calls that the client switched off or on, one by one.
  std::map<uint32_t, bool> calls(CUpti_ActivityKind kind);
  // Hands the client its part of a buffer. Called before pasta decodes it, on the thread that CUPTI chose.
  void deliver(CUcontext context, uint32_t stream, uint8_t* buffer, size_t valid_bytes);
  // The client has flushed: records of kinds that it disabled before are all delivered.
  void flushed();

  void subscribe(CUpti_CallbackFunc callback, void* user_data);
  bool unsubscribe();  // false when the client was not subscribed
  void want_callback(CUpti_CallbackDomain domain, CUpti_CallbackId id, bool wanted);
  void want_domain(CUpti_CallbackDomain domain, bool wanted);
  void forward(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data);

 private:
  struct Buffer {
    uint8_t* data = nullptr;
    size_t bytes = 0, max_records = 0;
  };
  // What the client asked for, of one kind.
  struct Wish {
    bool all = false;
    std::map<uint32_t, bool> calls;
    bool any() const;
    bool holds(const CUpti_Activity& record) const;
  };
  void open_buffer();

  std::mutex mutex_;
  CUpti_BuffersCallbackRequestFunc request_ = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete_ = nullptr;
  std::map<int, Wish> wishes_;
  std::map<int, Wish> lingering_;  // disabled, but launches of before may still complete
  Buffer open_;  // a client asks for no flush before it was asked for a buffer, as CUPTI does at the first record

  CUpti_CallbackFunc callback_ = nullptr;
  void* user_data_ = nullptr;
  std::set<std::pair<int, uint32_t>> callbacks_;
  std::set<int> domains_;
};

}  // namespace pasta::cupti
