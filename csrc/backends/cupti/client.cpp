#include "backends/cupti/client.h"

#include <algorithm>
#include <cstring>

#include "backends/cupti/library.h"

namespace pasta::cupti {
namespace {

// A buffer of the client's, filled record by record.
class ClientBuffer {
 public:
  ClientBuffer(CUpti_BuffersCallbackRequestFunc request, CUpti_BuffersCallbackCompleteFunc complete,
               CUcontext context, uint32_t stream)
      : request_(request), complete_(complete), context_(context), stream_(stream) {}
  ~ClientBuffer() { hand_over(); }

  void append(const uint8_t* record, size_t bytes) {
    if (data_ != nullptr && (used_ + bytes > size_ || (max_records_ != 0 && records_ == max_records_))) hand_over();
    if (data_ == nullptr) request_(&data_, &size_, &max_records_);
    if (data_ == nullptr || bytes > size_) return;  // the client gave none, which loses records without pasta too
    std::memcpy(data_ + used_, record, bytes);
    used_ += bytes;
    ++records_;
  }

 private:
  void hand_over() {
    if (data_ != nullptr) complete_(context_, stream_, data_, size_, used_);
    data_ = nullptr;
    used_ = records_ = 0;
  }

  CUpti_BuffersCallbackRequestFunc request_;
  CUpti_BuffersCallbackCompleteFunc complete_;
  CUcontext context_;
  uint32_t stream_;
  uint8_t* data_ = nullptr;
  size_t size_ = 0, max_records_ = 0, used_ = 0, records_ = 0;
};

}  // namespace

Client& Client::instance() {
  static Client* const client = new Client;
  return *client;
}

void Client::register_buffers(CUpti_BuffersCallbackRequestFunc request,
                              CUpti_BuffersCallbackCompleteFunc complete) {
  std::lock_guard lock(mutex_);
  request_ = request;
  complete_ = complete;
}

void Client::want(CUpti_ActivityKind kind, bool wanted) {
  std::lock_guard lock(mutex_);
  if (wanted) {
    wanted_.insert(kind);
    lingering_.erase(kind);
  } else if (wanted_.erase(kind) != 0) {
    lingering_.insert(kind);
  }
}

bool Client::wants(CUpti_ActivityKind kind) {
  std::lock_guard lock(mutex_);
  return wanted_.count(kind) != 0;
}

void Client::flushed() {
  std::lock_guard lock(mutex_);
  lingering_.clear();
}

void Client::deliver(CUcontext context, uint32_t stream, uint8_t* buffer, size_t valid_bytes) {
  CUpti_BuffersCallbackRequestFunc request;
  CUpti_BuffersCallbackCompleteFunc complete;
  std::set<int> kinds;
  {
    // The client's callbacks take the client's locks: call them without ours.
    std::lock_guard lock(mutex_);
    if (request_ == nullptr || complete_ == nullptr || (wanted_.empty() && lingering_.empty())) return;
    request = request_;
    complete = complete_;
    kinds = wanted_;
    kinds.insert(lingering_.begin(), lingering_.end());
  }
  ClientBuffer target(request, complete, context, stream);
  const auto next = library().call.cuptiActivityGetNextRecord;
  CUpti_Activity* record = nullptr;
  bool more = next(buffer, valid_bytes, &record) == CUPTI_SUCCESS;
  while (more) {
    const auto* begin = reinterpret_cast<const uint8_t*>(record);
    const int kind = record->kind;
    more = next(buffer, valid_bytes, &record) == CUPTI_SUCCESS;
    // Records follow one another: the next one's place, or the end, tells the size.
    const uint8_t* end = more ? reinterpret_cast<const uint8_t*>(record) : buffer + valid_bytes;
    if (kinds.count(kind) != 0) target.append(begin, static_cast<size_t>(end - begin));
  }
}

void Client::subscribe(CUpti_CallbackFunc callback, void* user_data) {
  std::lock_guard lock(mutex_);
  callback_ = callback;
  user_data_ = user_data;
}

bool Client::unsubscribe() {
  std::lock_guard lock(mutex_);
  const bool was = callback_ != nullptr;
  callback_ = nullptr;
  callbacks_.clear();
  domains_.clear();
  return was;
}

void Client::want_callback(CUpti_CallbackDomain domain, CUpti_CallbackId id, bool wanted) {
  std::lock_guard lock(mutex_);
  if (wanted) callbacks_.insert({domain, id});
  else callbacks_.erase({domain, id});
}

void Client::want_domain(CUpti_CallbackDomain domain, bool wanted) {
  std::lock_guard lock(mutex_);
  if (wanted) domains_.insert(domain);
  else domains_.erase(domain);
}

void Client::forward(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  CUpti_CallbackFunc callback = nullptr;
  void* user_data = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (callback_ == nullptr || (domains_.count(domain) == 0 && callbacks_.count({domain, id}) == 0)) return;
    callback = callback_;
    user_data = user_data_;
  }
  callback(user_data, domain, id, data);
}

}  // namespace pasta::cupti
