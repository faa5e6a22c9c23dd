#include "session/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <unistd.h>

#include "schema/tables.h"

namespace pasta {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

int64_t integer(const char* name, int64_t fallback) {
  const std::string text = variable(name);
  char* end = nullptr;
  const long long value = std::strtoll(text.c_str(), &end, 10);
  return text.empty() || *end != '\0' ? fallback : value;
}

int64_t seconds(const char* name, int64_t fallback) {
  const std::string text = variable(name);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool usable = !text.empty() && *end == '\0' && std::isfinite(value) && value >= 0 && value < 9e9;
  return usable ? static_cast<int64_t>(value * 1e9) : fallback;
}

constexpr uint64_t bit(TableId table) { return uint64_t{1} << static_cast<uint16_t>(table); }

// Always kept: what things are, what was lost, and how clocks relate.
constexpr uint64_t kIdentity = bit(TableId::process) | bit(TableId::thread) | bit(TableId::device) |
                               bit(TableId::context) | bit(TableId::stream) | bit(TableId::stack) |
                               bit(TableId::frame) | bit(TableId::line) | bit(TableId::clock) |
                               bit(TableId::loss) | bit(TableId::access_object) | bit(TableId::access_site) |
                               bit(TableId::access_block) | bit(TableId::access);

struct Group {
  std::string_view name;
  uint64_t tables;
};
// The names of -t/--trace; pasta/inject/options.py explains them to users.
constexpr Group kGroups[] = {
    {"kernel", bit(TableId::kernel) | bit(TableId::collective)},
    {"api", bit(TableId::api) | bit(TableId::build)},
    {"memory", bit(TableId::memcpy) | bit(TableId::memset) | bit(TableId::alloc)},
    {"sync", bit(TableId::sync)},
    {"uvm", bit(TableId::uvm)},
    {"op", bit(TableId::op)},
    {"tensor", bit(TableId::tensor)},
    {"range", bit(TableId::range)},
};

void parse_trace(std::string_view list, Options& options) {
  if (list.empty()) return;
  options.tables = kIdentity;
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view word = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    if (word == "api=all") options.all_api = true;
    const std::string_view name = word.substr(0, word.find('='));
    for (const Group& group : kGroups) {
      if (group.name == name) options.tables |= group.tables;
    }
  }
}

void parse_range(Options& options) {
  const std::string kind = variable("PASTA_CAPTURE_RANGE");
  if (kind == "range") options.capture_range = Options::CaptureRange::range;
  if (kind == "cudaProfilerApi") options.capture_range = Options::CaptureRange::profiler_api;
  options.range_name = variable("PASTA_RANGE");
  const size_t at = options.range_name.rfind('@');
  if (at != std::string::npos) {
    options.range_domain = options.range_name.substr(at + 1);
    options.range_name.resize(at);
  }
  const std::string end = variable("PASTA_CAPTURE_RANGE_END");
  if (end == "none" || end == "repeat") options.range_repeats = INT64_MAX;
  if (end.rfind("repeat:", 0) == 0) options.range_repeats = std::strtoll(end.c_str() + 7, nullptr, 10);
}

}  // namespace

Options Options::from_environment() {
  Options options;
  // A library preloaded by hand records too; PASTA_OUTPUT set to nothing turns that off.
  options.output = std::getenv("PASTA_OUTPUT") == nullptr ? "pasta-%p.pasta" : variable("PASTA_OUTPUT");
  options.recording = variable("PASTA_RECORDING");
  if (options.recording.empty()) options.recording = "group-" + std::to_string(::getpgrp());
  options.registry = variable("PASTA_REGISTRY");
  options.force = integer("PASTA_FORCE", 0) != 0;
  parse_trace(variable("PASTA_TRACE"), options);
  options.whole_graphs = variable("PASTA_CUDA_GRAPH_TRACE") == "graph";
  options.latency_timestamps = integer("PASTA_CUDA_LATENCY_TIMESTAMPS", 0) != 0;
  options.buffer_bytes = static_cast<size_t>(
      parse_bytes(variable("PASTA_BUFFER_SIZE"), static_cast<int64_t>(options.buffer_bytes)));
  options.max_bytes = parse_bytes(variable("PASTA_MAX_SIZE"), options.max_bytes);
  options.anchor_ns = integer("PASTA_ANCHOR_NS", 0);
  options.delay_ns = seconds("PASTA_DELAY", 0);
  options.duration_ns = seconds("PASTA_DURATION", INT64_MAX);
  parse_range(options);
  options.kernels = variable("PASTA_KERNELS");
  options.launch_skip = integer("PASTA_LAUNCH_SKIP", 0);
  options.launch_count = integer("PASTA_LAUNCH_COUNT", INT64_MAX);
  options.start_launch = integer("PASTA_START_LAUNCH", 0);
  options.end_launch = integer("PASTA_END_LAUNCH", INT64_MAX);
  options.ranks = variable("PASTA_RANKS");
  options.rank_env = variable("PASTA_RANK_ENV");
  return options;
}

Sampling Sampling::parse(std::string_view text) {
  const auto positive = [](std::string_view digits, int64_t otherwise) {
    int64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, value);
    return parsed.ec == std::errc() && parsed.ptr == end && value > 0 ? value : otherwise;
  };
  Sampling sampling;
  const size_t colon = std::min(text.find(':'), text.size());
  sampling.first = positive(text.substr(0, colon), sampling.first);
  if (colon < text.size()) sampling.every = positive(text.substr(colon + 1), sampling.every);
  return sampling;
}

size_t parse_memory_buffer(std::string_view text) {
  return static_cast<size_t>(std::max(parse_bytes(text, int64_t{256} << 20), int64_t{1} << 20));
}

int64_t parse_bytes(std::string_view text, int64_t fallback) {
  int64_t value = 0;
  size_t i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    if (value > INT64_MAX / 10 - 1) return fallback;
    value = value * 10 + (text[i] - '0');
  }
  if (i == 0) return fallback;
  const std::string_view suffix = text.substr(i);
  int shift = 0;
  if (suffix == "K" || suffix == "k") shift = 10;
  else if (suffix == "M" || suffix == "m") shift = 20;
  else if (suffix == "G" || suffix == "g") shift = 30;
  else if (!suffix.empty()) return fallback;
  return value > (INT64_MAX >> shift) ? fallback : value << shift;
}

bool in_list(std::string_view list, int64_t number) {
  if (list.empty()) return true;
  const std::string text(list);
  const char* p = text.c_str();
  while (*p != '\0') {
    char* end = nullptr;
    const long long first = std::strtoll(p, &end, 10);
    if (end == p) return false;
    long long last = first;
    p = end;
    if (*p == '-') {
      last = std::strtoll(p + 1, &end, 10);
      p = end;
    }
    if (number >= first && number <= last) return true;
    if (*p == ',') ++p;
    else break;
  }
  return false;
}

}  // namespace pasta
