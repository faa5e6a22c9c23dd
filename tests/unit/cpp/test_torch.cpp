// The torch backend without torch: what a thread is inside of, phases, rows of allocations,
// rehearsals.
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "backends/torch/backend.h"
#include "backends/torch/frames.h"
#include "backends/torch/rehearsal.h"
#include "backends/torch/tensors.h"
#include "check.h"

using namespace pasta;
using namespace pasta::torch;

namespace {

void test_phases() {
  // Outside of everything, grad mode decides; inside of something, that does.
  CHECK(phase_of_operator("aten::mm", OpPhase::null, true) == OpPhase::forward);
  CHECK(phase_of_operator("aten::mm", OpPhase::null, false) == OpPhase::other);
  CHECK(phase_of_operator("aten::mm", OpPhase::optimizer, true) == OpPhase::optimizer);
  CHECK(phase_of_operator("aten::mm", OpPhase::backward, true) == OpPhase::backward);
  CHECK(phase_of_operator("autograd::engine::evaluate_function: MmBackward0", OpPhase::null,
                          true) == OpPhase::backward);
  // The names that torch.optim.Optimizer gives its annotations.
  CHECK(phase_of_range("Optimizer.step#AdamW.step", OpPhase::null) == OpPhase::optimizer);
  CHECK(phase_of_range("Optimizer.zero_grad#SGD.zero_grad", OpPhase::forward) ==
        OpPhase::optimizer);
  CHECK(phase_of_range("step", OpPhase::null) == OpPhase::null);
  CHECK(phase_of_range("Optimizer.stepping", OpPhase::backward) == OpPhase::backward);
}

void test_frames_inherit() {
  const Frame outermost = frame_inside(nullptr, Frame::Kind::op);
  CHECK(outermost.op_id == kNullI64 && outermost.phase == OpPhase::null &&
        outermost.module.value == 0);
  Frame op = outermost;
  op.op_id = 7;
  op.phase = OpPhase::backward;
  op.module = StringId{3};
  op.sequence = 11;
  const Frame inner = frame_inside(&op, Frame::Kind::range);
  CHECK(inner.op_id == 7 && inner.phase == OpPhase::backward && inner.module.value == 3);
  CHECK(inner.sequence == kNullI64);  // an operator's own
}

void test_stack() {
  FrameStack& frames = this_thread_frames();
  CHECK(frames.top() == nullptr);
  for (int64_t i = 0; i < 1000; ++i) {
    Frame frame = frame_inside(frames.top(), Frame::Kind::op);
    frame.op_id = i;
    CHECK(frames.push(frame));
  }
  CHECK(frames.size() == 1000);
  for (int64_t i = 999; i >= 0; --i) {
    CHECK(frames.top()->op_id == i);
    frames.pop();
  }
  CHECK(frames.top() == nullptr);
  // Another thread has its own.
  frames.push(frame_inside(nullptr, Frame::Kind::module));
  std::thread([] { CHECK(this_thread_frames().top() == nullptr); }).join();
  frames.pop();
}

// A thread_local that is destroyed after the thread's work still finds the stack usable.
struct UsesFramesAtTheEnd {
  ~UsesFramesAtTheEnd() {
    CHECK(this_thread_frames().push(frame_inside(nullptr, Frame::Kind::op)));
    CHECK(this_thread_frames().size() == 2);
  }
  int used = 0;
};
thread_local UsesFramesAtTheEnd t_at_the_end;

void test_stack_until_the_threads_end() {
  std::thread([] {
    t_at_the_end.used = 1;
    CHECK(this_thread_frames().push(frame_inside(nullptr, Frame::Kind::op)));
  }).join();
}

void test_tensor_records() {
  const auto* address = reinterpret_cast<const void*>(uintptr_t{0x7000});
  const Device cpu{0, -1};
  const Device cuda1{1, 1};
  const TensorRecord alloc = tensor_record(address, 64, 100, 0, cpu, true);
  CHECK(alloc.action == AllocAction::alloc && alloc.address == 0x7000 && alloc.bytes == 64);
  CHECK(alloc.allocated_bytes == 100 && alloc.reserved_bytes == kNullI64 &&
        alloc.device_index == kNullI32);
  const TensorRecord free = tensor_record(address, -64, 36, 0, cpu, true);
  CHECK(free.action == AllocAction::free && free.bytes == 64 && free.allocated_bytes == 36);
  // Memory-mapped storage has no totals.
  CHECK(tensor_record(address, 64, 0, 64, cpu, false).allocated_bytes == kNullI64);
  const TensorRecord device = tensor_record(address, 512, 512, 2 << 20, cuda1, false);
  CHECK(device.allocated_bytes == 512 && device.reserved_bytes == 2 << 20 &&
        device.device_index == 1);
}

void test_device_types() {
  // c10/core/DeviceType.h: CUDA = 1, HIP = 6, XPU = 12, MPS = 13, PrivateUse1 = 20.
  CHECK(std::string_view(device_type_name(0)) == "cpu");
  CHECK(std::string_view(device_type_name(1)) == "cuda");
  CHECK(std::string_view(device_type_name(6)) == "hip");
  CHECK(std::string_view(device_type_name(12)) == "xpu");
  CHECK(std::string_view(device_type_name(13)) == "mps");
  CHECK(std::string_view(device_type_name(20)) == "privateuse1");
  CHECK(std::string_view(device_type_name(21)) == "other");
  CHECK(std::string_view(device_type_name(-1)) == "other");
}

void test_versions() {
  CHECK(is_verified("2.13.0+cpu"));
  CHECK(!is_verified("2.1.0"));  // not 2.13
  CHECK(!is_verified("2.130.0"));
  CHECK(!is_verified("2.13"));
  CHECK(!is_verified(""));
}

int g_touched = 0;

void test_rehearsals() {
  CHECK(rehearse([] { return true; }));
  CHECK(!rehearse([] { return false; }));
  CHECK(!rehearse([] { return std::raise(SIGSEGV) != 0; }));
  CHECK(!rehearse([]() -> bool { std::abort(); }));
  CHECK(!rehearse([]() -> bool {
    for (;;) pause();
  }));
  // What the child does to memory stays there, and no child is left for the program to find.
  CHECK(rehearse([] { return ++g_touched == 1; }));
  CHECK(g_touched == 0);
  CHECK(wait(nullptr) == -1 && errno == ECHILD);
}

}  // namespace

int main() {
  test_phases();
  test_frames_inherit();
  test_stack();
  test_stack_until_the_threads_end();
  test_tensor_records();
  test_device_types();
  test_versions();
  test_rehearsals();
  return g_failures == 0 ? 0 : 1;
}
