#include "device/opencl/kernel_writer.h"

namespace pasta::memory {

using namespace spirv;

namespace {

// Kernels that would grow beyond this by inlining all calls are left to the driver's judgement.
constexpr uint64_t kMaxInlinedInstructions = 20000;

// log2 of the work-groups of a stretch.
constexpr uint64_t kStretchShift = 5;

// Instructions of each instance with its calls expanded.
uint64_t inlined_size(const CallTree& tree) {
  std::vector<uint64_t> size(tree.instances.size());
  for (size_t i = tree.instances.size(); i-- > 0;) {
    const Instance& instance = tree.instances[i];
    for (const Block& block : instance.function->blocks) size[i] += block.instructions.size();
    for (const auto& [at, callee] : instance.calls) {
      size[i] = std::min(size[i] + size[callee], 2 * kMaxInlinedInstructions);
    }
  }
  return size.front();
}

}  // namespace

KernelWriter::KernelWriter(const Source& source, const CallTree& tree, Globals& globals)
    : source_(source),
      tree_(tree),
      plan_(tree.plan),
      globals_(globals),
      device_(globals, tree.plan, source.types.address_bytes() * 8, functions_) {}

std::vector<Function> KernelWriter::write() {
  inline_all_ = inlined_size(tree_) <= kMaxInlinedInstructions;
  for (size_t i = 0; i < tree_.instances.size(); ++i) instance_ids_.push_back(globals_.new_id());
  std::vector<Function> bodies;
  for (size_t i = 0; i < tree_.instances.size(); ++i)
    bodies.push_back(instance(tree_.instances[i], instance_ids_[i]));
  std::vector<Function> all;
  all.push_back(wrapper(*tree_.instances.front().function, instance_ids_.front()));
  for (Function& body : bodies) all.push_back(std::move(body));
  for (Function& helper : functions_) all.push_back(std::move(helper));
  return all;
}

bool KernelWriter::is_addressed(const Root& root) const {
  return is_mapped(root.space) || root.space == Space::local;
}

// -- The kernel itself
// -----------------------------------------------------------------------------

Function KernelWriter::wrapper(const Function& kernel, Id body) {
  Function wrapper;
  std::vector<Id> types;
  std::vector<Id> arguments;
  for (const Instruction* parameter : kernel.parameters()) {
    types.push_back(parameter->type());
    arguments.push_back(parameter->result());
  }
  Id buffer = globals_.new_id(), launch = globals_.new_id();
  types.push_back(device_.buffer_type());
  types.push_back(device_.ulong());
  Id type = globals_.function_type(globals_.void_type(), types);
  wrapper.head.push_back(
      Instruction::make(OpFunction, globals_.void_type(), kernel.id(), {0, type}));
  for (const Instruction* parameter : kernel.parameters()) wrapper.head.push_back(*parameter);
  wrapper.head.push_back(Instruction::make(OpFunctionParameter, device_.buffer_type(), buffer, {}));
  wrapper.head.push_back(Instruction::make(OpFunctionParameter, device_.ulong(), launch, {}));
  globals_.name(buffer, "pasta_buffer");
  globals_.name(launch, "pasta_launch");

  Emitter code(globals_);
  code.begin_block(code.new_label());
  Id state = code.emit(OpVariable, device_.state_type(), {StorageFunction});
  Id unit = globals_.u64(kUnit);
  Id slot_offset =
      code.binary(OpIMul, code.binary(OpBitwiseAnd, launch, globals_.u64(0xffffffff)), unit);
  Id binding_at =
      code.binary(OpIMul, code.binary(OpShiftRightLogical, launch, globals_.u64(32)), unit);
  Id slot = device_.byte_at(code, buffer, slot_offset);
  set_up(code, state, slot, code.binary(OpISub, binding_at, slot_offset));
  if (plan_.rows) find_row(code, state, slot);
  if (plan_.meetings) take_scratch(code, state, slot, slot_offset);
  if (plan_.rows) {
    // A question that is the same for a sub-group first.
    Id leads = device_.load_word(code, state, device_.state_layout().row_leads(0));
    code.when(code.compare(OpINotEqual, leads, globals_.u64(0)),
              [&] { publish_facts(code, state, slot); });
  } else {
    publish_facts(code, state, slot);
  }
  std::vector<uint32_t> call{body};
  call.insert(call.end(), arguments.begin(), arguments.end());
  call.push_back(state);
  call.push_back(slot);
  code.emit(OpFunctionCall, globals_.void_type(), call);
  tear_down(code, state, slot);
  if (!plan_.sums.empty()) settle(code, state, slot, slot_offset);
  code.effect(OpReturn, {});
  wrapper.blocks = std::move(code.blocks());
  wrapper.tail.push_back(Instruction::make(OpFunctionEnd, {}));
  return wrapper;
}

void KernelWriter::set_up(Emitter& code, Id state, Id slot, Id binding_offset) {
  const StateLayout& layout = device_.state_layout();
  Id zero = globals_.u64(0);
  device_.store_word(code, state, layout.binding(), binding_offset);
  Id zero_at = code.binary(OpIAdd, binding_offset, globals_.u64(kBindingZero * kWord));
  Id unknown = code.load(device_.ulong(), device_.long_at(code, slot, zero_at), kWord);
  Id item = device_.builtin1(code, BuiltInGlobalLinearId, "__spirv_BuiltInGlobalLinearId");
  Id varying_zero = code.binary(OpBitwiseAnd, unknown, item);
  device_.store_word(code, state, layout.zero(), varying_zero);
  Id spare_at = code.binary(OpIAdd, binding_offset, globals_.u64(kBindingSpare * kWord));
  Id spare = code.load(device_.ulong(), device_.long_at(code, slot, spare_at), kWord);
  Id line = code.binary(OpBitwiseAnd, group_number(code), globals_.u64(kSpareLines - 1));
  spare = code.binary(OpIAdd, spare, code.binary(OpIMul, line, globals_.u64(kUnit)));
  device_.store_word(code, state, layout.spare(), code.binary(OpIAdd, binding_offset, spare));
  for (uint32_t c = 0; c < layout.counters; ++c) device_.store_word(code, state, c, varying_zero);
  for (uint32_t k = 0; k < plan_.roots.size(); ++k) {
    const Root& root = plan_.roots[k];
    if (!is_addressed(root)) continue;
    auto set = [&](StateLayout::RootWord word, Id value) {
      device_.store_word(code, state, layout.root(k, word), value);
    };
    set(StateLayout::pointer, code.address(root_pointer(root)));
    const DeviceCode::Object object = device_.object_of(code, state, slot, k);
    set(StateLayout::base, object.base);
    set(StateLayout::bytes, object.bytes);
    set(StateLayout::map, object.map.offset);
    set(StateLayout::shift, object.map.shift);
    set(StateLayout::line0, object.map.line0);
    set(StateLayout::limit, object.map.limit);
    if (plan_.reducers.blocks) {
      Id blocks = object.blocks;
      constexpr uint32_t shift = kBlockShift + 3;  // see block_row_bytes
      Id units = code.binary(OpIAdd, object.bytes, globals_.u64((uint64_t{1} << shift) - 1));
      units = code.binary(OpShiftRightLogical, units, globals_.u64(shift));
      Id row = code.binary(OpIMul, code.binary(OpIMul, units, globals_.u64(kUnit)), shard(code));
      Id exists = code.compare(OpINotEqual, blocks, zero);
      set(StateLayout::blocks, code.select(exists, code.binary(OpIAdd, blocks, row), zero));
    }
    if (!plan_.reducers.extents) continue;
    set(StateLayout::first, varying_zero);
    set(StateLayout::last, varying_zero);
  }
  for (uint32_t d = 0; d < layout.dynamic_sites; ++d) {
    device_.store_word(code, state, layout.run_object(d),
                       code.emit(OpNot, device_.ulong(), {varying_zero}));
    device_.store_word(code, state, layout.run_length(d), varying_zero);
  }
  for (uint32_t r = 0; r < layout.block_runs; ++r) {
    device_.store_word(code, state, layout.block_place(r), varying_zero);
    device_.store_word(code, state, layout.block_length(r), varying_zero);
  }
  if (plan_.reducers.trace) {
    auto group = [&](uint32_t c) {
      return device_.builtin3(code, BuiltInWorkgroupId, "__spirv_BuiltInWorkgroupId", c);
    };
    auto groups = [&](uint32_t c) {
      return device_.builtin3(code, BuiltInNumWorkgroups, "__spirv_BuiltInNumWorkgroups", c);
    };
    auto size = [&](uint32_t c) {
      return device_.builtin3(code, BuiltInEnqueuedWorkgroupSize,
                              "__spirv_BuiltInEnqueuedWorkgroupSize", c);
    };
    Id row = code.binary(OpIAdd, code.binary(OpIMul, group(2), groups(1)), group(1));
    Id linear = code.binary(OpIAdd, code.binary(OpIMul, row, groups(0)), group(0));
    Id volume = code.binary(OpIMul, code.binary(OpIMul, size(0), size(1)), size(2));
    Id local =
        device_.builtin1(code, BuiltInLocalInvocationIndex, "__spirv_BuiltInLocalInvocationIndex");
    device_.store_word(code, state, layout.work_item(),
                       code.binary(OpIAdd, code.binary(OpIMul, linear, volume), local));
  }
}

// Spreads work-groups that run at the same time. Many cores take neighbouring ones; a few take each
// a stretch of them, in which all then use what is in the core's cache.
Id KernelWriter::group_number(Emitter& code) {
  auto group = [&](uint32_t c) {
    return device_.builtin3(code, BuiltInWorkgroupId, "__spirv_BuiltInWorkgroupId", c);
  };
  if (plan_.reducers.many_cores)
    return code.binary(OpIAdd, code.binary(OpIAdd, group(0), group(1)), group(2));
  auto groups = [&](uint32_t c) {
    return device_.builtin3(code, BuiltInNumWorkgroups, "__spirv_BuiltInNumWorkgroups", c);
  };
  Id row = code.binary(OpIAdd, code.binary(OpIMul, group(2), groups(1)), group(1));
  Id linear = code.binary(OpIAdd, code.binary(OpIMul, row, groups(0)), group(0));
  return code.binary(OpShiftRightLogical, linear, globals_.u64(kStretchShift));
}

Id KernelWriter::shard(Emitter& code) {
  return code.binary(OpBitwiseAnd, group_number(code), globals_.u64(kShards - 1));
}

// Offset of the counters that the work-group adds to, from those of shard 0.
Id KernelWriter::shard_row(Emitter& code) {
  uint64_t row_bytes = uint64_t{device_.slot_layout().row_words()} * kWord;
  return code.binary(OpIMul, shard(code), globals_.u64(row_bytes));
}

// Whether the sub-group is the first of its rows. One whose work-items are not consecutive in a row tells the host.
void KernelWriter::find_row(Emitter& code, Id state, Id slot) {
  const StateLayout& layout = device_.state_layout();
  globals_.capability(CapabilityGroups);
  Id item = device_.builtin3(code, BuiltInLocalInvocationId, "__spirv_BuiltInLocalInvocationId", 0);
  Id first = code.emit(OpGroupBroadcast, device_.ulong(),
                       {globals_.u32(ScopeSubgroup), item, globals_.u32(0)});
  for (uint32_t d = 0; d < 3; ++d) {
    Id id = d == 0 ? first
                   : device_.builtin3(code, BuiltInLocalInvocationId,
                                      "__spirv_BuiltInLocalInvocationId", d);
    Id is_first = code.compare(OpIEqual, id, globals_.u64(0));
    device_.store_word(code, state, layout.row_leads(d),
                       code.select(is_first, globals_.u64(1), globals_.u64(0)));
    device_.store_word(
        code, state, layout.row_items(d),
        device_.builtin3(code, BuiltInWorkgroupSize, "__spirv_BuiltInWorkgroupSize", d));
  }
  Id expected = code.binary(OpIAdd, first, device_.lane(code));
  code.when(code.compare(OpINotEqual, item, expected), [&] {
    code.store(device_.long_at(code, slot, globals_.u64(kSlotScattered * kWord)), globals_.u64(1), kWord);
  });
}

// The first work-item tells the host what only the device knows.
void KernelWriter::publish_facts(Emitter& code, Id state, Id slot) {
  Id item = device_.builtin1(code, BuiltInGlobalLinearId, "__spirv_BuiltInGlobalLinearId");
  Id first = code.new_label(), rest = code.new_label();
  code.branch_if(code.compare(OpIEqual, item, globals_.u64(0)), first, rest);
  code.begin_block(first);
  auto put = [&](uint32_t word, Id value) {
    code.store(device_.long_at(code, slot, globals_.u64(uint64_t{word} * kWord)), value, kWord);
  };
  for (uint32_t c = 0; c < 3; ++c) {
    put(kSlotLocalSize + c, device_.builtin3(code, BuiltInEnqueuedWorkgroupSize,
                                             "__spirv_BuiltInEnqueuedWorkgroupSize", c));
  }
  for (uint32_t k = 0; k < plan_.roots.size(); ++k) {
    if (!is_addressed(plan_.roots[k])) continue;
    put(device_.slot_layout().base(k), device_.object_of(code, state, slot, k).base);
  }
  code.branch(rest);
  code.begin_block(rest);
}

void KernelWriter::tear_down(Emitter& code, Id state, Id slot) {
  const StateLayout& layout = device_.state_layout();
  const SlotLayout& slot_layout = device_.slot_layout();
  Id row = shard_row(code);
  if (layout.counters) {
    for (uint32_t c = 0; c < layout.counters; ++c) {
      Id offset =
          code.binary(OpIAdd, row, globals_.u64(uint64_t{slot_layout.counter(0, c)} * kWord));
      code.emit(OpFunctionCall, globals_.void_type(),
                {device_.flush_add(), slot, offset, device_.load_word(code, state, c)});
    }
  }
  for (uint32_t k = 0; plan_.reducers.extents && k < plan_.roots.size(); ++k) {
    if (!is_mapped(plan_.roots[k].space)) continue;
    for (bool last : {false, true}) {
      uint32_t word = last ? slot_layout.last(k) : slot_layout.first(k);
      uint32_t from = layout.root(k, last ? StateLayout::last : StateLayout::first);
      code.emit(OpFunctionCall, globals_.void_type(),
                {device_.flush_raise(), slot, globals_.u64(uint64_t{word} * kWord),
                 device_.load_word(code, state, from)});
    }
  }
  for (uint32_t r = 0; r < layout.block_runs; ++r) {
    code.emit(OpFunctionCall, globals_.void_type(),
              {device_.flush_block(), slot, device_.load_word(code, state, layout.block_place(r)),
               device_.load_word(code, state, layout.block_length(r))});
  }
  for (const Site& site : plan_.sites) {
    // An object that no access can have ends the run.
    if (site.has_table()) tally(code, state, slot, site.dynamic, globals_.u64(kNowhere - 1));
  }
}

// -- Functions of the program
// ----------------------------------------------------------------------

Function KernelWriter::instance(const Instance& instance, Id id) {
  const Function& original = *instance.function;
  Ids ids;
  std::vector<Id> types;
  for (const Instruction* parameter : original.parameters()) {
    ids[parameter->result()] = globals_.new_id();
    types.push_back(parameter->type());
  }
  types.push_back(device_.state_type());
  types.push_back(device_.buffer_type());
  state_ = globals_.new_id();
  slot_ = globals_.new_id();
  for (const Block& block : original.blocks) {
    for (const Instruction& instruction : block.instructions) {
      if (Id result = instruction.result()) ids[result] = globals_.new_id();
    }
  }

  Function copy;
  uint32_t control = original.control();
  if (inline_all_ && !(control & kFunctionDontInline)) control |= kFunctionInline;
  Id type = globals_.function_type(original.return_type(), types);
  copy.head.push_back(Instruction::make(OpFunction, original.return_type(), id, {control, type}));
  for (const Instruction* parameter : original.parameters()) {
    copy.head.push_back(
        Instruction::make(OpFunctionParameter, parameter->type(), ids[parameter->result()], {}));
  }
  copy.head.push_back(Instruction::make(OpFunctionParameter, device_.state_type(), state_, {}));
  copy.head.push_back(Instruction::make(OpFunctionParameter, device_.buffer_type(), slot_, {}));
  for (uint32_t b = 0; b < original.blocks.size(); ++b) {
    copy.blocks.push_back({ids[original.blocks[b].label], block(instance, b, ids)});
  }
  copy.tail.push_back(Instruction::make(OpFunctionEnd, {}));
  copy_decorations(ids);
  auto name = source_.names.find(original.id());
  globals_.name_function(id, name == source_.names.end() ? "body" : name->second);
  return copy;
}

std::vector<Instruction> KernelWriter::block(const Instance& instance, uint32_t number,
                                             const Ids& ids) {
  const auto& instructions = instance.function->blocks[number].instructions;
  uint32_t in_class = instance.classes[number];
  uint32_t counter = instance.class_counters[in_class];
  for (uint32_t earlier = 0; earlier < number && counter != kNone; ++earlier) {
    if (instance.classes[earlier] == in_class) counter = kNone;  // counted there
  }
  Emitter code(globals_);
  bool counted = counter == kNone;
  size_t body_begins = 0;  // behind the label, and the phis and variables that must come first
  for (size_t i = 0; i < instructions.size(); ++i) {
    uint16_t op = instructions[i].opcode();
    if (op == OpLabel || op == OpPhi || op == OpVariable) body_begins = i + 1;
  }
  auto next_access = instance.accesses.begin();
  while (next_access != instance.accesses.end() && next_access->block < number) ++next_access;

  for (uint32_t i = 0; i < instructions.size(); ++i) {
    Instruction copy = instructions[i];
    uint16_t op = copy.opcode();
    if (copy.is_debug_line()) continue;
    if (!counted && i >= body_begins) {
      count(code, state_, counter, globals_.u64(1));
      counted = true;
    }
    for (; next_access != instance.accesses.end() && next_access->block == number &&
           next_access->instruction == i;
         ++next_access) {
      access(code, *next_access, ids);
    }
    uint32_t literal_words = op == OpSwitch ? switch_literal_words(source_.definitions, copy) : 0;
    auto call = instance.calls.find({number, i});
    copy.for_each_id(literal_words, [&](uint32_t& id) {
      auto renamed = ids.find(id);
      if (renamed != ids.end()) id = renamed->second;
    });
    if (call != instance.calls.end()) {
      copy.set_operand(0, instance_ids_[call->second]);
      copy.append(state_);
      copy.append(slot_);
    }
    code.instructions().push_back(std::move(copy));
  }
  return std::move(code.instructions());
}

void KernelWriter::copy_decorations(const Ids& ids) {
  auto& annotations = globals_.module().section(Section::annotations);
  std::vector<Instruction> copies;
  for (Instruction& decoration : annotations) {
    uint16_t op = decoration.opcode();
    if (op == OpGroupDecorate) {
      size_t targets = decoration.operand_count();
      for (size_t o = 1; o < targets; ++o) {
        auto target = ids.find(decoration.operand(o));
        if (target != ids.end()) decoration.append(target->second);
      }
      continue;
    }
    if (op != OpDecorate && op != OpDecorateId && op != OpDecorateString) continue;
    auto target = ids.find(decoration.operand(0));
    if (target == ids.end() || decoration.operand(1) == DecorationLinkageAttributes) continue;
    copies.push_back(decoration);
    copies.back().set_operand(0, target->second);
  }
  annotations.insert(annotations.end(), copies.begin(), copies.end());
}

void KernelWriter::count(Emitter& code, Id state, uint32_t counter, Id amount) {
  Id place = device_.word_pointer(code, state, counter);
  code.store(place, code.binary(OpIAdd, code.load(device_.ulong(), place, kWord), amount), kWord);
}

}  // namespace pasta::memory
