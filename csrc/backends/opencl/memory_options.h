// What --memory measures in OpenCL programs: PASTA_MEMORY, PASTA_SAMPLE and PASTA_MEMORY_BUFFER.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "session/options.h"

namespace pasta::opencl {

struct MemoryOptions {
  bool objects = false, sites = false;
  bool lines = false;              // 64-byte lines and pages, of each object
  bool blocks = false;             // accesses to each 2 MiB of an object
  bool shared = false;             // local memory too
  bool coalescing = false;         // lines (and with `shared`, passes) of each sub-group access
  bool divergence = false;         // executions by sub-groups
  bool trace = false;              // every access, as far as there is room
  bool asks_for_anything = false;  // the list has a word, if only of other devices

  Sampling sampling;  // of each kernel and global size
  size_t buffer_bytes = size_t{256} << 20;  // device memory for results, a process

  // The words of `words` in parse(), or "all"; N or N:K; bytes. Words of other devices mean nothing
  // here.
  static MemoryOptions parse(std::string_view list, std::string_view sample,
                             std::string_view buffer);
  bool measures_sites() const { return sites || coalescing || divergence || trace; }
  bool compares_lanes() const { return coalescing || divergence; }
  bool measures_anything() const { return objects || lines || blocks || measures_sites(); }
};

// Those of this process, read once.
const MemoryOptions& memory_options();

}  // namespace pasta::opencl
