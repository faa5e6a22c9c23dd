// The functions that instrumented kernels call: counting, marking lines, finding objects, appending
// to the trace.
//
// Each is written into the module once, when first asked for. They are small and marked for
// inlining; the private *state* of a work-item (an array of 64-bit words, see StateLayout) then
// becomes registers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "device/opencl/layout.h"
#include "device/opencl/plan.h"
#include "device/opencl/rows.h"
#include "device/opencl/spirv/builder.h"

namespace pasta::memory {

// Words of a work-item's private state.
struct StateLayout {
  uint32_t counters;
  uint32_t roots;
  uint32_t dynamic_sites;
  uint32_t meetings;
  uint32_t block_runs;

  enum RootWord : uint32_t {
    pointer,  // the address that the program gave
    base,
    bytes,
    line0,
    limit,
    map,
    shift,
    blocks,
    first,
    last,
    kRootWords
  };
  uint32_t root(uint32_t number, RootWord word) const {
    return counters + number * kRootWords + word;
  }
  // A run of accesses of a dynamic site to one object: which, and how many so far.
  uint32_t run_object(uint32_t site) const { return counters + roots * kRootWords + 2 * site; }
  uint32_t run_length(uint32_t site) const { return run_object(site) + 1; }
  uint32_t binding() const {
    return counters + roots * kRootWords + 2 * dynamic_sites;
  }  // offset from the slot
  uint32_t work_item() const { return binding() + 1; }
  // 0, but the compiler must believe that it differs between work-items. Where a work-item's path
  // decides a value, as with counters, each alternative has to be built on it: the Intel CPU
  // compiler (2026.2) can take a merge of values that are the same for all work-items to be the
  // same for all, too.
  uint32_t zero() const { return binding() + 2; }
  // Offset from the slot of a line that nobody reads, for stores that must not be skipped.
  uint32_t spare() const { return binding() + 3; }
  // Of the scratch: offset from the slot | kBindingScratchShift; 0: there is none.
  uint32_t scratch() const { return binding() + 4; }
  uint32_t sub_group() const { return binding() + 5; }  // number in the work-group
  // How often the work-item has executed the site.
  uint32_t ordinal(uint32_t meeting) const { return binding() + 6 + meeting; }
  // A run of accesses of a site to one block: offset from the slot of its counter (0: none), and
  // how many so far.
  uint32_t block_place(uint32_t run) const { return ordinal(meetings) + 2 * run; }
  uint32_t block_length(uint32_t run) const { return block_place(run) + 1; }
  // Of the row along a dimension: whether the work-item's sub-group is the first, or among the first, of its
  // work-items, and how many these are.
  uint32_t row_leads(uint32_t dimension) const { return block_place(block_runs) + 2 * dimension; }
  uint32_t row_items(uint32_t dimension) const { return row_leads(dimension) + 1; }
  uint32_t words() const { return row_leads(3); }
};

// What a function that finds the object of an address returns when there is none.
inline constexpr uint64_t kNowhere = ~uint64_t{0};

// For accesses that may touch more than three lines.
inline constexpr uint32_t kAnyLines = 0;
inline constexpr uint32_t kMostLines = 3;

class DeviceCode {
 public:
  // `size_bits`: width of size_t. Finished functions are appended to `functions`.
  DeviceCode(spirv::Globals& globals, const KernelPlan& plan, uint32_t size_bits,
             std::vector<spirv::Function>& functions);

  // -- Types and small pieces of code
  const StateLayout& state_layout() const { return state_; }
  const SlotLayout& slot_layout() const { return slot_; }
  spirv::Id ulong() { return globals_.int_type(64); }
  spirv::Id state_type();   // pointer to the state of a work-item
  spirv::Id buffer_type();  // pointer to the hidden buffer, or a slot
  spirv::Id word_pointer(spirv::Emitter& code, spirv::Id state, uint32_t word);
  spirv::Id load_word(spirv::Emitter& code, spirv::Id state, uint32_t word);
  void store_word(spirv::Emitter& code, spirv::Id state, uint32_t word, spirv::Id value);
  // The pointer `offset` bytes behind `buffer`, to 64-bit words or to bytes.
  spirv::Id byte_at(spirv::Emitter& code, spirv::Id buffer, spirv::Id offset);
  spirv::Id long_at(spirv::Emitter& code, spirv::Id buffer, spirv::Id offset);
  // One component of a three-dimensional built-in, as 64 bits; or a scalar one.
  spirv::Id builtin3(spirv::Emitter& code, spirv::BuiltIn builtin, const char* name,
                     uint32_t component);
  spirv::Id builtin1(spirv::Emitter& code, spirv::BuiltIn builtin, const char* name);
  spirv::Id widen(spirv::Emitter& code, spirv::Id size);  // size_t to 64 bits
  // Of the device's own sub-group, where all work-items are together: whether all have this value,
  // and whether the work-item is the first.
  spirv::Id is_same_in_sub_group(spirv::Emitter& code, spirv::Id value);
  spirv::Id is_first_in_sub_group(spirv::Emitter& code);
  spirv::Id lane(spirv::Emitter& code);  // number in the device's own sub-group, 64 bits
  spirv::Id binding_word(spirv::Emitter& code, spirv::Id state, spirv::Id slot, uint32_t word);

  // Where the lines of an object are marked.
  struct Map {
    spirv::Id offset, shift, line0, limit;
  };
  // The object of a root, read from the binding: for what most work-items need not know, while the state is for what
  // they do.
  struct Object {
    spirv::Id base, bytes, blocks;
    Map map;
  };
  Object object_of(spirv::Emitter& code, spirv::Id state, spirv::Id slot, uint32_t root);

  // -- Functions, as they would read in C. `state` and `slot` are the first two parameters of most.
  spirv::Id add();          // void (slot, ulong offset, ulong value): atomically
  spirv::Id raise();        // void (slot, ulong offset, ulong value): atomically to at least value
  spirv::Id flush_add();    // void (slot, ulong offset, ulong value): add() once a sub-group
  spirv::Id flush_raise();  // void (slot, ulong offset, ulong value)
  spirv::Id mark();         // void (state, slot, ulong offset): the byte there becomes 1
  // void (state, slot, ulong address, ulong bytes): the access, in at most `lines` lines, touches a
  // root
  spirv::Id touch(uint32_t root, uint32_t lines);
  spirv::Id mark_row(uint32_t root, uint64_t bytes, uint32_t lines, const RowStep& step);
  // ulong (state, slot, ulong address, ulong bytes): touches the object there and returns its
  // number: a root, or roots + range (if `ranges` are to be searched), or kNowhere
  spirv::Id reach(const std::vector<uint32_t>& candidates, bool ranges, uint32_t lines);
  spirv::Id tally();  // void (state, slot, ulong *object, ulong *length, ulong site, ulong object)
  spirv::Id trace();  // void (state, slot, ulong site, ulong address)

  // -- Accesses to each block of an object (device_blocks.cpp)
  // Offset from the slot of the counter of the block that `address` lies in, 0 if it has none.
  spirv::Id block_of_root(spirv::Emitter& code, spirv::Id state, uint32_t root, spirv::Id address);
  spirv::Id block_of_any(spirv::Emitter& code, spirv::Id state, spirv::Id slot, const Site& site,
                         spirv::Id object, spirv::Id address);
  spirv::Id count_block();  // void (slot, ulong *place, ulong *length, ulong place)
  spirv::Id flush_block();  // void (slot, ulong place, ulong length): once a sub-group, at the end

  // -- Work-items of a sub-group, compared (scratch_keys.h)
  // These are not inlined, which would make the kernel many times larger; and so they take no
  // state, which could then not be in registers, but the word of it that they need.
  spirv::Id take_scratch();  // ulong (slot, ulong first, ulong scratches, ulong bytes, ulong start)
  // Key of the n-th execution of a site; counts it.
  spirv::Id access_key(spirv::Emitter& code, spirv::Id state, uint32_t meeting);
  spirv::Id sum_key(spirv::Emitter& code, spirv::Id state, uint32_t sum);
  static constexpr uint64_t kScratchShiftMask = kUnit - 1;  // in StateLayout::scratch
  // void (slot, ulong scratch, ulong key, ulong address, ulong bytes, ulong lost)
  spirv::Id visit(bool local);
  spirv::Id visit_sum();     // void (slot, ulong scratch, ulong key, ulong value, ulong lost)
  spirv::Id settle_banks();  // void (slot, ulong scratch, ulong local, ulong step)
  spirv::Id settle();        // void (slot, ulong scratch, ulong local, ulong step, ulong row)
  void group_barrier(spirv::Emitter& code);
  void atomic_store(spirv::Emitter& code, spirv::Id slot, spirv::Id offset, spirv::Id value,
                    uint32_t semantics = spirv::kRelaxed);

 private:
  using Parameters = std::vector<spirv::Id>;
  // Starts a function with a first block; finish() with a return adds it to the module.
  spirv::NewFunction begin(const char* name, spirv::Id result, const Parameters& parameters,
                           spirv::Id* id, uint32_t control = spirv::kFunctionInline);
  spirv::Id end(spirv::NewFunction& function, spirv::Id id);
  spirv::Id flush(const char* name, spirv::Op group_operation, spirv::Id by_one);
  Map map_of(spirv::Emitter& code, spirv::Id state, uint32_t root);
  spirv::Id line_of(spirv::Emitter& code, const Map& map, spirv::Id address);
  void mark_bytes(spirv::Emitter& code, spirv::Id state, spirv::Id slot, const Map& map,
                  spirv::Id address, spirv::Id bytes, uint32_t lines);
  void widen_extents(spirv::Emitter& code, spirv::Id state, uint32_t root, spirv::Id address,
                     spirv::Id bytes, spirv::Id condition);
  spirv::Id find_range();
  spirv::Id widen_range();
  spirv::Id meet();
  spirv::Id meet_near();
  spirv::Id is_worth_meeting(spirv::Emitter& code, spirv::Id slot, spirv::Id scratch,
                             spirv::Id lost);
  spirv::Id entry_word(spirv::Emitter& code, spirv::Id scratch, spirv::Id number, ScratchWord word);
  void for_entries(spirv::NewFunction& function, spirv::Id slot, spirv::Id scratch, spirv::Id local,
                   spirv::Id step, const std::function<void(spirv::Id)>& body);
  spirv::Id is_local_meeting(spirv::Emitter& code, spirv::Id meeting);
  spirv::Id local_variable(spirv::NewFunction& function);  // an uninitialised 64-bit one
  spirv::Id atomic(spirv::Emitter& code, spirv::Op operation, spirv::Id slot, spirv::Id offset,
                   const Parameters& values, uint32_t semantics = spirv::kRelaxed);
  spirv::Id object_offset(spirv::Emitter& code, spirv::Id state, spirv::Id object);

  spirv::Globals& globals_;
  const KernelPlan& plan_;
  uint32_t size_bits_;
  std::vector<spirv::Function>& functions_;
  SlotLayout slot_;
  StateLayout state_;
  std::map<std::string, spirv::Id> made_;
  std::map<std::tuple<std::vector<uint32_t>, bool, uint32_t>, spirv::Id> reach_;
  std::map<std::tuple<uint32_t, uint64_t, uint32_t, RowStep>, spirv::Id> mark_row_;
};

}  // namespace pasta::memory
