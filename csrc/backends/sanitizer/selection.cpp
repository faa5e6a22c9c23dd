#include "backends/sanitizer/selection.h"

#include <algorithm>
#include <cstdlib>

namespace pasta::sanitizer {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

void select(std::string_view word, Selection& selection) {
  if (word == "all") {
    selection.objects = selection.sites = selection.blocks = selection.shared = selection.local = true;
  } else if (word == "objects") {
    selection.objects = true;
  } else if (word == "sites" || word == "divergence" || word == "coalescing") {
    // Sectors, and how many lanes of a warp are active, are known wherever a site is counted.
    selection.sites = true;
  } else if (word == "blocks") {
    selection.blocks = true;
  } else if (word == "shared") {
    selection.shared = true;
  } else if (word == "local") {
    selection.sites = selection.local = true;
  } else if (word == "trace") {
    selection.trace = true;
  } else if (word == "floor") {
    selection.floor = true;
  } else if (!word.empty() && word != "lines") {  // those are of OpenCL: pages are counted here
    selection.unknown.append(selection.unknown.empty() ? "" : ",").append(word);
  }
}

}  // namespace

Selection Selection::parse(std::string_view list, std::string_view sample, std::string_view buffer) {
  Selection selection;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    select(list.substr(0, comma), selection);
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  // In the trace there are accesses to shared memory too; with nothing else, they are counted by instruction.
  if (selection.shared && !selection.trace) selection.sites = true;
  selection.sampling = Sampling::parse(sample);
  selection.buffer_bytes = parse_memory_buffer(buffer);
  return selection;
}

Selection Selection::from_environment() {
  return parse(variable("PASTA_MEMORY"), variable("PASTA_SAMPLE"), variable("PASTA_MEMORY_BUFFER"));
}

}  // namespace pasta::sanitizer
