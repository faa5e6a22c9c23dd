// What a thread looked up last: a loop of launches finds its queue and kernel without a lock.
#pragma once

#include <memory>

#include "backends/opencl/handle_map.h"

namespace pasta::opencl {

struct Queue;
struct KernelFunction;

struct ThreadCache {
  LastFound<std::shared_ptr<Queue>> queue;
  LastFound<std::shared_ptr<const KernelFunction>> kernel;
};

// This thread's. No thread_local object: those are gone before a program's own destructors and exit
// handlers have made their last calls.
ThreadCache& thread_cache();

}  // namespace pasta::opencl
