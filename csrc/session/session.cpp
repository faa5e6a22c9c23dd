// The session of this process: starts it, keeps one state a thread, survives fork, ends it in time.
#include "session/session.h"

#include <cstdio>
#include <functional>
#include <new>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "session/lifetime.h"
#include "session/output.h"
#include "session/state.h"

namespace pasta {

std::atomic<uint32_t> gate_state{kClosedNoSession};

namespace {

std::atomic<State*> g_state{nullptr};
std::once_flag g_once;

constexpr int kMaxBackends = 8;
const Backend* g_backends[kMaxBackends];
std::atomic<int> g_backend_count{0};

thread_local ThreadState* t_thread = nullptr;
pthread_key_t g_thread_key;

void end_thread(void* value) {
  auto* thread = static_cast<ThreadState*>(value);
  if (t_thread == thread) t_thread = nullptr;
  // A parent's buffer, seen in a fork's child, has no writer any more.
  if (thread->state == g_state.load() && thread->buffer != nullptr) {
    thread->buffer->orphaned.store(true, std::memory_order_release);
  }
  delete thread;
}

void create_state() {
  State* state = new State;
  const bool wanted = !state->options.output.empty() && in_list(state->options.ranks, state->identity.rank);
  if (!wanted) {
    delete state;
    return;
  }
  g_state.store(state, std::memory_order_release);
  gate_state.store(state->gate.initial(), std::memory_order_release);
}

void forked_child() {
  // Close the parent's file: the child would keep it locked.
  State* parent = g_state.load();
  if (parent == nullptr) return;
  parent->writer.shard().abandon();
  gate_state.store(kClosedNoSession);
  g_state.store(nullptr);
  t_thread = nullptr;
  const int count = g_backend_count.load();
  for (int i = 0; i < count; ++i) {
    if (g_backends[i]->after_fork != nullptr) g_backends[i]->after_fork();
  }
  create_state();
}

void create_once() {
  pthread_key_create(&g_thread_key, end_thread);
  pthread_atfork(nullptr, nullptr, forked_child);
  create_state();
}

std::string describe_backends() {
  std::string text;
  const int count = g_backend_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    if (!text.empty()) text += "; ";
    text += g_backends[i]->name;
    text += ": ";
    text += g_backends[i]->validation;
  }
  return text;
}

ProcessRecord process_record(State& state) {
  ProcessRecord row;
  row.start_ns = state.start_ns;
  row.parent_pid = ::getppid();
  row.rank = state.identity.rank;
  row.local_rank = state.identity.local_rank;
  row.world_size = state.identity.world_size;
  row.host = intern(state.identity.host);
  row.command = intern(state.identity.command);
  row.executable = intern(state.identity.executable);
  row.backends = intern(describe_backends());
  return row;
}

void emit_realtime() {
  ClockRecord row;
  const int64_t before = now_ns();
  row.source_ns = realtime_ns();
  const int64_t after = now_ns();
  row.start_ns = before + (after - before) / 2;
  row.error_ns = after - before;
  row.source = intern("realtime");
  emit(row);
}

// On the writer's thread, every few milliseconds.
void tick() {
  State* state = g_state.load();
  if (state == nullptr) return;
  const int64_t now = now_ns();
  if (now >= state->next_tick.load()) state->next_tick = state->gate.tick(now);
}

bool start(State& state) {
  std::lock_guard lock(state.start_mutex);
  if (state.started.load()) return state.start_error.empty();
  OpenedOutput output = open_output(state.options, state.identity, state.writer.shard());
  state.start_error = output.error;
  state.directory = output.directory;
  if (output.error.empty()) {
    // Ids of an earlier image of this pid end well below.
    state.ids.fetch_add(output.generation << 40);
    state.next_tick = state.gate.tick(now_ns());
    state.writer.start(tick);
    state.start_error = state.writer.error();
  }
  if (!state.start_error.empty()) change_gate(kClosedNoSession, 0);
  state.started.store(true, std::memory_order_release);
  return state.start_error.empty();
}

constexpr int64_t kEndTimeoutNs = 2'000'000'000;

// The state that ends now; null when this process is not the recorded one (after a vfork the child runs in
// its parent's memory) or never recorded anything.
State* ending_state() {
  State* state = g_state.load();
  return state != nullptr && state->started.load() && state->pid == ::getpid() ? state : nullptr;
}

void write_end(State& state, const char* how, int32_t status) {
  if (state.gate.range_missing()) {
    report_loss("session", "", kNullI64, "the capture range was never entered: nothing was collected",
                "check the name given to --range");
  }
  ProcessRecord row = process_record(state);
  row.end_ns = now_ns();
  row.how_ended = intern(how);
  row.exit_status = status;
  emit(row);
  emit_realtime();
  state.writer.flush(kEndTimeoutNs);
  for (const std::string& error : {state.start_error, state.writer.error()}) {
    if (!error.empty()) std::fprintf(stderr, "pasta: not recorded: %s\n", error.c_str());
  }
}

}  // namespace

State::State()
    : options(Options::from_environment()),
      identity(read_identity(options.rank_env)),
      pid(::getpid()),
      start_ns(now_ns()),
      gate(options),
      pool(options.buffer_bytes),
      writer(pool, strings, losses, options.max_bytes) {}

State* current_state() { return g_state.load(std::memory_order_acquire); }

ThreadState* this_thread() {
  ThreadState* thread = t_thread;
  if (thread != nullptr) return thread;
  if (!ensure_session()) return nullptr;
  State* state = current_state();
  if (state == nullptr) return nullptr;
  thread = new (std::nothrow) ThreadState{};
  if (thread == nullptr) return nullptr;
  thread->state = state;
  thread->thread_id = static_cast<int32_t>(::syscall(SYS_gettid));
  thread->current_op = kNullI64;
  thread->buffer = state->writer.add_thread();
  t_thread = thread;
  pthread_setspecific(g_thread_key, thread);

  char name[64] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  if (std::string_view(name).substr(0, 6) != "pasta-") {  // ours are no part of the program
    ThreadRecord row;
    row.thread_id = thread->thread_id;
    row.start_ns = now_ns();
    row.name = intern(name);
    emit(row);
  }
  return thread;
}

bool wants_recording() {
  std::call_once(g_once, create_once);
  return current_state() != nullptr;
}

bool ensure_session() {
  if (!wants_recording()) return false;
  State* state = current_state();
  if (state == nullptr) return false;
  if (state->started.load(std::memory_order_acquire)) return recording();
  if (!start(*state)) return false;
  emit(process_record(*state));
  emit_realtime();
  return true;
}

void emit_bytes(uint16_t table, const void* record, uint32_t bytes) {
  ThreadState* thread = this_thread();
  if (thread == nullptr || !recording()) return;
  State& state = *thread->state;
  if ((state.options.tables >> table & 1) == 0) return;
  if (!thread->buffer->append(state.pool, table, record, bytes)) {
    const TableInfo* info = table_info(table);
    report_loss("session", info == nullptr ? "" : info->name, 1, "the record buffer was full",
                "raise --buffer-size, or trace less");
  } else if (state.pool.pressed()) {
    state.writer.wake();
  }
}

bool traces(TableId table) {
  const State* state = current_state();
  return state != nullptr && (state->options.tables >> static_cast<uint16_t>(table) & 1) != 0;
}

bool traces_all_api() {
  const State* state = current_state();
  return state != nullptr && state->options.all_api;
}

bool traces_whole_graphs() {
  const State* state = current_state();
  return state != nullptr && state->options.whole_graphs;
}

bool traces_latency_timestamps() {
  const State* state = current_state();
  return state != nullptr && state->options.latency_timestamps;
}

size_t buffer_bytes() {
  const State* state = current_state();
  return state == nullptr ? 0 : state->options.buffer_bytes;
}

bool select_launch(std::string_view kernel_name, bool was_open) {
  State* state = current_state();
  return state != nullptr && state->gate.select_launch(kernel_name, was_open);
}

bool captures_annotations() {
  const State* state = current_state();
  return state != nullptr && state->options.capture_range == Options::CaptureRange::range;
}

bool captures_profiler_range() {
  const State* state = current_state();
  return state != nullptr && state->options.capture_range == Options::CaptureRange::profiler_api;
}

bool selects_launches() {
  const State* state = current_state();
  return state != nullptr && state->options.selects_launches();
}

StringTable::Entry intern_entry(ThreadState& thread, std::string_view text) {
  if (text.size() > kMaxStringBytes) text = text.substr(0, kMaxStringBytes);
  StringTable::Entry& slot = thread.strings[std::hash<std::string_view>{}(text) % ThreadState::kCachedStrings];
  if (slot.id.value == 0 || slot.text != text) {
    const StringTable::Entry entry = thread.state->strings.intern(text);
    if (entry.id.value == 0) {
      report_loss("session", "", 1, "too much distinct text: names were dropped", "use fewer distinct names");
      return entry;
    }
    slot = entry;
  }
  return slot;
}

StringId intern(std::string_view text) {
  ThreadState* thread = this_thread();
  return thread == nullptr ? StringId{} : intern_entry(*thread, text).id;
}

bool write_beside(std::string_view name, const void* data, size_t bytes) {
  if (!ensure_session()) return false;
  return write_whole(current_state()->directory + "/" + std::string(name), data, bytes);
}

void report_loss(std::string_view source, std::string_view table, int64_t records, std::string_view cause,
                 std::string_view remedy) {
  if (State* state = current_state()) state->losses.add(source, table, records, cause, remedy);
}

int64_t next_id() {
  State* state = current_state();
  return state == nullptr ? kNullI64 : state->ids.fetch_add(1, std::memory_order_relaxed);
}

int32_t thread_id() {
  const ThreadState* thread = this_thread();
  return thread == nullptr ? kNullI32 : thread->thread_id;
}

int64_t current_op() { return t_thread == nullptr ? kNullI64 : t_thread->current_op; }

void set_current_op(int64_t op_id) {
  if (ThreadState* thread = this_thread()) thread->current_op = op_id;
}

void change_gate(uint32_t set, uint32_t clear) {
  uint32_t before = gate_state.load();
  uint32_t after;
  do {
    after = (before & ~clear) | set;
  } while (!gate_state.compare_exchange_weak(before, after));
  const auto closed = [](uint32_t bits) { return std::make_pair(bits != 0, (bits & ~kClosedLaunch) != 0); };
  if (closed(before) == closed(after)) return;
  const int count = g_backend_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    if (g_backends[i]->gate_changed != nullptr) g_backends[i]->gate_changed(after == 0);
  }
}

void collection_start() {
  if (wants_recording()) current_state()->gate.profiler_start();
}

void collection_stop() {
  if (wants_recording()) current_state()->gate.profiler_stop();
}

void register_backend(const Backend& backend) {
  static std::mutex mutex;
  {
    std::lock_guard lock(mutex);
    const int count = g_backend_count.load();
    for (int i = 0; i < count; ++i) {
      if (g_backends[i] == &backend) return;
    }
    if (count == kMaxBackends) return;
    g_backends[count] = &backend;
    g_backend_count.store(count + 1, std::memory_order_release);
  }
  // Identity rows are merged by key: this one adds the backend to the process.
  if (ensure_session()) emit(process_record(*current_state()));
}

void drain(int64_t timeout_ns) {
  State* state = current_state();
  if (state != nullptr && state->started.load() && state->pid == ::getpid()) state->writer.flush(timeout_ns);
}

void flush(int64_t timeout_ns) {
  State* state = current_state();
  if (state == nullptr || !state->started.load() || state->pid != ::getpid()) return;
  const int64_t deadline = now_ns() + timeout_ns;
  const int count = g_backend_count.load(std::memory_order_acquire);
  for (int i = 0; i < count; ++i) {
    if (g_backends[i]->harvest != nullptr) g_backends[i]->harvest(deadline);
  }
  const int64_t left = deadline - now_ns();
  state->writer.flush(left > 0 ? left : 1);
}

void finish(const char* how, int32_t status) {
  State* state = ending_state();
  if (state == nullptr || state->finished.exchange(true)) return;
  flush(kEndTimeoutNs);
  write_end(*state, how, status);
}

void finish_last() {
  State* state = ending_state();
  if (state == nullptr) return;
  if (!state->finished.exchange(true)) write_end(*state, "exit", kNullI32);
  state->writer.flush(kEndTimeoutNs / 4);
}

void resume_after_failed_exec() {
  if (State* state = current_state()) state->finished.store(false);
}

}  // namespace pasta
