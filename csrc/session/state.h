// What the parts of the session share: the state of this process image and of each thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "session/gate.h"
#include "session/identity.h"
#include "session/options.h"
#include "session/session.h"
#include "session/writer.h"

namespace pasta {

struct OpenRange {
  int64_t start_ns, range_id, parent_id;
  StringId name, domain, category;
  std::string_view name_text, domain_text;  // in the string table
  AnnotationSource source;
  int32_t thread_id;
};

// One process image. A fork's child gets a new one and leaks its parent's: the parent's locks may be held
// by threads that the child does not have.
struct State {
  State();

  const Options options;
  const Identity identity;
  const int32_t pid;
  const int64_t start_ns;
  Gate gate;
  BlockPool pool;
  StringTable strings;
  LossLedger losses;
  Writer writer;

  std::mutex start_mutex;
  std::atomic<bool> started{false};
  std::string start_error;
  std::string directory;  // of the recording, once started
  std::atomic<int64_t> ids{1};
  std::atomic<int64_t> next_tick{0};
  std::atomic<bool> finished{false};

  std::mutex ranges_mutex;
  std::unordered_map<int64_t, OpenRange> free_ranges;  // start_end ranges, by range_id
};

struct ThreadState {
  State* state;  // the process image that `buffer` belongs to
  ThreadBuffer* buffer;
  int32_t thread_id;
  int64_t current_op;
  std::vector<OpenRange> ranges;

  // Texts used last, so that a name costs no lock the second time.
  static constexpr size_t kCachedStrings = 1024;
  StringTable::Entry strings[kCachedStrings];
};

// The state of this process, null when it is not to be recorded.
State* current_state();
// This thread's state, started session included; null when not recording.
ThreadState* this_thread();

StringTable::Entry intern_entry(ThreadState& thread, std::string_view text);

}  // namespace pasta
