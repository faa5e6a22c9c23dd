#include "backends/cupti/client.h"

#include <algorithm>
#include <cstring>

#include "backends/cupti/library.h"

namespace pasta::cupti {
namespace {

bool is_call(int kind) { return kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER; }

}  // namespace

bool Client::Wish::any() const {
  return all || std::any_of(calls.begin(), calls.end(), [](const auto& call) { return call.second; });
}

bool Client::Wish::holds(const CUpti_Activity& record) const {
  if (!is_call(record.kind)) return all;
  const auto call = calls.find(reinterpret_cast<const CUpti_ActivityAPI&>(record).cbid);
  return call == calls.end() ? all : call->second;
}

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

void Client::open_buffer() {
  CUpti_BuffersCallbackRequestFunc request;
  {
    std::lock_guard lock(mutex_);
    if (request_ == nullptr || open_.data != nullptr) return;
    request = request_;
  }
  // The client's callbacks take the client's locks: call them without ours.
  Buffer buffer;
  request(&buffer.data, &buffer.bytes, &buffer.max_records);
  std::lock_guard lock(mutex_);
  open_ = buffer;
}

void Client::want(CUpti_ActivityKind kind, bool wanted) {
  {
    std::lock_guard lock(mutex_);
    if (wanted) {
      wishes_[kind].all = true;
      lingering_.erase(kind);
    } else if (const auto wish = wishes_.find(kind); wish != wishes_.end()) {
      lingering_[kind] = wish->second;
      wishes_.erase(wish);
    }
  }
  if (wanted) open_buffer();
}

void Client::want_call(CUpti_ActivityKind kind, CUpti_CallbackId id, bool wanted) {
  {
    std::lock_guard lock(mutex_);
    wishes_[kind].calls[id] = wanted;
  }
  if (wanted) open_buffer();
}

bool Client::wants(CUpti_ActivityKind kind) {
  std::lock_guard lock(mutex_);
  const auto wish = wishes_.find(kind);
  return wish != wishes_.end() && wish->second.all;
}

bool Client::wants_call(CUpti_ActivityKind kind, CUpti_CallbackId id) {
  std::lock_guard lock(mutex_);
  const auto wish = wishes_.find(kind);
  if (wish == wishes_.end()) return false;
  const auto call = wish->second.calls.find(id);
  return call == wish->second.calls.end() ? wish->second.all : call->second;
}

bool Client::listens() {
  std::lock_guard lock(mutex_);
  return request_ != nullptr && complete_ != nullptr && !(wishes_.empty() && lingering_.empty());
}

std::map<uint32_t, bool> Client::calls(CUpti_ActivityKind kind) {
  std::lock_guard lock(mutex_);
  const auto wish = wishes_.find(kind);
  return wish == wishes_.end() ? std::map<uint32_t, bool>() : wish->second.calls;
}

void Client::flushed() {
  std::lock_guard lock(mutex_);
  lingering_.clear();
}

void Client::deliver(CUcontext context, uint32_t stream, uint8_t* source, size_t valid_bytes) {
  CUpti_BuffersCallbackRequestFunc request;
  CUpti_BuffersCallbackCompleteFunc complete;
  std::map<int, Wish> wishes;
  Buffer buffer;
  {
    std::lock_guard lock(mutex_);
    if (request_ == nullptr || complete_ == nullptr || (wishes_.empty() && lingering_.empty())) return;
    request = request_;
    complete = complete_;
    wishes = wishes_;
    wishes.insert(lingering_.begin(), lingering_.end());
    std::swap(buffer, open_);
  }
  size_t used = 0, records = 0;
  const auto next = library().call.cuptiActivityGetNextRecord;
  CUpti_Activity* record = nullptr;
  bool more = next(source, valid_bytes, &record) == CUPTI_SUCCESS;
  while (more) {
    const CUpti_Activity* const current = record;
    const auto* begin = reinterpret_cast<const uint8_t*>(current);
    more = next(source, valid_bytes, &record) == CUPTI_SUCCESS;
    const auto wish = wishes.find(current->kind);
    if (wish == wishes.end() || !wish->second.holds(*current)) continue;
    // Records follow one another: the next one's place, or the end, tells the size.
    const uint8_t* end = more ? reinterpret_cast<const uint8_t*>(record) : source + valid_bytes;
    const auto bytes = static_cast<size_t>(end - begin);
    const bool full = used + bytes > buffer.bytes || (buffer.max_records != 0 && records == buffer.max_records);
    if (buffer.data != nullptr && full) {
      complete(context, stream, buffer.data, buffer.bytes, used);
      buffer = {};
      used = records = 0;
    }
    if (buffer.data == nullptr) request(&buffer.data, &buffer.bytes, &buffer.max_records);
    if (buffer.data == nullptr || bytes > buffer.bytes) continue;  // no room: lost without pasta too
    std::memcpy(buffer.data + used, begin, bytes);
    used += bytes;
    ++records;
  }
  if (used > 0) {
    complete(context, stream, buffer.data, buffer.bytes, used);
  } else if (buffer.data != nullptr) {
    std::lock_guard lock(mutex_);
    open_ = buffer;
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
