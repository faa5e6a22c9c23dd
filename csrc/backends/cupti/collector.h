// The CUPTI backend: which activity is enabled when, where its buffers go, when they are flushed.
#pragma once

#include <cupti.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "backends/cupti/buffers.h"
#include "backends/cupti/decoder.h"
#include "backends/cupti/library.h"

namespace pasta::cupti {

class Collector {
 public:
  static Collector& instance();

  // From the CUDA door, inside the driver's initialisation. False, with the reason in `loss` and on stderr, when
  // CUPTI is not to be had; the program runs on.
  bool start();
  bool active() const { return active_.load(std::memory_order_acquire); }

  void set_collecting(bool on);
  void harvest(int64_t deadline_ns);
  void forget();  // in a fork's child, where CUDA does not work

  // The program's own use of CUPTI changed what it wants of a kind, or of one call.
  CUptiResult client_changed(CUpti_ActivityKind kind, bool wanted);
  CUptiResult client_changed_call(CUpti_ActivityKind kind, CUpti_CallbackId id, bool wanted);
  // It gives CUPTI another clock.
  template <class Register>
  CUptiResult client_changed_clock(Register&& register_callback) {
    std::lock_guard flushing(flush_mutex_);
    library().call.cuptiActivityFlushAll(0);
    finish_records(now_ns() + 1'000'000'000);  // what is there belongs to the old clock
    const CUptiResult result = register_callback();
    std::lock_guard lock(clock_mutex_);
    clock_.begin = clock_.end = read_clock();
    return result;
  }

  void on_resource(CUpti_CallbackId id, const void* data);
  // cuProfilerStart and cuProfilerStop, which open and close --capture-range=cudaProfilerApi.
  void on_driver_call(CUpti_CallbackId id, const void* data);
  // The callbacks that pasta needs, whatever the program's own use of CUPTI switches off.
  static bool needs_callback(CUpti_CallbackDomain domain, CUpti_CallbackId id);
  void enable_callbacks();
  CUpti_SubscriberHandle subscriber() const { return subscriber_; }

 private:
  void enable(CUpti_ActivityKind kind, bool on);
  void enable_calls(bool on);
  bool keep_only_our_calls(CUpti_ActivityKind kind);  // false when we have none there
  bool is_ours(CUpti_ActivityKind kind, CUpti_CallbackId id);
  ClockReading read_clock();
  void enable_unified_memory(uint32_t device);
  void run_decoder();
  void finish_records(int64_t deadline_ns);  // waits until what CUPTI gave is emitted
  void flush_idle();
  void enable_latency_timestamps();
  // Tells it once on stderr, and always in `loss`; `table` is empty when it is all of CUDA.
  void fail(const char* table, const std::string& why, const char* remedy);

  std::atomic<bool> active_{false};
  std::atomic<bool> told_{false};
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::unique_ptr<ActivityBuffers> buffers_;
  Decoder decoder_;
  std::mutex clock_mutex_;
  ClockMap clock_;
  std::timed_mutex flush_mutex_;
  std::atomic<int64_t> harvested_ns_{0};

  std::mutex mutex_;  // of what is enabled
  std::set<int> ours_;
  bool calls_on_ = false;
  bool unified_memory_on_ = false;
  std::set<uint32_t> unified_memory_devices_;

  friend struct BufferCallbacks;
};

}  // namespace pasta::cupti
