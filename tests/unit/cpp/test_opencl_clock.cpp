// Placing a device's clock on the session's: synthetic clocks whose true offset is known.
#include "check.h"

#if __has_include(<CL/cl.h>)
#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#include "backends/opencl/device_clock.h"

using pasta::opencl::DeviceClock;

namespace {

constexpr int64_t kSecond = 1'000'000'000;

// One launch: the runtime reads the device clock `delay` after the call began, the call takes
// `length`.
template <class Device>
void launch(DeviceClock& clock, Device&& device, int64_t at, int64_t delay, int64_t length) {
  if (clock.wants(at, at + length)) clock.observe(device(at + delay), at, at + length);
}

int64_t error_at(const DeviceClock& clock, int64_t device_ns, int64_t true_ns) {
  return std::llabs(clock.to_session(device_ns) - true_ns);
}

void test_constant_offset() {
  const auto device = [](int64_t t) { return t - 5 * kSecond; };
  DeviceClock clock;
  CHECK(!clock.known());
  launch(clock, device, kSecond, 40'000, 60'000);  // the first call is slow
  CHECK(clock.known());
  CHECK(clock.error_ns() == 60'000);
  CHECK(error_at(clock, device(kSecond), kSecond) <= 60'000);
  for (int64_t i = 1; i < 1000; ++i) launch(clock, device, kSecond + i * 2000, 100 + i % 700, 1000);
  CHECK(clock.error_ns() == 1000);
  CHECK(error_at(clock, device(2 * kSecond), 2 * kSecond) <= 1000);
}

// 50 parts in a million is the worst that the crystal of a board drifts: 50 us a second.
void test_drift() {
  const auto device = [](int64_t t) { return t + t / 20'000; };
  DeviceClock clock;
  for (int64_t t = kSecond; t < 11 * kSecond; t += 100'000) {
    launch(clock, device, t, 300, 1000);
    CHECK(error_at(clock, device(t + 300), t + 300) <= 1000 + 50);  // a window, and 1 ms of drift
  }
}

void test_drift_the_other_way_with_pauses() {
  const auto device = [](int64_t t) { return t - t / 20'000; };
  DeviceClock clock;
  for (int64_t t = kSecond; t < 100 * kSecond; t += 3 * kSecond) {
    launch(clock, device, t, 300, 1000);
    CHECK(error_at(clock, device(t + 300), t + 300) <= 1000);
  }
}

// A clock that is set, or stops while the machine sleeps.
void test_jumps() {
  for (const int64_t jump : {3600 * kSecond, -3600 * kSecond}) {
    const auto device = [jump](int64_t t) { return t < 5 * kSecond ? t : t + jump; };
    DeviceClock clock;
    for (int64_t t = kSecond; t < 10 * kSecond; t += kSecond / 2) {
      launch(clock, device, t, 500, 1000);
      CHECK(error_at(clock, device(t + 500), t + 500) <= 1000);
    }
  }
}

// Oclgrind keeps its times in a double: 256 ns steps at today's CLOCK_REALTIME.
void test_coarse_realtime() {
  const auto device = [](int64_t t) { return (t + 1'790'000'000 * kSecond) / 256 * 256; };
  DeviceClock clock;
  for (int64_t t = kSecond; t < 2 * kSecond; t += 1'500'000) {
    launch(clock, device, t, 400, 1000);
    CHECK(error_at(clock, device(t + 400), t + 400) <= 1000 + 256);
  }
}

// A reading costs a call of the runtime: a loop of launches is to need few.
void test_readings_are_few() {
  const auto device = [](int64_t t) { return t; };
  DeviceClock clock;
  int readings = 0;
  for (int64_t i = 0; i < 10'000; ++i) {
    const int64_t t = kSecond + i * 2000;
    readings += clock.wants(t, t + 1000);
    launch(clock, device, t, 300, 1000);
  }
  CHECK(readings == 20);  // 20 ms of launches, one a millisecond
}

// Commands of several queues are looked at queue by queue: earlier ones may come later.
void test_earlier_commands() {
  const auto device = [](int64_t t) { return t + 77; };
  DeviceClock clock;
  launch(clock, device, 5 * kSecond, 10, 20);
  CHECK(clock.wants(4 * kSecond, 4 * kSecond + 20));
}

}  // namespace

int main() {
  test_constant_offset();
  test_drift();
  test_drift_the_other_way_with_pauses();
  test_jumps();
  test_coarse_realtime();
  test_readings_are_few();
  test_earlier_commands();
  return g_failures == 0 ? 0 : 1;
}
#else
int main() { return 77; }
#endif
