// A drained slot -> what the launch did to memory. Pure functions: what a trace record becomes is
// decided here.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "device/opencl/binding.h"
#include "device/opencl/plan.h"

namespace pasta::memory {

// One site in one launch.
struct SiteAccess {
  uint32_t site;       // of KernelPlan::sites
  uint64_t lanes = 0;  // executions by a work-item; elements for async copies
  uint64_t bytes = 0;
  uint64_t elsewhere =
      0;  // of a dynamic site: accesses that reached no known object (private memory, if generic)
  // From the trace only, see trace_reduce.h.
  std::optional<uint64_t> executions;  // by a sub-group of the declared width
  std::optional<uint64_t> sectors, ideal_sectors;
  std::optional<uint64_t> bank_conflicts;
};

// All that one launch did to one object. Copies count as a load or store per execution (per
// element, if async).
struct ObjectAccess {
  int64_t object_id = kNoObject;
  std::optional<uint32_t> argument;  // null: no argument, or several
  Space space = Space::unknown;
  uint64_t loads = 0, stores = 0, atomics = 0;
  uint64_t load_bytes = 0, store_bytes = 0, atomic_bytes = 0;
  // Null where they were not reduced, or the object is too large for granules this fine.
  std::optional<uint64_t> lines, pages_4k, pages_64k, pages_2m;
  // Null also when nothing was touched. Without Reducers::extents, rounded out to the granules of
  // the map (64-byte lines, for all but very large objects).
  std::optional<uint64_t> first_offset, last_offset;
};

// The accesses of a launch to one block (2 MiB, the last one less) of an object.
struct BlockAccess {
  int64_t object_id = kNoObject;
  uint64_t offset = 0, bytes = 0;  // of the block, in the object
  uint64_t accesses = 0;           // a work-item each
};

// Adds the counts and extents of an object that turned out to be the same one; not its lines.
void merge_object(ObjectAccess& into, const ObjectAccess& other);

struct LaunchAccess {
  std::vector<SiteAccess> sites;       // one for each site of the plan
  std::vector<ObjectAccess> objects;   // those accessed at least once
  std::vector<BlockAccess> blocks;     // of known objects, those accessed; by object and offset
  uint64_t local_size[3] = {0, 0, 0};  // as enqueued
  uint64_t trace_lost = 0;             // accesses that found no room in the trace
  bool lines_lost = false;             // the device's sub-groups are no parts of rows
  bool lanes_lost = false;             // some that are compared found no room in the scratch
};

// Facts that the device wrote into a slot.
struct SlotFacts {
  uint64_t local_size[3] = {0, 0, 0};
  std::vector<uint64_t> bases;  // address of each root's object
  uint64_t trace_wanted = 0;
};
SlotFacts read_facts(const KernelPlan& plan, const uint8_t* slot, uint64_t bytes);

// `work_items` is the product of the global sizes. A slot shorter than the binding says gives
// zeros.
LaunchAccess decode(const KernelPlan& plan, const Binding& binding, uint64_t work_items,
                    const uint8_t* slot, uint64_t bytes);

}  // namespace pasta::memory
