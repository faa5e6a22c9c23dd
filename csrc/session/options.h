// The record options, read once from PASTA_* environment variables (docs/architecture.md lists them).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pasta {

struct Options {
  std::string output;     // PASTA_OUTPUT; empty: this process is not to be recorded
  std::string recording;  // PASTA_RECORDING; by default one recording a process group
  std::string registry;   // PASTA_REGISTRY
  bool force = false;     // PASTA_FORCE: replace a trace that is there

  uint64_t tables = ~uint64_t{0};   // PASTA_TRACE: bit per table id
  bool all_api = false;             // PASTA_TRACE has api=all
  bool whole_graphs = false;        // PASTA_CUDA_GRAPH_TRACE is graph: a row a launch of a graph, not one a node
  bool latency_timestamps = false;  // PASTA_CUDA_LATENCY_TIMESTAMPS: kernel's queued_ns and submitted_ns

  size_t buffer_bytes = size_t{64} << 20;  // PASTA_BUFFER_SIZE
  int64_t max_bytes = INT64_MAX;           // PASTA_MAX_SIZE

  int64_t anchor_ns = 0;                   // PASTA_ANCHOR_NS; 0: none
  int64_t delay_ns = 0;                    // PASTA_DELAY, from the anchor
  int64_t duration_ns = INT64_MAX;         // PASTA_DURATION, from the end of the delay

  enum class CaptureRange { none, range, profiler_api };
  CaptureRange capture_range = CaptureRange::none;  // PASTA_CAPTURE_RANGE
  std::string range_name, range_domain;             // PASTA_RANGE: NAME[@DOMAIN]
  int64_t range_repeats = 1;  // PASTA_CAPTURE_RANGE_END: stop -> 1, repeat:N -> N, repeat, none -> many

  std::string kernels;               // PASTA_KERNELS: regular expression
  int64_t launch_skip = 0;           // PASTA_LAUNCH_SKIP
  int64_t launch_count = INT64_MAX;  // PASTA_LAUNCH_COUNT
  int64_t start_launch = 0;          // PASTA_START_LAUNCH: first launch of the process to collect
  int64_t end_launch = INT64_MAX;    // PASTA_END_LAUNCH: first launch no longer collected

  // True when launches may be left out.
  bool selects_launches() const {
    return delay_ns > 0 || duration_ns != INT64_MAX || capture_range != CaptureRange::none || !kernels.empty() ||
           launch_skip > 0 || launch_count != INT64_MAX || start_launch > 0 || end_launch != INT64_MAX;
  }

  std::string ranks;     // PASTA_RANKS: 0,3-5
  std::string rank_env;  // PASTA_RANK_ENV

  // Reads the environment. What does not parse keeps its default: the launcher has checked it.
  static Options from_environment();
};

// --sample N[:K]: of each kernel and size the first N launches are measured, then every K-th.
struct Sampling {
  int64_t first = INT64_MAX, every = 1000;

  static Sampling parse(std::string_view text);  // what does not parse keeps its default
  bool leaves_out() const { return first != INT64_MAX; }
  // The `launch`-th of a kernel and size, from 0.
  bool takes(int64_t launch) const { return launch < first || (launch - first + 1) % every == 0; }
};

// PASTA_MEMORY_BUFFER: bytes of device memory for the results of --memory, at least 1 MiB.
size_t parse_memory_buffer(std::string_view text);

// `text` as bytes: digits with an optional K, M or G (powers of 1024); `fallback` when it is not that.
int64_t parse_bytes(std::string_view text, int64_t fallback);
// True when `number` is in a list like "0,3-5". An empty list holds every number.
bool in_list(std::string_view list, int64_t number);

}  // namespace pasta
