// Per-thread buffers: order kept, nothing lost, memory bounded, loss reported to the caller.
#include "session/buffers.h"

#include <thread>
#include <vector>

#include "check.h"

using pasta::Block;
using pasta::BlockPool;
using pasta::ThreadBuffer;

namespace {

// A producer and a consumer at once: every record arrives once, in order, whole.
void test_concurrent() {
  BlockPool pool(64 * Block::kBytes);
  ThreadBuffer buffer;
  constexpr uint64_t kRecords = 2'000'000;
  uint64_t dropped = 0;
  std::atomic<bool> done{false};
  std::thread producer([&] {
    for (uint64_t i = 0; i < kRecords; ++i) {
      const uint64_t record[3] = {i, i * 3, ~i};
      // 12 or 24 bytes: both a padded and an unpadded size.
      while (!buffer.append(pool, static_cast<uint16_t>(1 + i % 2), record, i % 2 ? 24 : 12)) {
        ++dropped;
        std::this_thread::yield();
      }
    }
    done = true;
  });
  uint64_t next = 0;
  const auto visit = [&](uint16_t table, const void* record, uint16_t bytes) {
    uint64_t value;
    std::memcpy(&value, record, 8);
    CHECK(value == next);
    CHECK(table == 1 + next % 2);
    CHECK(bytes == (next % 2 ? 24 : 12));
    if (bytes == 24) {
      uint64_t last;
      std::memcpy(&last, static_cast<const uint8_t*>(record) + 16, 8);
      CHECK(last == ~next);
    }
    ++next;
  };
  while (!done || next < kRecords) buffer.drain(pool, visit);
  producer.join();
  CHECK(next == kRecords);
}

// Without a consumer the pool runs dry after exactly its bound; after a drain it serves again.
void test_bound() {
  BlockPool pool(2 * Block::kBytes);
  ThreadBuffer buffer;
  uint64_t value = 0;
  uint64_t kept = 0;
  while (buffer.append(pool, 1, &value, 8)) ++kept;
  // A record of 8 bytes takes 16; two blocks hold this many.
  CHECK(kept == 2 * (Block::kDataBytes / 16));
  CHECK(pool.pressed());
  uint64_t seen = 0;
  buffer.drain(pool, [&](uint16_t, const void*, uint16_t) { ++seen; });
  CHECK(seen == kept);
  CHECK(buffer.append(pool, 1, &value, 8));
}

void test_empty() {
  BlockPool pool(Block::kBytes);
  ThreadBuffer buffer;
  buffer.drain(pool, [](uint16_t, const void*, uint16_t) { CHECK(false); });
  buffer.release(pool);
}

}  // namespace

int main() {
  test_concurrent();
  test_bound();
  test_empty();
  return g_failures == 0 ? 0 : 1;
}
