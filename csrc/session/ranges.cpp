// Annotations: nested ranges a thread, free ranges a process, marks; they also drive the capture range.
#include "session/session.h"
#include "session/state.h"

namespace pasta {
namespace {

StringId intern_optional(ThreadState& thread, std::string_view text) {
  return text.empty() ? StringId{} : intern_entry(thread, text).id;
}

OpenRange open_range(ThreadState& thread, std::string_view name, AnnotationSource source, std::string_view domain,
                     std::string_view category) {
  OpenRange range{};
  const StringTable::Entry name_entry = intern_entry(thread, name);
  range.name = name_entry.id;
  range.name_text = name_entry.text;
  if (!domain.empty()) {
    const StringTable::Entry domain_entry = intern_entry(thread, domain);
    range.domain = domain_entry.id;
    range.domain_text = domain_entry.text;
  }
  range.category = intern_optional(thread, category);
  range.source = source;
  range.thread_id = thread.thread_id;
  range.range_id = next_id();
  range.parent_id = thread.ranges.empty() ? kNullI64 : thread.ranges.back().range_id;
  thread.state->gate.entered(range.name_text, range.domain_text);
  range.start_ns = now_ns();
  return range;
}

void close_range(State& state, const OpenRange& range, RangeKind kind) {
  if (collecting()) {
    RangeRecord row;
    row.start_ns = range.start_ns;
    row.end_ns = now_ns();
    row.thread_id = range.thread_id;
    row.range_id = range.range_id;
    row.parent_id = range.parent_id;
    row.name = range.name;
    row.domain = range.domain;
    row.category = range.category;
    row.kind = kind;
    row.source = range.source;
    emit(row);
  }
  state.gate.left(range.name_text, range.domain_text);
}

}  // namespace

void range_push(std::string_view name, AnnotationSource source, std::string_view domain,
                std::string_view category) {
  ThreadState* thread = this_thread();
  if (thread == nullptr) return;
  thread->ranges.push_back(open_range(*thread, name, source, domain, category));
}

void range_pop(AnnotationSource source, std::string_view domain) {
  ThreadState* thread = this_thread();
  if (thread == nullptr) return;
  // Each source and domain nests on its own.
  for (size_t i = thread->ranges.size(); i-- > 0;) {
    if (thread->ranges[i].source != source || thread->ranges[i].domain_text != domain) continue;
    const OpenRange range = thread->ranges[i];
    thread->ranges.erase(thread->ranges.begin() + static_cast<std::ptrdiff_t>(i));
    close_range(*thread->state, range, RangeKind::push_pop);
    return;
  }
}

int64_t range_start(std::string_view name, AnnotationSource source, std::string_view domain,
                    std::string_view category) {
  ThreadState* thread = this_thread();
  if (thread == nullptr) return kNullI64;
  OpenRange range = open_range(*thread, name, source, domain, category);
  range.parent_id = kNullI64;
  std::lock_guard lock(thread->state->ranges_mutex);
  thread->state->free_ranges.emplace(range.range_id, range);
  return range.range_id;
}

void range_end(int64_t range_id) {
  ThreadState* thread = this_thread();
  if (thread == nullptr) return;
  State& state = *thread->state;
  OpenRange range;
  {
    std::lock_guard lock(state.ranges_mutex);
    const auto found = state.free_ranges.find(range_id);
    if (found == state.free_ranges.end()) return;
    range = found->second;
    state.free_ranges.erase(found);
  }
  close_range(state, range, RangeKind::start_end);
}

void range_mark(std::string_view name, AnnotationSource source, std::string_view domain,
                std::string_view category) {
  ThreadState* thread = this_thread();
  if (thread == nullptr || !collecting()) return;
  RangeRecord row;
  row.start_ns = row.end_ns = now_ns();
  row.thread_id = thread->thread_id;
  row.range_id = next_id();
  row.parent_id = thread->ranges.empty() ? kNullI64 : thread->ranges.back().range_id;
  row.name = intern_entry(*thread, name).id;
  row.domain = intern_optional(*thread, domain);
  row.category = intern_optional(*thread, category);
  row.kind = RangeKind::mark;
  row.source = source;
  emit(row);
}

}  // namespace pasta
