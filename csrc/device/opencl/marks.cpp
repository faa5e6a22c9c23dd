#include "device/opencl/marks.h"

#include <algorithm>
#include <map>

#include "device/opencl/layout.h"
#include "device/opencl/spirv/addresses.h"
#include "device/opencl/spirv/cfg.h"

namespace pasta::memory {

using namespace spirv;

namespace {

constexpr int64_t kLine = int64_t{1} << kLineShift;
constexpr int64_t kMaxHull = 2 * kLine;  // longer ones would need a loop to mark

// Bytes [begin, end) from a base, marked by one of the accesses.
struct Hull {
  uint32_t block;
  int64_t begin, end;
  uint64_t alignment;                     // of begin
  std::vector<InstanceAccess*> accesses;  // in the order of the program
  std::vector<int64_t> offsets;           // of each, from the base
};

bool is_markable(const CallTree& tree, const InstanceAccess& found) {
  const Site& site = tree.plan.sites[found.site];
  return found.access.form == AccessForm::fixed && site.root != kNone && is_mapped(site.space) &&
         found.access.bytes > 0 && found.access.bytes <= static_cast<uint64_t>(kMaxHull);
}

// Adds the access to the hull, if a single mark then still costs no more than the two.
bool join(Hull& hull, InstanceAccess& found, int64_t offset) {
  int64_t end = offset + static_cast<int64_t>(found.access.bytes);
  int64_t new_begin = std::min(hull.begin, offset), new_end = std::max(hull.end, end);
  // A gap that is shorter than a line holds no line of its own.
  bool near = offset - hull.end < kLine && hull.begin - end < kLine;
  if (!near || new_end - new_begin > kMaxHull) return false;
  uint64_t alignment = hull.begin == new_begin ? hull.alignment : found.access.alignment;
  uint32_t apart = most_lines(static_cast<uint64_t>(hull.end - hull.begin), hull.alignment) +
                   most_lines(found.access.bytes, found.access.alignment);
  if (most_lines(static_cast<uint64_t>(new_end - new_begin), alignment) > apart) return false;
  hull.begin = new_begin;
  hull.end = new_end;
  hull.alignment = alignment;
  hull.accesses.push_back(&found);
  hull.offsets.push_back(offset);
  return true;
}

}  // namespace

uint32_t most_lines(uint64_t bytes, uint64_t alignment) {
  bool power_of_two = alignment && (alignment & (alignment - 1)) == 0;
  uint64_t line = static_cast<uint64_t>(kLine);
  uint64_t step = power_of_two ? std::min(alignment, line) : 1;
  return static_cast<uint32_t>((line - step + bytes + line - 1) / line);
}

void plan_marks(const Source& source, const CallTree& tree, Instance& instance) {
  Addresses addresses(source.module, source.definitions, source.types);
  std::vector<Hull> hulls;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<size_t>> of_base;  // root, base -> hulls
  for (InstanceAccess& found : instance.accesses) {
    if (!is_markable(tree, found)) continue;
    const Access& access = found.access;
    LinearAddress address = addresses.of(access.pointer, access.index, access.index_bytes);
    if (address.offset > INT64_MAX - kMaxHull || address.offset < INT64_MIN + kMaxHull) continue;
    // Accesses come block by block, so the last hull of this base is the one to join, if any is.
    auto& known = of_base[{tree.plan.sites[found.site].root, address.base}];
    bool joined = !known.empty() && hulls[known.back()].block == found.block &&
                  join(hulls[known.back()], found, address.offset);
    if (joined) continue;
    known.push_back(hulls.size());
    int64_t end = address.offset + static_cast<int64_t>(access.bytes);
    hulls.push_back(
        {found.block, address.offset, end, access.alignment, {&found}, {address.offset}});
  }
  Dominators dominators(source.definitions, *instance.function);
  for (const auto& [base, known] : of_base) {
    for (size_t number : known) {
      const Hull& hull = hulls[number];
      bool covered = std::any_of(known.begin(), known.end(), [&](size_t other) {
        const Hull& by = hulls[other];
        return by.block != hull.block && by.begin <= hull.begin && by.end >= hull.end &&
               dominators.dominates(by.block, hull.block);
      });
      for (size_t i = 0; i < hull.accesses.size(); ++i) {
        Mark& mark = hull.accesses[i]->mark;
        mark.wanted = i == 0 && !covered;
        mark.distance = hull.begin - hull.offsets[i];
        mark.bytes = static_cast<uint64_t>(hull.end - hull.begin);
        mark.alignment = hull.alignment;
      }
    }
  }
}

}  // namespace pasta::memory
