// Writes one instrumented kernel: its wrapper and the instances of its call tree.
#pragma once

#include <map>
#include <vector>

#include "device/opencl/calltree.h"
#include "device/opencl/device_code.h"
#include "device/opencl/spirv/builder.h"

namespace pasta::memory {

class KernelWriter {
 public:
  KernelWriter(const Source& source, const CallTree& tree, spirv::Globals& globals);

  // The functions to add to the module. The first takes the place of the kernel: it has its id, and
  // its parameters have theirs, so that entry point, execution modes and decorations stay as they
  // are.
  std::vector<spirv::Function> write();

 private:
  using Ids = std::map<spirv::Id, spirv::Id>;

  spirv::Function wrapper(const spirv::Function& kernel, spirv::Id body);
  void set_up(spirv::Emitter& code, spirv::Id state, spirv::Id slot, spirv::Id binding_offset);
  spirv::Id group_number(spirv::Emitter& code);
  spirv::Id shard(spirv::Emitter& code);
  spirv::Id shard_row(spirv::Emitter& code);
  // What the work-items of a work-group tell each other in local memory, 64-bit words.
  spirv::Id group_word(spirv::Emitter& code, uint32_t word);
  static constexpr uint32_t kGroupScratch = 0;
  static uint32_t group_total(uint32_t sum) { return 1 + 2 * sum; }  // of the first work-item
  static uint32_t group_differs(uint32_t sum) { return 2 + 2 * sum; }  // 1: another has another
  void take_scratch(spirv::Emitter& code, spirv::Id state, spirv::Id slot, spirv::Id slot_offset);
  void settle(spirv::Emitter& code, spirv::Id state, spirv::Id slot, spirv::Id slot_offset);
  void find_row(spirv::Emitter& code, spirv::Id state, spirv::Id slot);
  void publish_facts(spirv::Emitter& code, spirv::Id state, spirv::Id slot);
  void tear_down(spirv::Emitter& code, spirv::Id state, spirv::Id slot);

  spirv::Function instance(const Instance& instance, spirv::Id id);
  std::vector<spirv::Instruction> block(const Instance& instance, uint32_t number, const Ids& ids);
  void copy_decorations(const Ids& ids);
  void count(spirv::Emitter& code, spirv::Id state, uint32_t counter, spirv::Id amount);

  void access(spirv::Emitter& code, const InstanceAccess& found, const Ids& ids);
  // Finds the object of a dynamic site and counts for it; marks lines. Straight-line code, as is
  // trace(). Returns the object of a dynamic site, else 0.
  spirv::Id touch(spirv::Emitter& code, spirv::Id state, spirv::Id slot, uint32_t site,
                  spirv::Id address, spirv::Id bytes, uint32_t lines);
  void mark_row(spirv::Emitter& code, const InstanceAccess& found, spirv::Id address, uint64_t bytes,
                uint32_t lines, const Ids& ids);
  void count_block(spirv::Emitter& code, spirv::Id state, spirv::Id slot, uint32_t site,
                   spirv::Id object, spirv::Id address);
  spirv::Id outside_address(spirv::Emitter& code, spirv::Id state, const Site& site,
                            spirv::Id address);
  void trace(spirv::Emitter& code, spirv::Id state, spirv::Id slot, uint32_t site,
             spirv::Id address);
  // The work-item's part in a sub-group access, where these are counted.
  void visit(spirv::Emitter& code, spirv::Id state, spirv::Id slot, uint32_t site,
             spirv::Id address);
  void tally(spirv::Emitter& code, spirv::Id state, spirv::Id slot, uint32_t dynamic,
             spirv::Id object);
  // void (state, slot, ulong address, ulong count, ulong stride): touch() for each element
  spirv::Id element_loop(uint32_t site);
  bool is_addressed(const Root& root) const;
  spirv::Id root_pointer(const Root& root) const { return root.id; }

  const Source& source_;
  const CallTree& tree_;
  const KernelPlan& plan_;
  spirv::Globals& globals_;
  std::vector<spirv::Function> functions_;
  DeviceCode device_;
  std::vector<spirv::Id> instance_ids_;
  spirv::Id group_words_ = 0;
  bool inline_all_ = true;
  spirv::Id state_ = 0, slot_ = 0;  // parameters of the instance that is being written
};

}  // namespace pasta::memory
