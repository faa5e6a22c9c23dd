// What a thread is inside of: its operators, annotations and modules, innermost last.
//
// A frame inherits what it does not change from the frame outside of it, so that the innermost
// frame alone says which operator, module and phase the thread is in.
#pragma once

#include <cstdint>
#include <string_view>

#include "schema/tables.h"

namespace pasta::torch {

struct RecordFunction;

struct Frame {
  enum class Kind : uint8_t { op, range, module };

  const RecordFunction* function;  // identity while it runs; null for a module
  int64_t op_id;                   // innermost operator, kNullI64 outside of any
  int64_t start_ns;
  int64_t sequence;
  StringId name;
  StringId module;  // innermost module
  OpPhase phase;    // OpPhase::null: not decided yet, the next operator decides
  Kind kind;
  bool live;  // false: began while nothing was collected, or in the parent of a fork
};

// A frame inside of `outer`, which may be null: the thread is in nothing.
Frame frame_inside(const Frame* outer, Frame::Kind kind);

// Phase of the operators in an annotation. torch.optim annotates its own work; everything else is
// in the phase of what is around it.
OpPhase phase_of_range(std::string_view name, OpPhase outer);
// Phase of an operator in `outer`: autograd's engine names its work; outside of any phase it is
// `forward` when autograd records (grad mode is on), else `other`.
OpPhase phase_of_operator(std::string_view name, OpPhase outer, bool grad_mode);

// The stack of one thread, usable until the thread's very end: autograd's threads still free
// tensors while their thread_local objects are destroyed, so this one has no constructor and no
// destructor. Its memory goes back in a pthread key's destructor, which runs after those; a thread
// that pushes after that gets new memory.
class FrameStack {
 public:
  // False when there is no memory; the frame is then not on the stack.
  bool push(const Frame& frame);
  void pop() { --size_; }

  uint32_t size() const { return frames_ == nullptr ? 0 : size_; }
  // The innermost frame, null when there is none.
  Frame* top() { return size() == 0 ? nullptr : frames_ + size_ - 1; }
  Frame& operator[](uint32_t i) { return frames_[i]; }

 private:
  static constexpr uint32_t kFirstCapacity = 64;

  bool grow();

  Frame* frames_ = nullptr;
  uint32_t size_ = 0, capacity_ = 0;
};

FrameStack& this_thread_frames();

}  // namespace pasta::torch
