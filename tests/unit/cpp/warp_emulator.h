// The lanes of device/nvidia/lanes.h on a CPU: 32 coroutines that run in turn up to their next collective, so that
// tests run the reducers' own source. A collective completes when every lane of its mask has arrived at it.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "device/nvidia/lanes.h"

namespace warp {

// `active` is of the lanes that are at one place of the code together: all that are not held up elsewhere.
enum class Collective { none, ballot, broadcast, match, active };

struct Lane {
  ucontext_t context;
  std::vector<char> stack;
  bool running = false;
  Collective waits_in = Collective::none;
  uint32_t mask = 0, from = 0;
  uint64_t value = 0, result = 0;
};

inline std::array<Lane, 32> g_lanes;
inline ucontext_t g_scheduler;
inline uint32_t g_current = 0;
inline uint32_t g_multiprocessor = 0;  // on which warps run
inline std::function<void(uint32_t)> g_body;
// As a GPU may: lanes that went different ways are not together again before they have to be. Then `active`, but for
// the first that a warp comes to, is of one lane.
inline bool g_scattered = false;
inline bool g_began = false;  // the warp has come to its first

inline uint64_t meet(Collective collective, uint32_t mask, uint64_t value, uint32_t from = 0) {
  Lane& lane = g_lanes[g_current];
  lane.waits_in = collective, lane.mask = mask, lane.value = value, lane.from = from;
  swapcontext(&lane.context, &g_scheduler);
  return lane.result;
}

inline void enter() {
  g_body(g_current);
  g_lanes[g_current].running = false;
}

inline void prepare(Lane& lane) {
  lane.stack.resize(64 << 10);
  getcontext(&lane.context);
  lane.context.uc_stack.ss_sp = lane.stack.data();
  lane.context.uc_stack.ss_size = lane.stack.size();
  lane.context.uc_link = &g_scheduler;
  makecontext(&lane.context, enter, 0);
}

// Gives every lane of a complete collective its result. False when no collective is complete.
inline bool complete_one() {
  for (const Lane& first : g_lanes) {
    if (first.waits_in == Collective::none || first.waits_in == Collective::active) continue;
    bool all = true;
    for (uint32_t i = 0; i < 32; ++i) {
      const Lane& lane = g_lanes[i];
      const bool here = lane.running && lane.waits_in == first.waits_in && lane.mask == first.mask;
      if ((first.mask >> i & 1) != 0 && !here) all = false;
    }
    if (!all) continue;
    const uint32_t mask = first.mask;
    const Collective collective = first.waits_in;
    for (uint32_t i = 0; i < 32; ++i) {
      if ((mask >> i & 1) == 0) continue;
      Lane& lane = g_lanes[i];
      lane.result = 0;
      for (uint32_t j = 0; j < 32; ++j) {
        if ((mask >> j & 1) == 0) continue;
        const bool set = collective == Collective::ballot ? g_lanes[j].value != 0 : g_lanes[j].value == lane.value;
        if (set) lane.result |= uint64_t{1} << j;
      }
      if (collective == Collective::broadcast) lane.result = g_lanes[lane.from].value;
    }
    for (uint32_t i = 0; i < 32; ++i) {
      if ((mask >> i & 1) != 0) g_lanes[i].waits_in = Collective::none;
    }
    return true;
  }
  return false;
}

// Lets lanes that wait at one place to hear who runs with them go on together. False when there are none.
inline bool part() {
  uint32_t together = 0;
  uint64_t place = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    const Lane& lane = g_lanes[i];
    if (!lane.running || lane.waits_in != Collective::active) continue;
    if (together == 0) place = lane.value;
    if (lane.value == place) together |= 1u << i;
  }
  if (g_scattered && g_began) together &= ~together + 1;
  g_began = true;
  for (uint32_t i = 0; i < 32; ++i) {
    if ((together >> i & 1) == 0) continue;
    g_lanes[i].result = together;
    g_lanes[i].waits_in = Collective::none;
  }
  return together != 0;
}

// Runs body(lane) in every lane of `active`, as one warp.
inline void run(uint32_t active, const std::function<void(uint32_t)>& body) {
  g_body = body;
  g_began = false;
  for (uint32_t i = 0; i < 32; ++i) {
    g_lanes[i].running = (active >> i & 1) != 0;
    g_lanes[i].waits_in = Collective::none;
    if (g_lanes[i].running) prepare(g_lanes[i]);
  }
  while (true) {
    bool any = false, progress = false;
    for (uint32_t i = 0; i < 32; ++i) {
      if (!g_lanes[i].running) continue;
      any = true;
      if (g_lanes[i].waits_in != Collective::none) continue;
      g_current = i;
      swapcontext(&g_scheduler, &g_lanes[i].context);
      progress = true;
    }
    if (!any) return;
    if (progress || complete_one() || part()) continue;
    std::fprintf(stderr, "the lanes of a warp wait for each other in different collectives\n");
    std::abort();
  }
}

}  // namespace warp

namespace pasta::nvidia::lanes {

uint32_t index() { return warp::g_current; }
uint32_t ballot(uint32_t mask, bool predicate) {
  return static_cast<uint32_t>(warp::meet(warp::Collective::ballot, mask, predicate ? 1 : 0));
}
uint64_t broadcast(uint32_t mask, uint64_t value, uint32_t from) {
  return warp::meet(warp::Collective::broadcast, mask, value, from);
}
uint32_t multiprocessor() { return warp::g_multiprocessor; }
[[gnu::noinline]] uint32_t active() {
  const auto place = reinterpret_cast<uint64_t>(__builtin_return_address(0));
  return static_cast<uint32_t>(warp::meet(warp::Collective::active, 0, place));
}
uint32_t match(uint32_t mask, uint64_t value) {
  return static_cast<uint32_t>(warp::meet(warp::Collective::match, mask, value));
}

}  // namespace pasta::nvidia::lanes
