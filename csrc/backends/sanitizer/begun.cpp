#include "backends/sanitizer/begun.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pasta::sanitizer {
namespace {

struct Entry {
  std::shared_ptr<Launches> launches;
  uint64_t token;
  bool in_graph;
};
thread_local std::vector<Entry> t_begun;

}  // namespace

void Begun::add(std::shared_ptr<Launches> launches, uint64_t token, bool in_graph) {
  t_begun.push_back({std::move(launches), token, in_graph});
}

void Begun::launched(bool graphs_too) {
  const auto is_launched = [graphs_too](const Entry& entry) {
    if (entry.in_graph && !graphs_too) return false;
    entry.launches->launched(entry.token);
    return true;
  };
  t_begun.erase(std::remove_if(t_begun.begin(), t_begun.end(), is_launched), t_begun.end());
}

}  // namespace pasta::sanitizer
