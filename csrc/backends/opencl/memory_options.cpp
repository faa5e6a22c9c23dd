#include "backends/opencl/memory_options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "session/options.h"

namespace pasta::opencl {
namespace {

constexpr size_t kLeastBuffer = size_t{1} << 20;

int64_t count_or(std::string_view text, int64_t otherwise) {
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, count);
  return parsed.ec == std::errc() && parsed.ptr == end && count > 0 ? count : otherwise;
}

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : std::string_view();
}

}  // namespace

MemoryOptions MemoryOptions::parse(std::string_view list, std::string_view sample,
                                   std::string_view buffer) {
  MemoryOptions options;
  const struct {
    std::string_view word;
    bool& selected;
  } words[] = {{"objects", options.objects},
               {"sites", options.sites},
               {"lines", options.lines},
               {"blocks", options.blocks},
               {"shared", options.shared},
               {"coalescing", options.coalescing},
               {"divergence", options.divergence},
               {"trace", options.trace}};
  for (size_t begin = 0; begin < list.size();) {
    options.asks_for_anything = true;
    const size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view word = list.substr(begin, end - begin);
    for (const auto& known : words) {
      // The trace is a check on the rest: `all` leaves it out.
      if (word == known.word || (word == "all" && known.word != "trace")) known.selected = true;
    }
    begin = end + 1;
  }
  const size_t colon = std::min(sample.find(':'), sample.size());
  options.sample_first = count_or(sample.substr(0, colon), options.sample_first);
  if (colon < sample.size()) {
    options.sample_every = count_or(sample.substr(colon + 1), options.sample_every);
  }
  const int64_t bytes = parse_bytes(buffer, static_cast<int64_t>(options.buffer_bytes));
  options.buffer_bytes = std::max(static_cast<size_t>(bytes), kLeastBuffer);
  return options;
}

const MemoryOptions& memory_options() {
  static const MemoryOptions* const options = new MemoryOptions(MemoryOptions::parse(
      variable("PASTA_MEMORY"), variable("PASTA_SAMPLE"), variable("PASTA_MEMORY_BUFFER")));
  return *options;
}

}  // namespace pasta::opencl
