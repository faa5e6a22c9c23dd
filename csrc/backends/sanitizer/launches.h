// The launches of one context between their start and the moment their slot was read: slots, range tables and
// which stream each is in. Nothing here waits for a kernel except where a slot is needed and none is free.
//
//   begin()        a slot, its header and the range table on their way in the launch's own stream
//   launched()     the call has returned: the kernel is in its stream
//   synchronized() a stream or the context was waited for: its launches are complete
//   harvest()      slots of complete launches are copied, zeroed and free again; the copies are decoded by another thread
//
// What a launch costs is mostly calls to the library, and what these put into its stream. While the ranges of memory
// objects stay as they are, a slot comes back as the next launch needs it, and all that a launch takes is the call that
// names its slot; slots that lie side by side are read and cleared together.
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
#include "backends/sanitizer/work_queue.h"
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
  const void* function;  // its CUfunction
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
  // The range table of a stream, on the device: what a launch finds there was put there in the same stream. When ranges
  // change it is written anew for the next launch, unless one that wants it as it is may not be in the stream yet.
  struct Table {
    std::shared_ptr<const Cuts> cuts;
    void* memory = nullptr;
    uint32_t capacity = 0;    // ranges that it has room for
    bool ready = false;       // its upload is in the stream
    int64_t expected = 0;     // launches that may not be in the stream yet
    std::vector<nvidia::Range> content;  // as uploaded
  };
  struct Flight {
    NewLaunch launch;
    Slot slot;
    SlotLayout layout;
    std::shared_ptr<const Snapshot> snapshot;  // of memory as it was then
    std::shared_ptr<Table> table;
    bool launched = false;

    Hinted hinted() const { return {launch.function, snapshot->cuts}; }
  };

  class Staging;
  // What a launch left in its slot, copied.
  struct Copied {
    NewLaunch launch;
    SlotLayout layout;
    std::shared_ptr<const Snapshot> snapshot;
    SlotParts slot;                // in the run's staging, or below
    std::vector<uint8_t> objects;  // few launches have some
  };

  std::shared_ptr<Table> table_for(const std::shared_ptr<const Cuts>& cuts, uint32_t capacity,
                                   Sanitizer_StreamHandle stream);
  std::shared_ptr<Table> new_table(uint32_t capacity);
  Slot slot_for(const Flight& flight);
  Slot take_slot(const Flight& flight);
  void keep(const Buffer& image);
  bool prepare(Flight& flight);
  SanitizerResult upload_table(const Flight& flight);
  SanitizerResult upload_header(const Flight& flight);
  SanitizerResult forget_hints(const Flight& flight);
  SanitizerResult clean(const Flight& flight);
  void wait_and_read();
  void complete(const Sanitizer_StreamHandle* stream);
  void harvest(Sanitizer_StreamHandle stream, bool now);
  class Run;
  void read(std::vector<Flight>& flights, Sanitizer_StreamHandle stream);
  uint8_t* image_of(Slab& slab);
  void emit(const Copied& copied);
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
  std::map<Sanitizer_StreamHandle, std::shared_ptr<Table>> tables_;
  std::map<uint64_t, Flight> in_flight_;  // by token, in the order of their launch
  std::vector<Flight> complete_;
  int64_t harvested_ns_ = 0;
  std::vector<Buffer> staging_;  // host memory for copies, not in use now

  // Freeing device memory waits for the device: tables are used again.
  std::shared_ptr<std::vector<Buffer>> free_tables_ = std::make_shared<std::vector<Buffer>>();
  std::shared_ptr<std::mutex> tables_mutex_ = std::make_shared<std::mutex>();

  std::atomic<uint64_t> kept_accesses_{0};

  std::mutex sites_mutex_;
  // By kernel, binary and offset: the code of a module may lie elsewhere after it was patched again.
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, int64_t> sites_;

  WorkQueue decoding_;
};

}  // namespace pasta::sanitizer
