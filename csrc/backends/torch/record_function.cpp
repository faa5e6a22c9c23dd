#include "backends/torch/record_function.h"

#include <cstring>
#include <functional>
#include <string_view>
#include <type_traits>
#include <variant>

#include "backends/torch/libtorch.h"
#include "schema/types.h"

namespace pasta::torch {
namespace {

// std::variant<std::string_view, std::reference_wrapper<const c10::FunctionSchema>>.
using Descriptor = std::variant<std::string_view, std::reference_wrapper<const RecordFunction>>;
static_assert(std::is_trivially_copyable_v<Descriptor>);

struct Functions {
  const char* (*name)(const RecordFunction*);
  bool (*is_async)(const RecordFunction*);
  CallbackHandle (*add_global_callback)(CallbackDescription);
  void (*remove_callback)(CallbackHandle);
  void (*disable_callback)(CallbackHandle);
  void (*reenable_callback)(CallbackHandle);
  bool (*enabled)();
  bool (*grad_mode)();
  void (*construct)(void*, Scope);
  void (*destroy)(void*);
  void (*set_async)(void*);
  // One of these: libtorch's signature changed between 2.8 and 2.11.
  void (*before_text)(void*, const char*, int64_t);
  void (*before_descriptor)(void*, Descriptor, int64_t);
};

Functions g_functions;
// Bytes from a RecordFunction to its sequence number; negative when unknown.
std::ptrdiff_t g_sequence_offset = -1;

struct Symbol {
  void** function;
  Library library;
  const char* name;
};

template <class Function>
Symbol symbol(Function*& function, const char* name, Library library = Library::torch_cpu) {
  return {reinterpret_cast<void**>(&function), library, name};
}

// A RecordFunction of our own, big enough for that of any version (about 350 bytes in 2.13).
class Probe {
 public:
  static constexpr size_t kBytes = 4096;

  explicit Probe(Scope scope) { g_functions.construct(object_, scope); }
  ~Probe() { g_functions.destroy(object_); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  void run(const char* name, int64_t sequence) {
    if (g_functions.before_text != nullptr) {
      g_functions.before_text(object_, name, sequence);
    } else {
      g_functions.before_descriptor(object_, Descriptor(std::string_view(name)), sequence);
    }
  }
  void set_async() { g_functions.set_async(object_); }
  const RecordFunction& function() const {
    return *reinterpret_cast<const RecordFunction*>(object_);
  }

  // Where the only 8 bytes that hold `value` are; negative when there are none, or several.
  std::ptrdiff_t find(int64_t value) const {
    std::ptrdiff_t found = -1;
    for (size_t at = 0; at < kBytes; at += sizeof(value)) {
      if (std::memcmp(object_ + at, &value, sizeof(value)) != 0) continue;
      if (found >= 0) return -1;
      found = static_cast<std::ptrdiff_t>(at);
    }
    return found;
  }

 private:
  alignas(64) char object_[kBytes] = {};
};

constexpr const char* kProbeName = "pasta self-test";
constexpr int64_t kProbeSequence = 0x7061737461'2b31;

// What the callbacks of the self-test saw. Other threads may run operators meanwhile: theirs are
// not ours.
struct Seen {
  const RecordFunction* probe = nullptr;
  bool started = false, ended = false, name_is_right = false;
};
Seen* g_seen = nullptr;

std::unique_ptr<ObserverContext> probe_started(const RecordFunction& function) noexcept {
  Seen* seen = g_seen;
  if (seen != nullptr && seen->probe == &function) {
    seen->started = true;
    const char* text = g_functions.name(&function);
    seen->name_is_right = text != nullptr && std::strcmp(text, kProbeName) == 0;
  }
  return nullptr;
}

void probe_ended(const RecordFunction& function, ObserverContext*) noexcept {
  Seen* seen = g_seen;
  if (seen != nullptr && seen->probe == &function) seen->ended = true;
}

Seen watch_probe(Scope scope) {
  Seen seen;
  {
    Probe probe(scope);
    seen.probe = &probe.function();
    g_seen = &seen;
    probe.run(kProbeName, kProbeSequence);
    if (seen.started) g_sequence_offset = probe.find(kProbeSequence);
  }
  g_seen = nullptr;
  return seen;
}

bool async_is_told() {
  Probe probe(Scope::user);
  if (is_async(probe.function())) return false;
  probe.set_async();
  return is_async(probe.function());
}

std::string watch_probes() {
  const Seen function = watch_probe(Scope::function);
  if (!function.started) return "a callback was not called";
  if (!function.ended) return "a callback was not called at the end";
  if (!function.name_is_right) return "the name of an operator could not be read";
  if (watch_probe(Scope::user).started)
    return "a callback was called for a scope that it did not ask for";
  if (!async_is_told()) return "asynchronous annotations could not be told from others";
  return {};
}

}  // namespace

std::string find_record_function() {
  Functions& f = g_functions;
  const Symbol needed[] = {
      symbol(f.name, "_ZNK2at14RecordFunction4nameEv"),
      symbol(f.is_async, "_ZNK2at14RecordFunction7isAsyncEv"),
      symbol(f.add_global_callback, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE"),
      symbol(f.remove_callback, "_ZN2at14removeCallbackEm"),
      symbol(f.disable_callback, "_ZN2at15disableCallbackEm"),
      symbol(f.reenable_callback, "_ZN2at16reenableCallbackEm"),
      symbol(f.enabled, "_ZN2at23isRecordFunctionEnabledEv"),
      symbol(f.construct, "_ZN2at14RecordFunctionC1ENS_11RecordScopeE"),
      symbol(f.destroy, "_ZN2at14RecordFunctionD1Ev"),
      symbol(f.set_async, "_ZN2at14RecordFunction9_setAsyncEv"),
      symbol(f.grad_mode, "_ZN3c108GradMode10is_enabledEv", Library::c10),
  };
  for (const Symbol& needs : needed) {
    *needs.function = find_symbol(needs.library, needs.name);
    if (*needs.function == nullptr) return needs.name;
  }
  constexpr const char* kBeforeDescriptor =
      "_ZN2at14RecordFunction6beforeESt7variantIJSt17basic_string_viewIcSt11char_traitsIcEE"
      "St17reference_wrapperIKN3c1014FunctionSchemaEEEEl";
  f.before_text = find_function<void(void*, const char*, int64_t)>(
      Library::torch_cpu, "_ZN2at14RecordFunction6beforeEPKcl");
  f.before_descriptor =
      find_function<void(void*, Descriptor, int64_t)>(Library::torch_cpu, kBeforeDescriptor);
  if (f.before_text == nullptr && f.before_descriptor == nullptr) return kBeforeDescriptor;
  return {};
}

bool record_function_enabled() { return g_functions.enabled(); }

std::string self_test() {
  CallbackDescription callback{probe_started, probe_ended};
  callback.scopes[static_cast<size_t>(Scope::function)] = true;
  const CallbackHandle handle = g_functions.add_global_callback(callback);
  const std::string failure = watch_probes();
  g_functions.remove_callback(handle);
  return failure;
}

CallbackHandle add_global_callback(const CallbackDescription& callback) {
  return g_functions.add_global_callback(callback);
}

void enable_callback(CallbackHandle handle, bool enable) {
  (enable ? g_functions.reenable_callback : g_functions.disable_callback)(handle);
}

const char* name(const RecordFunction& function) {
  const char* text = g_functions.name(&function);
  return text == nullptr ? "" : text;
}

bool is_async(const RecordFunction& function) { return g_functions.is_async(&function); }

int64_t sequence_number(const RecordFunction& function) {
  if (g_sequence_offset < 0) return kNullI64;
  int64_t number;
  std::memcpy(&number, reinterpret_cast<const char*>(&function) + g_sequence_offset,
              sizeof(number));
  return number < 0 ? kNullI64 : number;  // libtorch: -1 is none
}

bool grad_mode() { return g_functions.grad_mode(); }

}  // namespace pasta::torch
