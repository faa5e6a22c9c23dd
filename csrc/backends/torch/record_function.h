// at::RecordFunction without its headers: what libtorch tells about the operators that it runs.
//
// libtorch makes one RecordFunction for each operator, autograd node and annotation, on the thread
// that runs it, and calls the registered global callbacks when it starts and when it is destroyed
// (exceptions included). pasta registers through exported, mangled names and asks a RecordFunction
// only through exported functions. Two things cross the border by value and are checked by running
// them (self_test) before anything is registered for good:
//   - the description of a callback (40 bytes in torch 2.0 to 2.14, see CallbackDescription);
//   - the position of the sequence number in a RecordFunction, which no function returns: it is
//   searched for
//     in an object that was made with a known number. Not found: sequence numbers stay null.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pasta::torch {

// Incomplete on purpose.
struct RecordFunction;

// What a start callback may attach to the RecordFunction until its end callback has run. libtorch
// destroys it through the virtual destructor, the only member that at::ObserverContext has as well.
class ObserverContext {
 public:
  virtual ~ObserverContext() = default;
};

using StartCallback = std::unique_ptr<ObserverContext> (*)(const RecordFunction&);
using EndCallback = void (*)(const RecordFunction&, ObserverContext*);
using CallbackHandle = uint64_t;

// at::RecordScope.
enum class Scope : uint8_t { function = 0, backward_function = 1, user = 7 };
inline constexpr size_t kScopes = 10;

// at::RecordFunctionCallback, passed by value. The padding keeps what libtorch would read zero if a
// later version had more members; an argument that is longer than the callee expects does no harm.
struct CallbackDescription {
  StartCallback start;
  EndCallback end;
  double sampling_probability = 1.0;
  bool scopes[kScopes] = {};
  bool needs_inputs = false;
  bool needs_outputs = false;
  bool needs_ids = false;
  char padding[27] = {};
};
static_assert(offsetof(CallbackDescription, scopes) == 24 && sizeof(CallbackDescription) == 64);

// Looks the functions up in the loaded libtorch; empty when all are there, else the first one
// missing.
std::string find_record_function();

// True when this thread runs callbacks at all (torch._C._EnableRecordFunction).
bool record_function_enabled();

// Makes RecordFunctions of its own and sees whether a callback gets them as it should; returns what
// went wrong, empty when nothing did. Runs no operator. Also finds the sequence number.
std::string self_test();

CallbackHandle add_global_callback(const CallbackDescription& callback);
void enable_callback(CallbackHandle handle, bool enable);

// Of a RecordFunction that is running. The name lives as long as it.
const char* name(const RecordFunction& function);
bool is_async(const RecordFunction& function);            // may end later, on another thread
int64_t sequence_number(const RecordFunction& function);  // kNullI64 without one

// True when this thread's operations are recorded by autograd.
bool grad_mode();

}  // namespace pasta::torch
