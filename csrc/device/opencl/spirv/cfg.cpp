#include "device/opencl/spirv/cfg.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

namespace pasta::spirv {
namespace {

// The relation below costs blocks x (blocks + edges); larger functions count every block.
constexpr size_t kMaxBlocks = 1024;

using Graph = std::vector<std::vector<uint32_t>>;
using Set = std::vector<bool>;

Graph successors(const Definitions& definitions, const Function& function) {
  std::unordered_map<Id, uint32_t> number;
  for (uint32_t i = 0; i < function.blocks.size(); ++i) number[function.blocks[i].label] = i;
  auto at = [&](Id label) {
    auto found = number.find(label);
    if (found == number.end()) throw Malformed("branch to a block that is not in the function");
    return found->second;
  };
  Graph graph(function.blocks.size());
  for (uint32_t i = 0; i < graph.size(); ++i) {
    const Instruction& last = function.blocks[i].instructions.back();
    switch (last.opcode()) {
      case OpBranch: graph[i] = {at(last.operand(0))}; break;
      case OpBranchConditional: graph[i] = {at(last.operand(1)), at(last.operand(2))}; break;
      case OpSwitch: {
        graph[i] = {at(last.operand(1))};
        uint32_t literal = switch_literal_words(definitions, last);
        for (size_t o = 2 + literal; o < last.operand_count(); o += literal + 1)
          graph[i].push_back(at(last.operand(o)));
        break;
      }
      default: break;
    }
  }
  return graph;
}

Graph reversed(const Graph& graph) {
  Graph back(graph.size());
  for (uint32_t i = 0; i < graph.size(); ++i) {
    for (uint32_t to : graph[i]) back[to].push_back(i);
  }
  return back;
}

// Blocks that can be reached from `starts` without passing `avoided`.
Set reach(const Graph& graph, const std::vector<uint32_t>& starts, uint32_t avoided) {
  Set seen(graph.size());
  std::vector<uint32_t> work;
  auto visit = [&](uint32_t block) {
    if (block == avoided || seen[block]) return;
    seen[block] = true;
    work.push_back(block);
  };
  for (uint32_t start : starts) visit(start);
  while (!work.empty()) {
    uint32_t block = work.back();
    work.pop_back();
    for (uint32_t to : graph[block]) visit(to);
  }
  return seen;
}

// Blocks on a cycle that does not pass `avoided`: strongly connected components (Tarjan), with a
// stack of our own.
Set on_cycle(const Graph& graph, uint32_t avoided) {
  size_t n = graph.size();
  Set result(n), active(n);
  std::vector<uint32_t> order(n, 0), low(n, 0), component, next_edge(n, 0), path;
  uint32_t counter = 0;
  for (uint32_t root = 0; root < n; ++root) {
    if (root == avoided || order[root]) continue;
    path.push_back(root);
    while (!path.empty()) {
      uint32_t block = path.back();
      if (order[block] == 0) {
        order[block] = low[block] = ++counter;
        active[block] = true;
        component.push_back(block);
      }
      bool descended = false;
      while (next_edge[block] < graph[block].size()) {
        uint32_t to = graph[block][next_edge[block]++];
        if (to == avoided) continue;
        if (to == block) result[block] = true;
        if (order[to] == 0) {
          path.push_back(to);
          descended = true;
          break;
        }
        if (active[to]) low[block] = std::min(low[block], order[to]);
      }
      if (descended) continue;
      path.pop_back();
      if (!path.empty()) low[path.back()] = std::min(low[path.back()], low[block]);
      if (low[block] != order[block]) continue;
      bool several = component.back() != block;
      for (uint32_t member = ~0u; member != block;) {
        member = component.back();
        component.pop_back();
        active[member] = false;
        if (several) result[member] = true;
      }
    }
  }
  return result;
}

constexpr uint32_t kUnreachable = ~0u;

// Of each block, the last one that all paths from block 0 to it pass; block 0 has itself. Cooper, Harvey and Kennedy,
// "A Simple, Fast Dominance Algorithm" (2001).
std::vector<uint32_t> immediate_dominators(const Graph& graph, std::vector<uint32_t>* depth) {
  Graph back = reversed(graph);
  size_t n = graph.size();
  std::vector<uint32_t> parent(n, kUnreachable);
  depth->assign(n, 0);
  if (n == 0) return parent;

  std::vector<uint32_t> post_order, number(n, kUnreachable), next_edge(n, 0), path{0};
  Set seen(n);
  seen[0] = true;
  while (!path.empty()) {
    uint32_t block = path.back();
    if (next_edge[block] < graph[block].size()) {
      uint32_t to = graph[block][next_edge[block]++];
      if (!seen[to]) {
        seen[to] = true;
        path.push_back(to);
      }
      continue;
    }
    number[block] = static_cast<uint32_t>(post_order.size());
    post_order.push_back(block);
    path.pop_back();
  }

  parent[0] = 0;
  auto common = [&](uint32_t a, uint32_t b) {
    while (a != b) {
      while (number[a] < number[b]) a = parent[a];
      while (number[b] < number[a]) b = parent[b];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = post_order.size(); i-- > 0;) {
      uint32_t block = post_order[i];
      if (block == 0) continue;
      uint32_t found = kUnreachable;
      for (uint32_t from : back[block]) {
        if (parent[from] == kUnreachable) continue;
        found = found == kUnreachable ? from : common(from, found);
      }
      changed |= parent[block] != found;
      parent[block] = found;
    }
  }
  for (size_t i = post_order.size(); i-- > 0;) {
    uint32_t block = post_order[i];
    if (block != 0) (*depth)[block] = (*depth)[parent[block]] + 1;
  }
  return parent;
}

}  // namespace

std::vector<uint32_t> count_classes(const Definitions& definitions, const Function& function) {
  Graph graph = successors(definitions, function);
  uint32_t n = static_cast<uint32_t>(graph.size());
  std::vector<uint32_t> classes(n);
  if (n > kMaxBlocks) {
    for (uint32_t i = 0; i < n; ++i) classes[i] = i;
    return classes;
  }
  Graph back = reversed(graph);
  std::vector<uint32_t> exits;
  for (uint32_t i = 0; i < n; ++i) {
    uint16_t last = function.blocks[i].instructions.back().opcode();
    if (last == OpReturn || last == OpReturnValue) exits.push_back(i);
  }
  std::vector<Set> without_from_entry(n), without_to_exit(n), cycles_without(n);
  for (uint32_t i = 0; i < n; ++i) {
    without_from_entry[i] = reach(graph, {0}, i);
    without_to_exit[i] = reach(back, exits, i);
    cycles_without[i] = on_cycle(graph, i);
  }
  auto equally_often = [&](uint32_t a, uint32_t b) {
    bool a_dominates = !without_from_entry[a][b];
    bool b_post_dominates = !without_to_exit[b][a];
    return a_dominates && b_post_dominates && !cycles_without[a][b] && !cycles_without[b][a];
  };
  std::vector<uint32_t> representatives;
  for (uint32_t i = 0; i < n; ++i) {
    auto same = std::find_if(representatives.begin(), representatives.end(), [&](uint32_t r) {
      return equally_often(r, i) || equally_often(i, r);
    });
    classes[i] = static_cast<uint32_t>(same - representatives.begin());
    if (same == representatives.end()) representatives.push_back(i);
  }
  return classes;
}

Dominators::Dominators(const Definitions& definitions, const Function& function) {
  parent_ = immediate_dominators(successors(definitions, function), &depth_);
}

bool Dominators::dominates(uint32_t a, uint32_t b) const {
  if (a == b) return true;
  if (parent_[a] == kUnreachable || parent_[b] == kUnreachable) return false;
  while (depth_[b] > depth_[a]) b = parent_[b];
  return a == b;
}

Branches::Branches(const Definitions& definitions, const Function& function)
    : graph_(successors(definitions, function)), back_(reversed(graph_)) {
  // Backwards, and one further, from a block 0 that all returns lead to.
  const uint32_t n = static_cast<uint32_t>(graph_.size());
  Graph from_end(n + 1);
  for (uint32_t block = 0; block < n; ++block) {
    if (graph_[block].empty()) from_end[0].push_back(block + 1);
    for (uint32_t before : back_[block]) from_end[block + 1].push_back(before + 1);
  }
  std::vector<uint32_t> depth;
  const std::vector<uint32_t> parent = immediate_dominators(from_end, &depth);
  for (uint32_t block = 0; block < n; ++block) {
    const uint32_t meeting = parent[block + 1];
    meeting_.push_back(meeting == kUnreachable || meeting == 0 ? kUnreachable : meeting - 1);
  }
}

std::vector<uint32_t> Branches::blocks_behind(uint32_t from) const {
  const Set seen = reach(graph_, graph_[from], meeting_[from]);
  std::vector<uint32_t> blocks;
  for (uint32_t block = 0; block < seen.size(); ++block) {
    if (seen[block]) blocks.push_back(block);
  }
  return blocks;
}

}  // namespace pasta::spirv
