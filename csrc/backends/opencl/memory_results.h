// Where the measured launches of a queue leave their counts, and how these become rows.
//
// The counts stay on the device until the buffer is full, the program waits for the device with
// much of it used, or the recording ends. They are read through a queue of our own, once the
// launches have ended: nothing that the program has enqueued can hold that up.
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
  // Null where there is no device memory for it (--memory-buffer).
  static std::shared_ptr<ResultBuffer> make(cl_command_queue queue);
  ResultBuffer(cl_command_queue queue, cl_command_queue reader, cl_mem buffer, size_t bytes)
      : queue_(queue),
        reader_(reader),
        buffer_(buffer),
        bytes_(bytes),
        unwritten_(bytes),
        arena_(bytes) {}
  ResultBuffer(const ResultBuffer&) = delete;
  ResultBuffer& operator=(const ResultBuffer&) = delete;
  ~ResultBuffer();

  cl_mem handle() const { return buffer_; }
  size_t bytes() const { return bytes_; }

  struct Launch {
    int64_t id;
    std::shared_ptr<MeasuredFunction> function;
    std::shared_ptr<const memory::Binding> binding;
    uint64_t slot_offset;
    uint64_t work_items;
    cl_event event;  // a reference of ours
    bool is_lost = false;
  };

  // A place for a launch with this binding; makes room when there is none. Null when the launches
  // before it do not end, or the binding is too large.
  std::optional<memory::Arena::Place> place(const memory::Binding& binding);
  // Enqueues the binding's way to its place. `written` becomes what the launch must wait for, if
  // the queue is out of order. False when the driver refuses.
  bool write_binding(const std::shared_ptr<const memory::Binding>& binding, uint64_t offset,
                     cl_event* written);
  void add(Launch launch) { launches_.push_back(std::move(launch)); }

  // Writes the rows if it is time for that and everything has ended; waits for nothing.
  void harvest();
  // The end: writes the rows of what has ended, the rest is a loss.
  void finish();
  bool empty() const { return launches_.empty(); }

 private:
  enum class Progress { ended, running, waiting };
  Progress progress() const;
  bool wait_for_launches();
  // Reads the slots of the launches that have ended. False when the driver refuses.
  bool emit_rows();
  bool clear();

  cl_command_queue queue_;   // the program's
  cl_command_queue reader_;  // ours
  cl_mem buffer_;
  size_t bytes_;
  size_t unwritten_;  // bindings begin there or behind it
  int64_t harvest_at_ns_ = 0;
  memory::Arena arena_;
  std::vector<Launch> launches_;
  std::vector<std::shared_ptr<const memory::Binding>> bindings_;  // that the driver may still read
};

// Harvests the buffer of a queue, if it has one.
void harvest_results(Queue& queue);
// The same at the end of the recording, or of the queue.
void finish_results(Queue& queue);

}  // namespace pasta::opencl
