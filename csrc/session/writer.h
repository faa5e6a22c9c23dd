// The writer: one thread that turns the threads' records into chunks of the shard.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "session/buffers.h"
#include "session/shard.h"
#include "session/strings.h"

namespace pasta {

// Losses waiting to be written, summed by (source, table, cause).
class LossLedger {
 public:
  void add(std::string_view source, std::string_view table, int64_t records, std::string_view cause,
           std::string_view remedy);
  // One row per loss since the last call.
  std::vector<LossRecord> take(StringTable& strings);

 private:
  struct Entry {
    int64_t start_ns, end_ns, records;
    std::string remedy;
  };
  std::mutex mutex_;
  std::map<std::tuple<std::string, std::string, std::string>, Entry> entries_;
};

class Writer {
 public:
  // A row is on its way to the disk at most this long after it was emitted; the trace of a killed program
  // ends that long before its end.
  static constexpr int64_t kMaxAgeNs = 250'000'000;
  static constexpr uint32_t kChunkRows = 16384;
  static constexpr int64_t kPollNs = 20'000'000;

  Writer(BlockPool& pool, StringTable& strings, LossLedger& losses, int64_t max_bytes);

  ShardFile& shard() { return shard_; }
  ThreadBuffer* add_thread();

  // `tick` is called about every kPollNs on the writer's thread.
  void start(void (*tick)());
  // Everything emitted before the call is written when this returns true; false after `timeout_ns`.
  bool flush(int64_t timeout_ns);
  void wake() { wake_.notify_one(); }
  // The text of the error that ended writing, or empty.
  std::string error();

 private:
  void run(void (*tick)());
  void drain();
  void write_chunks(bool all);
  void fail(int error);

  BlockPool& pool_;
  StringTable& strings_;
  LossLedger& losses_;
  const int64_t max_bytes_;
  ShardFile shard_;

  std::mutex threads_mutex_;
  std::vector<ThreadBuffer*> threads_;

  // Writer thread only.
  std::vector<std::unique_ptr<ColumnBatch>> batches_;  // by table id
  std::vector<uint8_t> out_;

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  uint64_t requested_ = 0, completed_ = 0;
  bool started_ = false;
  std::string error_;
  std::atomic<bool> failed_{false};
};

}  // namespace pasta
