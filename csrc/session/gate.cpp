#include "session/gate.h"

#include <algorithm>

#include "session/session.h"

namespace pasta {

Gate::Gate(const Options& options) : options_(options) {
  waits_for_range_ = options.capture_range != Options::CaptureRange::none;
  if (waits_for_range_) initial_ |= kClosedRange;
  if (options.delay_ns > 0) initial_ |= kClosedDelay;
  if (options.start_launch > 0) initial_ |= kClosedLaunch;
  if (!options.kernels.empty()) {
    try {
      kernels_ = std::make_unique<std::regex>(options.kernels, std::regex::ECMAScript | std::regex::optimize);
    } catch (const std::regex_error&) {
      report_loss("session", "kernel", kNullI64, "--kernels is not a regular expression: it selects nothing",
                  "correct the expression");
      kernels_ = std::make_unique<std::regex>("(?!)");
    }
  }
}

int64_t Gate::tick(int64_t now) {
  const int64_t open_at = options_.anchor_ns + options_.delay_ns;
  const int64_t close_at = options_.duration_ns == INT64_MAX ? INT64_MAX : open_at + options_.duration_ns;
  if (now >= close_at) {
    change_gate(kClosedDuration, 0);
    return INT64_MAX;
  }
  if (now >= open_at) {
    change_gate(0, kClosedDelay);
    return close_at;
  }
  return open_at;
}

bool Gate::is_capture_range(std::string_view name, std::string_view domain) const {
  return options_.capture_range == Options::CaptureRange::range &&
         (options_.range_name.empty() || options_.range_name == name) &&
         (options_.range_domain.empty() || options_.range_domain == domain);
}

void Gate::begin_round() {
  if (rounds_.fetch_add(1) < options_.range_repeats) change_gate(0, kClosedRange);
}

void Gate::end_round() { change_gate(kClosedRange, 0); }

void Gate::entered(std::string_view name, std::string_view domain) {
  if (is_capture_range(name, domain) && depth_.fetch_add(1) == 0) begin_round();
}

void Gate::left(std::string_view name, std::string_view domain) {
  if (is_capture_range(name, domain) && depth_.fetch_sub(1) == 1) end_round();
}

void Gate::profiler_start() {
  if (options_.capture_range == Options::CaptureRange::profiler_api) {
    if (depth_.exchange(1) == 0) begin_round();
  } else {
    change_gate(0, kClosedStopped);
  }
}

void Gate::profiler_stop() {
  if (options_.capture_range == Options::CaptureRange::profiler_api) {
    if (depth_.exchange(0) == 1) end_round();
  } else {
    change_gate(kClosedStopped, 0);
  }
}

bool Gate::matches_kernels(std::string_view kernel) {
  if (kernels_ == nullptr) return true;
  std::lock_guard lock(mutex_);
  const auto [verdict, fresh] = verdicts_.try_emplace(std::string(kernel), false);
  if (fresh) {
    try {
      verdict->second = std::regex_search(verdict->first, *kernels_);
    } catch (const std::regex_error&) {
      verdict->second = false;
    }
  }
  return verdict->second;
}

bool Gate::select_launch(std::string_view kernel, bool was_open) {
  const int64_t launch = launches_.fetch_add(1, std::memory_order_relaxed);
  if (options_.start_launch > 0 && launch == options_.start_launch) change_gate(0, kClosedLaunch);
  if (launch == options_.end_launch) change_gate(kClosedLaunch, 0);
  if (!was_open || (gate_state.load() & kClosedLaunch) != 0 || !matches_kernels(kernel)) return false;
  if (options_.launch_skip == 0 && options_.launch_count == INT64_MAX) return true;
  const int64_t matched = matched_.fetch_add(1, std::memory_order_relaxed);
  return matched >= options_.launch_skip && matched - options_.launch_skip < options_.launch_count;
}

}  // namespace pasta
