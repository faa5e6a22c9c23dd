#include "backends/opencl/memory_options.h"

#include <algorithm>
#include <cstdlib>

namespace pasta::opencl {
namespace {

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
  options.sampling = Sampling::parse(sample);
  options.buffer_bytes = parse_memory_buffer(buffer);
  return options;
}

const MemoryOptions& memory_options() {
  static const MemoryOptions* const options = new MemoryOptions(MemoryOptions::parse(
      variable("PASTA_MEMORY"), variable("PASTA_SAMPLE"), variable("PASTA_MEMORY_BUFFER")));
  return *options;
}

}  // namespace pasta::opencl
