// Stands in front of CUPTI for a program that uses it itself (see backends/cupti/client.h). While pasta records
// CUDA, registrations end here; otherwise every call goes straight on.
#include <dlfcn.h>
#include <link.h>

#include <cstring>

#include "backends/cupti/client.h"
#include "backends/cupti/collector.h"
#include "backends/cupti/library.h"
#include "doors/export.h"

using pasta::cupti::Client;
using pasta::cupti::Collector;

namespace {

bool ours() { return Collector::instance().active(); }

// The program's own CUPTI: python loads it RTLD_LOCAL, where RTLD_NEXT does not look.
void* mapped_cupti() {
  const char* path = nullptr;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, "libcupti.so") == nullptr) return 0;
        *static_cast<const char**>(found) = info->dlpi_name;
        return 1;
      },
      &path);
  return path == nullptr ? nullptr : dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
}

template <class Function>
Function* next(const char* name) {
  void* symbol = dlsym(RTLD_NEXT, name);
  if (symbol == nullptr) {
    if (void* handle = mapped_cupti()) symbol = dlsym(handle, name);
  }
  return reinterpret_cast<Function*>(symbol);
}

// Calls the program's own CUPTI.
#define FORWARD(name, ...)                                                            \
  static const auto real = next<decltype(::name)>(#name);                             \
  return real == nullptr ? CUPTI_ERROR_NOT_INITIALIZED : real(__VA_ARGS__)

}  // namespace

PASTA_EXPORT CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                                 CUpti_BuffersCallbackCompleteFunc complete) {
  if (ours()) {
    Client::instance().register_buffers(request, complete);
    return CUPTI_SUCCESS;
  }
  FORWARD(cuptiActivityRegisterCallbacks, request, complete);
}

PASTA_EXPORT CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind kind) {
  if (ours()) return Collector::instance().client_changed(kind, true);
  FORWARD(cuptiActivityEnable, kind);
}

PASTA_EXPORT CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind kind) {
  if (ours()) return Collector::instance().client_changed(kind, false);
  FORWARD(cuptiActivityDisable, kind);
}

PASTA_EXPORT CUptiResult CUPTIAPI cuptiActivityEnableRuntimeApi(CUpti_CallbackId id, uint8_t enable) {
  if (ours()) return Collector::instance().client_changed_call(CUPTI_ACTIVITY_KIND_RUNTIME, id, enable != 0);
  FORWARD(cuptiActivityEnableRuntimeApi, id, enable);
}

PASTA_EXPORT CUptiResult CUPTIAPI cuptiActivityEnableDriverApi(CUpti_CallbackId id, uint8_t enable) {
  if (ours()) return Collector::instance().client_changed_call(CUPTI_ACTIVITY_KIND_DRIVER, id, enable != 0);
  FORWARD(cuptiActivityEnableDriverApi, id, enable);
}

PASTA_EXPORT CUptiResult CUPTIAPI cuptiActivityFlushAll(uint32_t flag) {
  if (ours()) {
    const CUptiResult result = pasta::cupti::library().call.cuptiActivityFlushAll(flag);
    Client::instance().flushed();
    return result;
  }
  FORWARD(cuptiActivityFlushAll, flag);
}

PASTA_EXPORT CUptiResult CUPTIAPI cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc callback) {
  static const auto real = next<decltype(::cuptiActivityRegisterTimestampCallback)>(
      "cuptiActivityRegisterTimestampCallback");
  if (real == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  if (!ours()) return real(callback);
  return Collector::instance().client_changed_clock([callback] { return real(callback); });
}

PASTA_EXPORT CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback,
                                                 void* user_data) {
  if (ours() && subscriber != nullptr) {
    Client::instance().subscribe(callback, user_data);
    *subscriber = Collector::instance().subscriber();
    return CUPTI_SUCCESS;
  }
  FORWARD(cuptiSubscribe, subscriber, callback, user_data);
}

PASTA_EXPORT CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle subscriber) {
  if (ours() && subscriber == Collector::instance().subscriber()) {
    return Client::instance().unsubscribe() ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
  }
  FORWARD(cuptiUnsubscribe, subscriber);
}

PASTA_EXPORT CUptiResult CUPTIAPI cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                                      CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  if (ours() && subscriber == Collector::instance().subscriber()) {
    Client::instance().want_callback(domain, id, enable != 0);
    if (enable == 0 && Collector::needs_callback(domain, id)) return CUPTI_SUCCESS;
    return pasta::cupti::library().call.cuptiEnableCallback(enable, subscriber, domain, id);
  }
  FORWARD(cuptiEnableCallback, enable, subscriber, domain, id);
}

PASTA_EXPORT CUptiResult CUPTIAPI cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                                    CUpti_CallbackDomain domain) {
  static const auto real = next<decltype(::cuptiEnableDomain)>("cuptiEnableDomain");
  if (real == nullptr) return CUPTI_ERROR_NOT_INITIALIZED;
  const CUptiResult result = real(enable, subscriber, domain);
  if (ours() && subscriber == Collector::instance().subscriber()) {
    Client::instance().want_domain(domain, enable != 0);
    if (enable == 0) Collector::instance().enable_callbacks();
  }
  return result;
}

// A client that tears CUPTI down would take pasta's registration with it.
PASTA_EXPORT CUptiResult CUPTIAPI cuptiFinalize() {
  if (ours()) return CUPTI_SUCCESS;
  FORWARD(cuptiFinalize);
}
