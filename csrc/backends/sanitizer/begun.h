// Launches that this thread has begun and that may not be in their stream yet: another thread's synchronisation says
// nothing about them.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/sanitizer/instrument.h"
#include "backends/sanitizer/launches.h"

namespace pasta::sanitizer {

class Begun {
 public:
  // `launches` is null for a launch that is not measured.
  static void add(ModuleUse module, std::shared_ptr<Launches> launches, uint64_t token, bool in_graph);
  // The call has returned. The nodes of a graph are launched when the whole graph is.
  static void launched(bool graphs_too);
};

}  // namespace pasta::sanitizer
