// A libtorch with the names that pasta uses and none of the rest, in variants that real ones might
// become:
//   -DNO_CALLBACKS    addGlobalCallback is gone
//   -DNEVER_CALLS     callbacks are taken and not called
//   -DOTHER_LAYOUT    the callback is not the struct that it was: addGlobalCallback crashes
//   -DHANGS           addGlobalCallback does not return
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

namespace c10 {

class GradMode {
 public:
  static bool is_enabled();
};
bool GradMode::is_enabled() { return true; }

}  // namespace c10

namespace at {

struct ObserverContext {
  virtual ~ObserverContext() = default;
};
enum class RecordScope : uint8_t { FUNCTION = 0, USER_SCOPE = 7 };
struct RecordFunction;

struct RecordFunctionCallback {
  std::unique_ptr<ObserverContext> (*start)(const RecordFunction&);
  void (*end)(const RecordFunction&, ObserverContext*);
  double sampling;
  bool scopes[10];
  bool needs[3];
};

RecordFunctionCallback g_callback;
bool g_enabled = false;

struct RecordFunction {
  explicit RecordFunction(RecordScope scope);
  ~RecordFunction();
  void before(const char* name, int64_t sequence);
  void _setAsync();
  bool isAsync() const;
  const char* name() const;

  bool runs() const { return g_enabled && g_callback.scopes[static_cast<int>(scope_)]; }
  RecordScope scope_;
  bool async_ = false;
  int64_t sequence_ = -1;
  std::string name_;
};

RecordFunction::RecordFunction(RecordScope scope) : scope_(scope) {}
RecordFunction::~RecordFunction() {
#ifndef NEVER_CALLS
  if (runs()) g_callback.end(*this, nullptr);
#endif
}
void RecordFunction::before(const char* name, int64_t sequence) {
  name_ = name;
  sequence_ = sequence;
#ifndef NEVER_CALLS
  if (runs()) g_callback.start(*this);
#endif
}
void RecordFunction::_setAsync() { async_ = true; }
bool RecordFunction::isAsync() const { return async_; }
const char* RecordFunction::name() const { return name_.c_str(); }

#ifndef NO_CALLBACKS
uint64_t addGlobalCallback(RecordFunctionCallback callback) {
#ifdef OTHER_LAYOUT
  return *reinterpret_cast<volatile uint64_t*>(callback.scopes[0] ? 8 : 16);
#endif
#ifdef HANGS
  for (;;) pause();
#endif
  g_callback = callback;
  g_enabled = true;
  return 1;
}
#endif
void removeCallback(uint64_t) { g_enabled = false; }
void disableCallback(uint64_t) { g_enabled = false; }
void reenableCallback(uint64_t) { g_enabled = true; }
bool isRecordFunctionEnabled() { return true; }

}  // namespace at

// Runs one operator.
extern "C" void run_operator(const char* name, int64_t sequence) {
  at::RecordFunction function(at::RecordScope::FUNCTION);
  function.before(name, sequence);
}
