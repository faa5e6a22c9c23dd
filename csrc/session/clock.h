// The session's clock: CLOCK_MONOTONIC in nanoseconds, one clock for every process of a host.
// Sealing subtracts the recording's anchor; backends convert device clocks to this one.
#pragma once

#include <time.h>

#include <cstdint>

namespace pasta {

inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

inline int64_t realtime_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace pasta
