// What the memory pass measures: PASTA_MEMORY, PASTA_SAMPLE and PASTA_MEMORY_BUFFER.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "session/options.h"

namespace pasta::sanitizer {

struct Selection {
  bool objects = false, sites = false, blocks = false;
  bool shared = false, local = false;  // sites of these spaces too
  bool trace = false;                  // every access
  bool floor = false;                  // patches that do nothing: the cost of instrumentation itself
  std::string unknown;                 // words of the list that mean nothing, comma-separated

  Sampling sampling;  // of each kernel and grid
  size_t buffer_bytes = size_t{256} << 20;  // device memory for results, a context

  // "objects,sites,blocks,shared,local,divergence,trace" (or "all" but the trace, or "floor"); N or N:K; bytes.
  static Selection parse(std::string_view list, std::string_view sample, std::string_view buffer);
  static Selection from_environment();

  bool nothing() const { return !objects && !sites && !blocks && !trace && !floor; }
  bool tells_instructions() const { return sites || trace; }
};

}  // namespace pasta::sanitizer
