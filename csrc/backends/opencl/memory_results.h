// Where the measured launches of a queue leave their counts, and how these become rows.
//
// The counts stay on the device until the buffer is full, the program waits for the device with
// much of it used, or the recording ends. They are read through a queue of our own, once the
// launches have ended: nothing that the program has enqueued can hold that up. What the launches
// need in the buffer (zeros, bindings) is enqueued before them in the program's queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/opencl/cl_api.h"
#include "backends/opencl/memory_program.h"
#include "device/opencl/binding.h"

namespace pasta::opencl {

struct Queue;

// Not thread-safe: Queue::results_mutex is held around each call.
class ResultBuffer {
 public:
  // Smaller than --memory-buffer says where the device has no room for that. Null, with `*why`, when
  // there is none at all.
  static std::shared_ptr<ResultBuffer> make(cl_command_queue queue, Unmeasured* why);
  ResultBuffer(cl_command_queue queue, cl_command_queue reader, cl_mem buffer, size_t bytes,
               const memory::ScratchPool& scratch)
      : queue_(queue),
        reader_(reader),
        buffer_(buffer),
        bytes_(bytes),
        scratch_(scratch),
        arena_bytes_(scratch.scratches > 0 ? scratch.offset : bytes),
        scratch_is_zero_(arena_bytes_ == bytes),
        bindings_begin_(arena_bytes_),
        arena_(arena_bytes_) {}
  ResultBuffer(const ResultBuffer&) = delete;
  ResultBuffer& operator=(const ResultBuffer&) = delete;
  ~ResultBuffer();

  cl_mem handle() const { return buffer_; }
  // What a launch may take of it.
  memory::BindingLimits limits() const;

  struct Launch {
    int64_t id;
    std::shared_ptr<MeasuredFunction> function;
    std::shared_ptr<const memory::Binding> binding;
    uint64_t slot_offset;
    uint64_t work_items;
    cl_event event;  // a reference of ours
    bool is_lost = false;
  };

  // A place for a launch with this binding, which is written there; makes room when there is none.
  // Null when the launches before it do not end, the binding is too large, or the driver refuses.
  std::optional<memory::Arena::Place> place(const std::shared_ptr<const memory::Binding>& binding);
  // When this has ended, all places can be used: launches in a queue out of order wait for it.
  // Null: there is nothing to wait for.
  cl_event ready() const { return ready_; }
  void add(Launch launch) { launches_.push_back(std::move(launch)); }

  // Writes the rows if everything has ended, and it is time for that or `now`; waits for nothing.
  void harvest(bool now);
  // The end: writes the rows of what has ended, the rest is a loss.
  void finish();
  bool empty() const { return launches_.empty(); }

 private:
  enum class Progress { ended, running, waiting };
  Progress progress() const;
  bool wait_for_launches();
  // Reads the slots of the launches that have ended. False when the driver refuses.
  bool emit_rows();
  void clear();
  // Enqueue a command behind ready(), which it becomes. False when the driver refuses.
  bool write(const std::shared_ptr<const memory::Binding>& binding, uint64_t offset);
  bool zero_ahead();  // what slots have come to need, and somewhat more
  bool zero(size_t begin, size_t end);
  bool make_ready(cl_int result, cl_event event);

  cl_command_queue queue_;   // the program's
  cl_command_queue reader_;  // ours
  cl_mem buffer_;
  size_t bytes_;
  memory::ScratchPool scratch_;
  size_t arena_bytes_;  // before the scratches
  bool scratch_is_zero_;
  size_t zeroed_ = 0;  // from the last slot up to there
  cl_event ready_ = nullptr;
  size_t bindings_begin_;  // bindings are there or behind it
  bool refused_ = false;   // by the driver: the buffer is not used any more
  bool stalled_ = false;   // a wait was in vain: not again before everything has ended
  int64_t harvest_at_ns_ = 0;
  memory::Arena arena_;
  std::vector<Launch> launches_;
  std::vector<std::shared_ptr<const memory::Binding>> bindings_;  // that the driver may still read
};

// Harvests the buffer of a queue, if it has one.
void harvest_results(Queue& queue);
// The end of the recording.
void finish_results(Queue& queue);
// The program has given the queue back: so does this its buffer, once all has ended.
void release_results(Queue& queue);

}  // namespace pasta::opencl
