#include "backends/torch/frames.h"

#include <cstdlib>
#include <type_traits>

#include <pthread.h>

namespace pasta::torch {
namespace {

static_assert(std::is_trivially_copyable_v<Frame>);

thread_local FrameStack t_frames;
static_assert(std::is_trivially_destructible_v<FrameStack>);

void free_frames(void* frames) {
  auto** slot = static_cast<Frame**>(frames);
  std::free(*slot);
  *slot = nullptr;
}

// Frees `*slot` when this thread ends. Without a key to be had, the memory is kept.
void free_at_thread_end(Frame** slot) {
  static const struct Key {
    pthread_key_t key{};
    bool created = pthread_key_create(&key, free_frames) == 0;
  } key;
  if (key.created) pthread_setspecific(key.key, slot);
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

}  // namespace

Frame frame_inside(const Frame* outer, Frame::Kind kind) {
  Frame frame{};
  frame.op_id = outer == nullptr ? kNullI64 : outer->op_id;
  frame.module = outer == nullptr ? StringId{} : outer->module;
  frame.phase = outer == nullptr ? OpPhase::null : outer->phase;
  frame.sequence = kNullI64;
  frame.kind = kind;
  return frame;
}

OpPhase phase_of_range(std::string_view name, OpPhase outer) {
  const bool optimizer =
      starts_with(name, "Optimizer.step#") || starts_with(name, "Optimizer.zero_grad#");
  return optimizer ? OpPhase::optimizer : outer;
}

OpPhase phase_of_operator(std::string_view name, OpPhase outer, bool grad_mode) {
  if (starts_with(name, "autograd::engine::evaluate_function: ")) return OpPhase::backward;
  if (outer != OpPhase::null) return outer;
  return grad_mode ? OpPhase::forward : OpPhase::other;
}

bool FrameStack::push(const Frame& frame) {
  if (frames_ == nullptr) size_ = capacity_ = 0;
  if (size_ == capacity_ && !grow()) return false;
  frames_[size_++] = frame;
  return true;
}

bool FrameStack::grow() {
  const uint32_t capacity = capacity_ == 0 ? kFirstCapacity : capacity_ * 2;
  auto* frames = static_cast<Frame*>(std::realloc(frames_, capacity * sizeof(Frame)));
  if (frames == nullptr) return false;
  frames_ = frames;
  capacity_ = capacity;
  free_at_thread_end(&frames_);
  return true;
}

FrameStack& this_thread_frames() { return t_frames; }

}  // namespace pasta::torch
