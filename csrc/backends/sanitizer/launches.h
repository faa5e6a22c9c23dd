// The launches of one context between their start and the moment their slot was read: slots, range tables and
// which stream each is in. Nothing here waits for a kernel except where a slot is needed and none is free.
//
//   begin()        a slot, its header and the range table on their way in the launch's own stream
//   launched()     the call has returned: the kernel is in its stream
//   synchronized() a stream or the context was waited for: its launches are complete
//   harvest()      slots of complete launches are copied, decoded, zeroed and free again
//
// No lock is held during a call to the library: the driver may hold locks of its own while it calls us.
#pragma once

#include <sanitizer.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "backends/sanitizer/objects.h"
#include "backends/sanitizer/selection.h"
#include "backends/sanitizer/slot_layout.h"
#include "backends/sanitizer/slots.h"
#include "backends/sanitizer/tensor_maps.h"
#include "session/session.h"

namespace pasta::sanitizer {

// The kernel of a launch, as its sites need it.
struct KernelCode {
  StringId name;
  uint64_t pc = 0;            // of its first instruction; 0 when unknown
  StringId symbol{}, binary{};  // its name in the file that Cubins wrote, and that file's
};

struct NewLaunch {
  int64_t launch_id, queued_ns;
  KernelCode kernel;
  Sanitizer_StreamHandle stream;
};

class Launches {
 public:
  Launches(CUcontext context, const Selection& selection, MemoryObjects& objects, const TensorMaps& maps,
           uint32_t features);

  // The slot's device address, for sanitizerSetLaunchCallbackData; null when there is no room. `token` is for
  // launched().
  void* begin(const NewLaunch& launch, uint64_t& token);
  void launched(uint64_t token);

  void synchronized(Sanitizer_StreamHandle stream);
  void context_synchronized();
  // The stream is about to go; what is in it is complete when the context is.
  void stream_destroyed(Sanitizer_StreamHandle stream);

  // Waits for every stream that has launches, and reads them. On a thread that may be abandoned.
  void finish();
  // The context is about to go: what can be read is.
  void context_destroyed();

 private:
  // A range table on the device. Uploaded in each stream that uses it until one of those uploads is known to be
  // complete: writing the same bytes again harms nobody, and no stream has to wait for another.
  struct Table {
    std::shared_ptr<const Snapshot> snapshot;
    void* memory = nullptr;
    size_t bytes = 0;
    bool complete = false;
    std::set<Sanitizer_StreamHandle> streams;  // that have an upload ahead of their next kernel
  };
  struct Flight {
    NewLaunch launch;
    Slot slot;
    SlotLayout layout;
    std::shared_ptr<const Snapshot> snapshot;  // of memory as it was then
    std::shared_ptr<Table> table;              // of its ranges
    bool launched = false;
  };

  struct Buffer {
    void* memory;
    size_t bytes;
  };
  class Staging;

  std::shared_ptr<Table> table_for(const std::shared_ptr<const Snapshot>& snapshot);
  Slot slot_for(size_t bytes, Sanitizer_StreamHandle stream);
  Slot take_slot(size_t bytes);
  bool upload(Flight& flight);
  void wait_and_read();
  void complete(const Sanitizer_StreamHandle* stream);
  void harvest(Sanitizer_StreamHandle stream, bool now);
  void read(std::vector<Flight>& flights, Sanitizer_StreamHandle stream);
  size_t read_run(std::vector<Flight>& flights, size_t first, Sanitizer_StreamHandle stream, uint8_t* fronts,
                  uint8_t* back);
  SanitizerResult read_back(const Flight& flight, const nvidia::Totals& totals, Sanitizer_StreamHandle stream,
                            uint8_t* to);
  SanitizerResult clear(const Flight& flight, bool back_too, Sanitizer_StreamHandle stream);
  void emit(const Flight& flight, uint8_t* front, uint8_t* back);
  int64_t site_id(const KernelCode& kernel, uint64_t pc);
  void lose(int64_t launches, const std::string& why);

  const CUcontext context_;
  const Selection& selection_;
  MemoryObjects& objects_;
  const TensorMaps& maps_;
  const uint32_t features_;
  const size_t trace_bytes_;  // of each slot

  std::mutex mutex_;
  SlotPool pool_;
  std::shared_ptr<Table> table_;
  std::map<uint64_t, Flight> in_flight_;  // by token, in the order of their launch
  std::vector<Flight> complete_;
  int64_t harvested_ns_ = 0;
  std::vector<Buffer> staging_;  // host memory for copies, not in use now

  // Tables come and go with every change of memory objects, and freeing device memory waits for the device: they
  // are used again.
  std::shared_ptr<std::vector<Buffer>> free_tables_ = std::make_shared<std::vector<Buffer>>();
  std::shared_ptr<std::mutex> tables_mutex_ = std::make_shared<std::mutex>();

  std::atomic<uint64_t> kept_accesses_{0};

  std::mutex sites_mutex_;
  // By kernel, binary and offset: the code of a module may lie elsewhere after it was patched again.
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, int64_t> sites_;
};

}  // namespace pasta::sanitizer
