#include "session/writer.h"

#include <chrono>
#include <cstring>

#include "session/background_thread.h"
#include "session/gate.h"
#include "session/session.h"

namespace pasta {

void LossLedger::add(std::string_view source, std::string_view table, int64_t records, std::string_view cause,
                     std::string_view remedy) {
  const int64_t now = now_ns();
  std::lock_guard lock(mutex_);
  const auto key = std::make_tuple(std::string(source), std::string(table), std::string(cause));
  const auto [entry, fresh] = entries_.try_emplace(key, Entry{now, now, records, std::string(remedy)});
  if (fresh) return;
  Entry& sum = entry->second;
  sum.end_ns = now;
  if (sum.records != kNullI64) sum.records = records == kNullI64 ? kNullI64 : sum.records + records;
}

std::vector<LossRecord> LossLedger::take(StringTable& strings) {
  std::vector<LossRecord> rows;
  std::lock_guard lock(mutex_);
  for (const auto& [key, entry] : entries_) {
    LossRecord row;
    row.start_ns = entry.start_ns;
    row.end_ns = entry.end_ns;
    row.records = entry.records;
    row.source = strings.intern(std::get<0>(key)).id;
    row.table = strings.intern(std::get<1>(key)).id;
    row.cause = strings.intern(std::get<2>(key)).id;
    if (!entry.remedy.empty()) row.remedy = strings.intern(entry.remedy).id;
    rows.push_back(row);
  }
  entries_.clear();
  return rows;
}

Writer::Writer(BlockPool& pool, StringTable& strings, LossLedger& losses, int64_t max_bytes)
    : pool_(pool), strings_(strings), losses_(losses), max_bytes_(max_bytes), batches_(kTableIdEnd) {
  for (uint16_t id = 1; id < kTableIdEnd; ++id) {
    if (const TableInfo* table = table_info(id)) batches_[id] = std::make_unique<ColumnBatch>(*table);
  }
}

ThreadBuffer* Writer::add_thread() {
  auto* buffer = new ThreadBuffer;
  std::lock_guard lock(threads_mutex_);
  threads_.push_back(buffer);
  return buffer;
}

void Writer::start(void (*tick)()) {
  const std::string error = start_background_thread("pasta-writer", [this, tick] { run(tick); });
  std::lock_guard lock(mutex_);
  started_ = error.empty();
  if (started_) return;
  error_ = error;
  failed_ = true;
}

void Writer::run(void (*tick)()) {
  while (true) {
    uint64_t requested;
    {
      std::unique_lock lock(mutex_);
      if (requested_ == completed_) wake_.wait_for(lock, std::chrono::nanoseconds(kPollNs));
      requested = requested_;
    }
    tick();
    drain();
    write_chunks(requested != completed_);
    if (requested != completed_) {
      std::lock_guard lock(mutex_);
      completed_ = requested;
      done_.notify_all();
    }
  }
}

void Writer::drain() {
  std::vector<ThreadBuffer*> threads;
  {
    std::lock_guard lock(threads_mutex_);
    threads = threads_;
  }
  const int64_t now = now_ns();
  const auto keep = [&](uint16_t table, const void* record, uint16_t) {
    ColumnBatch& batch = *batches_[table];
    if (batch.rows() == 0) batch.oldest_ns = now;
    batch.append(record);
    if (batch.rows() == kChunkRows) {
      // Names first: a chunk never refers to a string that is not in the file yet.
      const auto added = strings_.take_added();
      if (!added.texts.empty()) encode_strings(added.first, added.texts, out_);
      batch.encode(out_);
    }
  };
  std::vector<ThreadBuffer*> ended;
  for (ThreadBuffer* thread : threads) {
    const bool orphaned = thread->orphaned.load(std::memory_order_acquire);
    thread->drain(pool_, keep);
    if (orphaned) ended.push_back(thread);
    if (out_.size() > (4u << 20)) write_chunks(false);
  }
  if (ended.empty()) return;
  std::lock_guard lock(threads_mutex_);
  for (ThreadBuffer* thread : ended) {
    for (auto it = threads_.begin(); it != threads_.end(); ++it) {
      if (*it == thread) {
        threads_.erase(it);
        break;
      }
    }
    thread->release(pool_);
    delete thread;
  }
}

void Writer::write_chunks(bool all) {
  for (const LossRecord& row : losses_.take(strings_)) batches_[static_cast<uint16_t>(LossRecord::kTable)]->append(&row);
  const int64_t now = now_ns();
  bool strings_written = false;
  for (const auto& batch : batches_) {
    if (batch == nullptr || batch->rows() == 0 || (!all && now - batch->oldest_ns < kMaxAgeNs)) continue;
    if (!strings_written) {
      const auto added = strings_.take_added();
      if (!added.texts.empty()) encode_strings(added.first, added.texts, out_);
      strings_written = true;
    }
    batch->encode(out_);
  }
  if (out_.empty()) return;
  if (!failed_) {
    if (const int error = shard_.write(out_); error != 0) fail(error);
  }
  out_.clear();
  if (shard_.bytes_written() >= max_bytes_ && (gate_state.load() & kClosedFull) == 0) {
    change_gate(kClosedFull, 0);
    report_loss("session", "", kNullI64, "the trace reached --max-size: later events were not recorded",
                "raise --max-size or record a range");
  }
}

void Writer::fail(int error) {
  {
    std::lock_guard lock(mutex_);
    error_ = std::string("writing the trace failed: ") + std::strerror(error);
  }
  failed_ = true;
  change_gate(kClosedNoSession, 0);
}

bool Writer::flush(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  if (!started_ || failed_) return false;
  const uint64_t request = ++requested_;
  wake_.notify_one();
  return done_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [&] { return completed_ >= request; });
}

std::string Writer::error() {
  std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace pasta
