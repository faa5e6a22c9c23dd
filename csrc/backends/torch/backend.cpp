#include "backends/torch/backend.h"

#include <atomic>
#include <string>

#include "backends/torch/libtorch.h"
#include "backends/torch/operators.h"
#include "backends/torch/record_function.h"
#include "backends/torch/rehearsal.h"
#include "backends/torch/tensors.h"
#include "session/session.h"

namespace pasta::torch {
namespace {

// major.minor of the releases with which tests/integration/test_torch_*.py passed on a CPU; 2.11
// with tests/gpu/test_torch_cuda.py on an H200.
constexpr std::string_view kVerified[] = {"2.0", "2.4", "2.8", "2.11", "2.13", "2.14"};

enum class Step {
  waiting,     // torch was not seen yet
  importing,   // the import hook will tell
  installing,  // one thread is at it
  done,        // callbacks are registered, or never will be
};
std::atomic<Step> g_step{Step::waiting};
// In a fork's child the gate may have moved without telling us.
std::atomic<bool> g_forked{false};

bool self_test_passes() { return self_test().empty(); }

// Why operators cannot be captured; empty when they can.
std::string try_operators(bool verified) {
  if (!verified && !rehearse(self_test_passes)) return "the self-test failed in a child process";
  const std::string failure = self_test();
  return failure.empty() ? "" : "the self-test failed: " + failure;
}

void harvest(int64_t) {
  if (!saw_operators() || saw_tensors() || !traces(TableId::tensor)) return;
  report_loss("torch", "tensor", kNullI64,
              "this build of torch does not report allocations through libc10.so",
              "use a build whose libraries are shared");
}

void after_fork() {
  forget_operators();
  forget_tensors();
  g_forked.store(true, std::memory_order_relaxed);
}

void gate_changed(bool) { follow_gate(); }

Backend g_backend{"torch", "", harvest, after_fork, gate_changed};

// False: not now, this thread has turned callbacks off.
bool install(std::string_view version) {
  static std::string& validation = *new std::string;  // read when the process ends
  const bool verified = is_verified(version);
  const std::string missing = find_record_function();
  if (missing.empty() && !record_function_enabled()) return false;
  const std::string failure =
      missing.empty() ? try_operators(verified) : "it does not export " + missing;
  validation = version.empty() ? "version unknown" : std::string(version);
  if (!failure.empty()) {
    report_loss("torch", "op", kNullI64,
                "operators of torch " + validation + " are not captured: " + failure,
                "use a verified version");
    validation += ", operators not captured";
  } else if (verified) {
    validation += ", verified with this version";
  } else {
    validation += ", self-test passed, never verified with this version";
  }
  g_backend.validation = validation.c_str();
  register_backend(g_backend);
  if (failure.empty()) {
    start_operators();
    follow_gate();
  }
  return true;
}

// Runs `install` on the thread that gets to move on from `from`.
void install_once(Step from, std::string_view version) {
  if (!g_step.compare_exchange_strong(from, Step::installing)) return;
  g_step.store(install(version) ? Step::done : Step::waiting, std::memory_order_release);
}

}  // namespace

void importing() {
  Step from = Step::waiting;
  g_step.compare_exchange_strong(from, Step::importing);
}

void imported(std::string_view version) {
  if (version.empty() || !is_loaded(Library::torch_cpu) || !ensure_session()) {
    Step from = Step::importing;
    g_step.compare_exchange_strong(from, Step::waiting);
    return;
  }
  install_once(Step::importing, version);
}

void install_on_first_use() {
  const Step step = g_step.load(std::memory_order_acquire);
  if (step == Step::done) {
    if (g_forked.load(std::memory_order_relaxed) && g_forked.exchange(false)) follow_gate();
    return;
  }
  if (step != Step::waiting || !is_loaded(Library::torch_cpu) || !ensure_session()) return;
  install_once(Step::waiting, {});
}

bool is_verified(std::string_view version) {
  for (const std::string_view verified : kVerified) {
    if (version.substr(0, verified.size()) == verified && version.size() > verified.size() &&
        version[verified.size()] == '.') {
      return true;
    }
  }
  return false;
}

}  // namespace pasta::torch
