// What the host knows of an instrumented kernel: its memory roots, its sites, and how to count
// them.
//
// A *root* is where a pointer comes from: a kernel argument or a program-scope variable. A *site*
// is one access instruction, in one calling context. Sites are not counted one by one: blocks are,
// and not even all of them (see spirv/cfg.h), so the executions of a site are a sum over counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/opencl/access.h"
#include "device/opencl/layout.h"

namespace pasta::memory {

enum class Space : uint8_t { unknown, global, local, constant, image, pipe, generic };

// Whether memory there has addresses that all work-items share: what lines and blocks are of.
inline bool is_mapped(Space space) { return space == Space::global || space == Space::constant; }

struct Root {
  Space space = Space::unknown;
  std::optional<uint32_t> argument;  // index of the kernel argument; null for a variable
  std::string name;                  // of the variable, where the module tells it
  uint64_t bytes = 0;                // of a variable; the host knows those of an argument
  spirv::Id id = 0;  // in the original module: the kernel's parameter, or the variable
};

// Sum of counter * factor. Counter kWorkItems stands for the number of work-items of the launch.
struct CountTerm {
  uint32_t counter;
  uint64_t factor;
  bool operator==(const CountTerm& other) const {
    return counter == other.counter && factor == other.factor;
  }
};
inline constexpr uint32_t kWorkItems = ~0u;
using CountSum = std::vector<CountTerm>;

inline constexpr uint32_t kNone = ~0u;

struct Site {
  AccessKind kind;
  AccessForm form;
  Space space;
  uint64_t bytes;         // per execution; per element for copies of many; 0 for images
  uint32_t root = kNone;  // when it is known before the launch
  CountSum executions;    // by a work-item; for async copies, elements copied
  CountSum units;         // bytes accessed = units * bytes

  // A *dynamic* site is resolved at run time, by comparing its address with those of its
  // candidates.
  uint32_t dynamic = kNone;          // its number among these
  std::vector<uint32_t> candidates;  // roots, in the order in which they are tried
  bool ranges = false;               // it may also reach memory that only the host knows
  uint32_t first_hit =
      kNone;  // counter of accesses to candidates[0], and so on; kNone: no counters
  // Accesses that have no counter of their own are counted in the slot's table.
  bool has_table() const { return dynamic != kNone && (ranges || first_hit == kNone); }

  // Numbers in the plan, where lanes are compared: of the sum of its executions, and among the sites
  // that are compared at each access.
  uint32_t sum = kNone, meeting = kNone;
  bool along_row = false;      // the first work-item of a row marks its lines
  uint32_t block_run = kNone;  // number among the sites whose blocks are counted

  // Where it stands in the program.
  std::string function;
  uint32_t block = 0;        // position of the block in its function
  uint32_t instruction = 0;  // position in the function: the order of the source
  uint16_t opcode = 0;
  std::string file;
  uint32_t line = 0, column = 0;  // 0: unknown
};

// What is reduced while the kernel runs. Executions and objects always are.
struct Reducers {
  bool lines = true;     // 64-byte lines and pages touched
  bool extents = false;  // first and last byte to the byte, not to the line; one more atomic a
                         // sub-group and object
  bool trace = false;    // every access, appended to a bounded buffer

  bool blocks = false;   // accesses to each 2 MiB of an object

  // What compares the work-items of a sub-group: `width` of them with consecutive local linear ids,
  // the first at a multiple of `width`. One sub-group access is the n-th execution of a site by each
  // of them, n = 0, 1, ...: what lanes in lockstep do together wherever they run the same number of
  // iterations. All three need 64-bit atomics.
  bool divergence = false;      // executions of each site by a sub-group
  bool coalescing = false;      // lines moved and needed by each sub-group access
  bool bank_conflicts = false;  // of local memory
  uint32_t width = 32;
  bool compares_lanes() const { return divergence || coalescing || bank_conflicts; }

  // Read before writing when marking lines: slower on a few cores, but on many they would fight
  // over the maps.
  bool many_cores = false;

  // How the device can add: both must be there for it, else a slower way is taken.
  bool int64_atomics = true;
  bool sub_groups = true;

  // The first work-item of a row marks the lines of all, where their addresses are consecutive (rows.h). Few cores run
  // sub-groups that are parts of rows, in the order of local ids; where one is not, the slot says so.
  bool marks_by_row() const { return lines && !extents && !many_cores && sub_groups; }
};

struct KernelPlan {
  std::string name;
  uint32_t argument_count = 0;  // of the program; the hidden buffer and the launch word follow
  Reducers reducers;
  std::vector<Root> roots;
  std::vector<Site> sites;
  uint32_t counters = 0;
  uint32_t dynamic_sites = 0;
  uint32_t block_runs = 0;
  bool rows = false;  // some access goes along a row

  // Counters that sub-groups, not work-items, add to; in the slot behind the `counters`.
  std::vector<CountSum> sums;  // of which the largest of a sub-group's work-items are added up
  uint32_t meetings = 0;        // sites whose lanes are compared at each access
  uint32_t local_meetings = 0;  // the last ones of them: those of local memory
  uint32_t sum_counter(uint32_t sum) const { return counters + 2 * sum; }
  uint32_t sum_lost_counter(uint32_t sum) const { return counters + 2 * sum + 1; }
  enum Meeting : uint32_t {
    kMoved,   // lines; or passes through the banks, beyond those that the words alone need
    kNeeded,  // lines
    kLost,    // accesses that found no room in the scratch
    kMeetingCounters
  };
  uint32_t meeting_counter(uint32_t meeting, Meeting which) const {
    return sum_counter(static_cast<uint32_t>(sums.size())) + meeting * kMeetingCounters + which;
  }
  SlotLayout slot_layout() const {
    return {static_cast<uint32_t>(roots.size()), meeting_counter(meetings, kMoved)};
  }

  uint32_t buffer_argument() const { return argument_count; }      // cl_mem or SVM pointer
  uint32_t launch_argument() const { return argument_count + 1; }  // cl_ulong, see Arena
};

}  // namespace pasta::memory
