// Launches that this thread has begun and that may not be in their stream yet: another thread's synchronisation says
// nothing about them.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/sanitizer/launches.h"

namespace pasta::sanitizer {

class Begun {
 public:
  static void add(std::shared_ptr<Launches> launches, uint64_t token, bool in_graph);
  // The call has returned. The nodes of a graph are launched when the whole graph is.
  static void launched(bool graphs_too);
};

}  // namespace pasta::sanitizer
