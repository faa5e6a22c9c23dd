#include "session/buffers.h"

#include <new>

namespace pasta {

Block* BlockPool::take() {
  std::lock_guard lock(mutex_);
  if (!free_.empty()) {
    Block* block = free_.back();
    free_.pop_back();
    in_use_.fetch_add(1, std::memory_order_relaxed);
    return new (block) Block;
  }
  if (in_use_.load(std::memory_order_relaxed) >= max_blocks_) return nullptr;
  Block* block = new (std::nothrow) Block;
  if (block != nullptr) in_use_.fetch_add(1, std::memory_order_relaxed);
  return block;
}

void BlockPool::give(Block* block) {
  std::lock_guard lock(mutex_);
  free_.push_back(block);
  in_use_.fetch_sub(1, std::memory_order_relaxed);
}

bool ThreadBuffer::grow(BlockPool& pool) {
  Block* block = pool.take();
  if (block == nullptr) return false;
  if (tail_ == nullptr) {
    first_.store(block, std::memory_order_release);
  } else {
    tail_->next.store(block, std::memory_order_release);
  }
  tail_ = block;
  used_ = 0;
  return true;
}

}  // namespace pasta
