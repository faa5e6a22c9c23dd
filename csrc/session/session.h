// What a backend sees of the session: emit records, intern strings, ask whether to collect.
//
// Every function here is safe from any thread, never throws, never blocks on the disk, and does nothing
// when the process is not being recorded. One session exists per process image; a fork gets a new one.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "schema/tables.h"
#include "session/clock.h"

namespace pasta {

// -- Is there something to do? ---------------------------------------------------------------------

// Why collection is off at the moment; 0 in `gate_state` means it is on.
enum Closed : uint32_t {
  kClosedNoSession = 1u << 0,  // not recording, or the session failed
  kClosedStopped = 1u << 1,    // pasta.stop(), cudaProfilerStop
  kClosedRange = 1u << 2,      // waiting for the capture range
  kClosedDelay = 1u << 3,      // --delay has not passed
  kClosedDuration = 1u << 4,   // --duration is over
  kClosedFull = 1u << 5,       // --max-size is reached
  kClosedLaunch = 1u << 6,     // outside PASTA_START_LAUNCH .. PASTA_END_LAUNCH
};
extern std::atomic<uint32_t> gate_state;

// True while events (kernels, copies, calls, operators) are wanted. Knowledge of memory objects
// (alloc, tensor) and identity tables is kept whenever recording() is true: a range gates
// collection, never the knowledge of what an address is.
inline bool collecting() { return gate_state.load(std::memory_order_relaxed) == 0; }
// The same without the numbers of launches: while true, a launch counts, and may be the one that opens the gate.
inline bool counting_launches() { return (gate_state.load(std::memory_order_relaxed) & ~kClosedLaunch) == 0; }
inline bool recording() { return (gate_state.load(std::memory_order_relaxed) & kClosedNoSession) == 0; }

// True when `-t/--trace` asks for this table (all do by default, see session/options.h).
bool traces(TableId table);
// What opens the gate, with --capture-range: annotations, or cudaProfilerStart and cudaProfilerStop.
bool captures_annotations();
bool captures_profiler_range();
bool traces_all_api();             // -t api=all: every call, not only those that move, launch, create or wait
bool traces_whole_graphs();        // --cuda-graph-trace=graph: one row a launch of a graph
bool traces_latency_timestamps();  // --cuda-latency-timestamps: when kernels were queued and submitted

// --buffer-size: what a backend may keep in vendor buffers of its own.
size_t buffer_bytes();

// Decides, once per launch and in launch order, whether this kernel is recorded: --kernels regex,
// --launch-skip/--launch-count, PASTA_START_LAUNCH/END_LAUNCH. Call it only while recording(). A backend that hears of
// a launch later says whether the gate was open then.
bool select_launch(std::string_view kernel_name, bool was_open = counting_launches());
// True when an option may leave launches out: that regular expression, numbers of launches, a range or a time.
bool selects_launches();

// -- Records ---------------------------------------------------------------------------------------

// Appends the record to this thread's buffer. A full pool drops it and counts the loss.
void emit_bytes(uint16_t table, const void* record, uint32_t bytes);

template <class Record>
void emit(const Record& record) {
  static_assert(std::is_trivially_copyable_v<Record>);
  emit_bytes(static_cast<uint16_t>(Record::kTable), &record, sizeof(Record));
}

// Number of `text` in the string table; cheap when this thread used the same text before.
// A string longer than kMaxStringBytes is cut.
StringId intern(std::string_view text);
inline constexpr size_t kMaxStringBytes = 1 << 20;

// Writes a file beside the shards, for whoever seals them: whole, or not at all (false). One of that name stays as it
// is. Unlike everything else here this waits for the disk.
bool write_beside(std::string_view name, const void* data, size_t bytes);

// Reports that something was not recorded. `records` may be kNullI64 (unknown). Rows that are equal in
// source, table and cause are summed, so this may be called once per lost event.
void report_loss(std::string_view source, std::string_view table, int64_t records, std::string_view cause,
                 std::string_view remedy = {});

// -- Identity --------------------------------------------------------------------------------------

// A process-wide counter for launch, operator, object, correlation and range ids. Starts above the ids
// of an earlier image of the same pid (exec).
int64_t next_id();

// OS thread id; the first call on a thread writes its row of `thread`.
int32_t thread_id();

// -- What the thread is doing: attribution of launches ---------------------------------------------

// Operator now running on this thread; set by the framework hooks, read at launch.
int64_t current_op();          // kNullI64 outside an operator
void set_current_op(int64_t op_id);

// Annotations. `domain` and `category` may be empty. range_start returns a range_id for range_end.
// These also open and close the capture range (--capture-range=range -p NAME[@DOMAIN]).
void range_push(std::string_view name, AnnotationSource source, std::string_view domain = {},
                std::string_view category = {});
void range_pop(AnnotationSource source, std::string_view domain = {});
int64_t range_start(std::string_view name, AnnotationSource source, std::string_view domain = {},
                    std::string_view category = {});
void range_end(int64_t range_id);
void range_mark(std::string_view name, AnnotationSource source, std::string_view domain = {},
                std::string_view category = {});

// pasta.start()/stop(), cudaProfilerStart/Stop, clicking a control.
void collection_start();
void collection_stop();

// -- Backends --------------------------------------------------------------------------------------

// A backend as the session sees it. Every function may be null; all are called without a session lock.
struct Backend {
  const char* name;        // "opencl", "cupti", "torch", ...
  const char* validation;  // where it was run on its hardware, or "never run on its hardware"
  // Emit what the device has finished by now. Called by the writer thread's flush requests, before exit,
  // _exit and exec, from a thread of the program (never from a destructor). Must return within `deadline_ns`
  // (session clock).
  void (*harvest)(int64_t deadline_ns);
  // The child of a fork: forget the parent's device state. No vendor call.
  void (*after_fork)();
  // The gate opened or closed (true: open), for backends that enable vendor tracing only then. Called too when
  // counting_launches() changed.
  void (*gate_changed)(bool open);
};
// Registers a backend (static storage); it is named in the process row once it saw a device.
void register_backend(const Backend& backend);

// Starts the session when the environment asks for one (idempotent, cheap). Doors call it first.
// Returns recording().
bool ensure_session();
// True when the environment asks for one. Starts nothing: for doors that open before any device is used.
bool wants_recording();

// Harvests all backends and writes everything to disk; at most `timeout_ns`.
void flush(int64_t timeout_ns);

// Waits, at most so long, until what was emitted is written: for those that emit more than the buffer holds at once.
// Not on the writer's own thread.
void drain(int64_t timeout_ns);

}  // namespace pasta
