// The range gate: decides when events are collected and which launches are.
//
// `gate_state` (session.h) holds one bit per reason to be closed; backends read it with one load. This
// class sets the bits from the options, the clock, ranges and launch numbers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <regex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "session/options.h"

namespace pasta {

class Gate {
 public:
  explicit Gate(const Options& options);

  // Bits that are closed at the start.
  uint32_t initial() const { return initial_; }

  // Opens and closes by --delay and --duration. Returns when it wants to be asked again (session clock).
  int64_t tick(int64_t now);

  // A range was entered or left on some thread; profiler calls likewise.
  void entered(std::string_view name, std::string_view domain);
  void left(std::string_view name, std::string_view domain);
  void profiler_start();
  void profiler_stop();

  bool select_launch(std::string_view kernel, bool was_open);

  // The capture range was asked for and never entered.
  bool range_missing() const { return waits_for_range_ && rounds_.load() == 0; }

 private:
  bool is_capture_range(std::string_view name, std::string_view domain) const;
  void begin_round();
  void end_round();
  bool matches_kernels(std::string_view kernel);

  const Options& options_;
  uint32_t initial_ = 0;
  bool waits_for_range_ = false;
  std::atomic<int64_t> rounds_{0};  // capture ranges entered so far
  std::atomic<int> depth_{0};       // capture ranges open now, over all threads
  std::atomic<int64_t> launches_{0};
  std::atomic<int64_t> matched_{0};
  std::unique_ptr<std::regex> kernels_;
  std::mutex mutex_;
  std::unordered_map<std::string, bool> verdicts_;  // kernel name -> matches; names are few
};

// Sets or clears bits of gate_state and tells the backends when that opened or closed the gate.
void change_gate(uint32_t set, uint32_t clear);

}  // namespace pasta
