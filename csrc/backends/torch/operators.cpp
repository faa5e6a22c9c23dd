#include "backends/torch/operators.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string_view>

#include "backends/torch/frames.h"
#include "backends/torch/record_function.h"
#include "session/session.h"

namespace pasta::torch {
namespace {

std::atomic<bool> g_saw_operators{false};

std::mutex g_gate_mutex;
bool g_enabled = false;  // the operator callbacks; by g_gate_mutex
CallbackHandle g_operator_callback, g_backward_callback;

bool push(const Frame& frame) {
  if (this_thread_frames().push(frame)) return true;
  report_loss("torch", frame.kind == Frame::Kind::range ? "range" : "op", 1, "out of memory");
  return false;
}

// -- Leaving frames
// --------------------------------------------------------------------------------

// Ends the innermost frame. Its row names the operator outside of it as parent.
void close_top(FrameStack& frames, int64_t end_ns) {
  const Frame frame = *frames.top();
  frames.pop();
  if (!frame.live) return;
  if (frame.kind == Frame::Kind::range) {
    range_pop(AnnotationSource::record_function);
  } else if (frame.kind == Frame::Kind::op) {
    const Frame* outer = frames.top();
    OpRecord row;
    row.start_ns = frame.start_ns;
    row.end_ns = end_ns;
    row.thread_id = thread_id();
    row.op_id = frame.op_id;
    row.parent_id = outer == nullptr ? kNullI64 : outer->op_id;
    row.name = frame.name;
    row.phase = frame.phase;
    row.sequence = frame.sequence;
    row.module = frame.module;
    set_current_op(row.parent_id);
    emit(row);
  }
}

// Ends the frames down to that of `function` and returns true; false when this thread is not in it.
bool close_through(const RecordFunction& function) {
  const int64_t end_ns = now_ns();
  FrameStack& frames = this_thread_frames();
  uint32_t at = frames.size();
  while (at > 0 && frames[at - 1].function != &function) --at;
  if (at == 0) return false;
  while (frames.size() >= at) close_top(frames, end_ns);
  return true;
}

// -- Operators
// -------------------------------------------------------------------------------------

void enter_operator(const RecordFunction& function, bool backward) {
  if (!collecting()) return;
  Frame frame = frame_inside(this_thread_frames().top(), Frame::Kind::op);
  const std::string_view text = name(function);
  frame.function = &function;
  frame.live = true;
  frame.name = intern(text);
  frame.phase = backward ? OpPhase::backward : phase_of_operator(text, frame.phase, grad_mode());
  frame.sequence = sequence_number(function);
  frame.op_id = next_id();
  frame.start_ns = now_ns();
  if (!push(frame)) return;
  set_current_op(frame.op_id);
  g_saw_operators.store(true, std::memory_order_relaxed);
}

std::unique_ptr<ObserverContext> operator_started(const RecordFunction& function) noexcept {
  enter_operator(function, false);
  return nullptr;
}

std::unique_ptr<ObserverContext> backward_started(const RecordFunction& function) noexcept {
  enter_operator(function, true);
  return nullptr;
}

// Not on the stack: it started while nothing was collected.
void operator_ended(const RecordFunction& function, ObserverContext*) noexcept {
  close_through(function);
}

// -- Annotations
// -----------------------------------------------------------------------------------

// An annotation that ends on whatever thread finishes the work: a collective, a remote call.
class AsyncAnnotation : public ObserverContext {
 public:
  explicit AsyncAnnotation(int64_t range_id) : range_id_(range_id) {}
  int64_t range_id() const { return range_id_; }

 private:
  int64_t range_id_;
};

std::unique_ptr<ObserverContext> annotation_started(const RecordFunction& function) noexcept {
  if (!recording()) return nullptr;
  const std::string_view text = name(function);
  if (is_async(function)) {
    const int64_t range_id = range_start(text, AnnotationSource::record_function);
    auto* context = new (std::nothrow) AsyncAnnotation(range_id);
    return std::unique_ptr<ObserverContext>(context);
  }
  Frame frame = frame_inside(this_thread_frames().top(), Frame::Kind::range);
  frame.function = &function;
  frame.live = true;
  frame.phase = phase_of_range(text, frame.phase);
  if (push(frame)) range_push(text, AnnotationSource::record_function);
  return nullptr;
}

void annotation_ended(const RecordFunction& function, ObserverContext* context) noexcept {
  if (context != nullptr) {
    range_end(static_cast<AsyncAnnotation*>(context)->range_id());
  } else if (!close_through(function) && recording()) {
    report_loss("torch", "range", 1, "a record_function ended on another thread than it began on",
                "use it within one function");
  }
}

}  // namespace

void start_operators() {
  std::lock_guard lock(g_gate_mutex);
  CallbackDescription annotations{annotation_started, annotation_ended};
  annotations.scopes[static_cast<size_t>(Scope::user)] = true;
  add_global_callback(annotations);
  if (!traces(TableId::op)) return;

  CallbackDescription backward{backward_started, operator_ended};
  backward.scopes[static_cast<size_t>(Scope::backward_function)] = true;
  CallbackDescription operators{operator_started, operator_ended};
  for (bool& scope : operators.scopes) scope = true;
  operators.scopes[static_cast<size_t>(Scope::user)] = false;
  operators.scopes[static_cast<size_t>(Scope::backward_function)] = false;
  g_backward_callback = add_global_callback(backward);
  g_operator_callback = add_global_callback(operators);
  g_enabled = true;
  // After that libtorch destroys its list of callbacks, while the session's thread may still move
  // the gate.
  std::atexit([] {
    std::lock_guard lock(g_gate_mutex);
    g_operator_callback = 0;
  });
}

void follow_gate() {
  std::lock_guard lock(g_gate_mutex);
  // The gate may have moved on meanwhile: what it is now counts, not what it was when it called.
  const bool wanted = collecting();
  if (g_operator_callback == 0 || wanted == g_enabled) return;
  enable_callback(g_operator_callback, wanted);
  enable_callback(g_backward_callback, wanted);
  g_enabled = wanted;
}

void module_entered(const char* path) {
  if (!recording()) return;
  Frame frame = frame_inside(this_thread_frames().top(), Frame::Kind::module);
  frame.module = intern(path);
  push(frame);
}

void module_left() {
  FrameStack& frames = this_thread_frames();
  uint32_t at = frames.size();
  while (at > 0 && frames[at - 1].kind != Frame::Kind::module) --at;
  if (at == 0) return;
  const int64_t end_ns = now_ns();
  while (frames.size() >= at) close_top(frames, end_ns);
}

void forget_operators() {
  new (&g_gate_mutex) std::mutex;  // a thread that the child does not have may hold it
  FrameStack& frames = this_thread_frames();
  for (uint32_t i = 0; i < frames.size(); ++i) {
    frames[i].live = false;
    frames[i].op_id = kNullI64;
  }
}

bool saw_operators() { return g_saw_operators.load(std::memory_order_relaxed); }

}  // namespace pasta::torch
