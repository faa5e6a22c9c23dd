// Per-thread record buffers: the producing thread appends, the writer thread drains, no lock between them.
//
// A thread's buffer is a list of fixed blocks. The producer fills the last block and publishes how far it
// got (`committed`, release); the writer consumes up to there and gives blocks that are full and followed by
// another one back to the pool. Blocks come from one bounded pool a process: when it is empty the record is
// dropped and the loss counted; a program is never made to wait.
//
//   block:  | committed | next | record | record | ...        |
//   record: | u16 table | u16 bytes | u32 0 | the record struct, padded to 8 bytes |
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

namespace pasta {

struct Block {
  static constexpr uint32_t kBytes = 64 << 10;
  static constexpr uint32_t kDataBytes = kBytes - 16;

  std::atomic<uint32_t> committed{0};
  std::atomic<Block*> next{nullptr};
  alignas(8) uint8_t data[kDataBytes];
};
static_assert(sizeof(Block) == Block::kBytes);

class BlockPool {
 public:
  explicit BlockPool(size_t max_bytes) : max_blocks_(max_bytes / Block::kBytes) {}

  Block* take();  // null when the bound is reached
  void give(Block* block);
  // More than half of the bound is in use: the writer should not wait for its next turn.
  bool pressed() const { return in_use_.load(std::memory_order_relaxed) * 2 > max_blocks_; }

 private:
  const size_t max_blocks_;
  std::atomic<size_t> in_use_{0};
  std::mutex mutex_;
  std::vector<Block*> free_;
};

struct RecordHeader {
  uint16_t table;
  uint16_t bytes;
  uint32_t reserved;
};
static_assert(sizeof(RecordHeader) == 8);

class ThreadBuffer {
 public:
  // False when the pool is empty and the record was dropped. Producer thread only.
  bool append(BlockPool& pool, uint16_t table, const void* record, uint32_t bytes) {
    const uint32_t need = sizeof(RecordHeader) + ((bytes + 7) & ~7u);
    if (tail_ == nullptr || used_ + need > Block::kDataBytes) {
      if (!grow(pool)) return false;
    }
    uint8_t* at = tail_->data + used_;
    const RecordHeader header{table, static_cast<uint16_t>(bytes), 0};
    std::memcpy(at, &header, sizeof(header));
    std::memcpy(at + sizeof(header), record, bytes);
    used_ += need;
    tail_->committed.store(used_, std::memory_order_release);
    return true;
  }

  // Calls visit(table, record, bytes) for each record that is published. Writer thread only.
  template <class Visit>
  void drain(BlockPool& pool, Visit&& visit) {
    if (head_ == nullptr) head_ = first_.load(std::memory_order_acquire);
    while (head_ != nullptr) {
      // `next` before `committed`: once a next block exists, this one grows no more.
      Block* const next = head_->next.load(std::memory_order_acquire);
      const uint32_t committed = head_->committed.load(std::memory_order_acquire);
      while (consumed_ < committed) {
        RecordHeader header;
        std::memcpy(&header, head_->data + consumed_, sizeof(header));
        visit(header.table, head_->data + consumed_ + sizeof(header), header.bytes);
        consumed_ += sizeof(header) + ((header.bytes + 7u) & ~7u);
      }
      if (next == nullptr) return;
      pool.give(head_);
      head_ = next;
      consumed_ = 0;
    }
  }

  // The thread ended: after a last drain the writer may release() and delete the buffer.
  std::atomic<bool> orphaned{false};
  void release(BlockPool& pool) {
    if (head_ != nullptr) pool.give(head_);
    head_ = nullptr;
  }

 private:
  bool grow(BlockPool& pool);

  // Producer's side.
  Block* tail_ = nullptr;
  uint32_t used_ = 0;
  // Hand-over of the first block.
  std::atomic<Block*> first_{nullptr};
  // Writer's side.
  Block* head_ = nullptr;
  uint32_t consumed_ = 0;
};

}  // namespace pasta
