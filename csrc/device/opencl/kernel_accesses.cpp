// The part of KernelWriter that writes what happens at an access.
#include <algorithm>

#include "device/opencl/kernel_writer.h"
#include "device/opencl/marks.h"

namespace pasta::memory {

using namespace spirv;

namespace {

// The same for an access; kAnyLines: more than can be marked without a loop.
uint32_t lines_of(uint64_t bytes, uint64_t alignment) {
  uint32_t lines = most_lines(bytes, alignment);
  return bytes == 0 || lines > kMostLines ? kAnyLines : lines;
}

}  // namespace

void KernelWriter::access(Emitter& code, const InstanceAccess& found, const Ids& ids) {
  const Access& access = found.access;
  if (access.form == AccessForm::opaque) return;
  auto renamed = [&](Id id) {
    auto copy = ids.find(id);
    return copy == ids.end() ? id : copy->second;
  };
  auto as_ulong = [&](Id id) {
    const Instruction& type = source_.definitions.at(source_.definitions.at(id).type());
    if (type.opcode() != OpTypeInt) throw Malformed("a size that is no integer");
    return type.operand(0) == 64 ? renamed(id)
                                 : code.emit(OpUConvert, device_.ulong(), {renamed(id)});
  };
  auto address = [&] {
    // A generic pointer's integer value may carry tags: look through the cast that made it.
    Id pointer = access.pointer;
    const Instruction& definition = source_.definitions.at(pointer);
    if (definition.opcode() == OpPtrCastToGeneric) pointer = definition.operand(0);
    Id base = code.address(renamed(pointer));
    if (!access.index) return base;
    return code.binary(
        OpIAdd, base,
        code.binary(OpIMul, as_ulong(access.index), globals_.u64(access.index_bytes)));
  };
  switch (access.form) {
    case AccessForm::fixed: {
      const Site& site = plan_.sites[found.site];
      const Mark& mark = found.mark;
      bool traced = plan_.reducers.trace;
      bool marked = mark.wanted && plan_.reducers.lines && site.space != Space::local;
      bool lone = !marked && !traced && site.dynamic == kNone && site.meeting == kNone;
      if (lone && site.block_run == kNone) return;
      Id own = address();
      Id first = own;
      if (mark.distance) {
        first = code.binary(OpIAdd, own, globals_.u64(static_cast<uint64_t>(mark.distance)));
      }
      uint64_t bytes = mark.bytes ? mark.bytes : access.bytes;
      uint64_t alignment = mark.bytes ? mark.alignment : access.alignment;
      Id object = 0;
      if (marked && found.row) {
        mark_row(code, found, first, bytes, lines_of(bytes, alignment), ids);
      } else if (marked || site.dynamic != kNone) {
        object = touch(code, state_, slot_, found.site, first, globals_.u64(bytes),
                       lines_of(bytes, alignment));
      }
      count_block(code, state_, slot_, found.site, object, own);
      if (traced) trace(code, state_, slot_, found.site, own);
      visit(code, state_, slot_, found.site, own);
      break;
    }
    case AccessForm::sized: {
      Id bytes = as_ulong(access.count);
      Id own = address();
      count(code, state_, found.amount, bytes);
      Id object = touch(code, state_, slot_, found.site, own, bytes, kAnyLines);
      count_block(code, state_, slot_, found.site, object, own);
      if (plan_.reducers.trace) trace(code, state_, slot_, found.site, own);
      break;
    }
    case AccessForm::elements: {
      Id item = device_.builtin1(code, BuiltInLocalInvocationIndex,
                                 "__spirv_BuiltInLocalInvocationIndex");
      Id is_first = code.compare(OpIEqual, item, globals_.u64(0));
      Id elements = code.select(is_first, as_ulong(access.count), globals_.u64(0));
      count(code, state_, found.amount, elements);
      Id step = globals_.u64(access.bytes);
      if (access.stride) step = code.binary(OpIMul, as_ulong(access.stride), step);
      code.emit(OpFunctionCall, globals_.void_type(),
                {element_loop(found.site), state_, slot_, address(), elements, step});
      break;
    }
    case AccessForm::opaque: break;
  }
}

Id KernelWriter::touch(Emitter& code, Id state, Id slot, uint32_t number, Id address, Id bytes,
                       uint32_t lines) {
  const Site& site = plan_.sites[number];
  const StateLayout& layout = device_.state_layout();
  if (site.dynamic != kNone) {
    Id object = code.emit(
        OpFunctionCall, device_.ulong(),
        {device_.reach(site.candidates, site.ranges, lines), state, slot, address, bytes});
    for (uint32_t i = 0; site.first_hit != kNone && i < site.candidates.size(); ++i) {
      Id hit = code.compare(OpIEqual, object, globals_.u64(site.candidates[i]));
      count(code, state, site.first_hit + i, code.select(hit, globals_.u64(1), globals_.u64(0)));
    }
    if (site.first_hit == kNone) {
      tally(code, state, slot, site.dynamic, object);
    } else if (site.ranges) {
      // What has a counter of its own goes nowhere in the table.
      Id is_range = code.compare(OpUGreaterThanEqual, object, globals_.u64(layout.roots));
      tally(code, state, slot, site.dynamic, code.select(is_range, object, globals_.u64(kNowhere)));
    }
    return object;
  }
  if (site.root != kNone && plan_.reducers.lines && is_mapped(site.space)) {
    code.emit(OpFunctionCall, globals_.void_type(),
              {device_.touch(site.root, lines), state, slot, address, bytes});
  }
  return 0;
}

void KernelWriter::mark_row(Emitter& code, const InstanceAccess& found, Id address, uint64_t bytes,
                            uint32_t lines, const Ids& ids) {
  const RowStep& step = *found.row;
  Id narrow = globals_.u64(0);
  if (step.narrow) {
    auto copy = ids.find(step.narrow);
    narrow = code.emit(step.is_signed ? OpSConvert : OpUConvert, device_.ulong(),
                       {copy == ids.end() ? step.narrow : copy->second});
  }
  code.emit(OpFunctionCall, globals_.void_type(),
            {device_.mark_row(plan_.sites[found.site].root, bytes, lines, step), state_, slot_,
             address, narrow});
}

void KernelWriter::count_block(Emitter& code, Id state, Id slot, uint32_t number, Id object,
                               Id address) {
  const Site& site = plan_.sites[number];
  if (site.block_run == kNone) return;
  Id place = object ? device_.block_of_any(code, state, slot, site, object, address)
                    : device_.block_of_root(code, state, site.root, address);
  const StateLayout& layout = device_.state_layout();
  code.emit(OpFunctionCall, globals_.void_type(),
            {device_.count_block(), slot,
             device_.word_pointer(code, state, layout.block_place(site.block_run)),
             device_.word_pointer(code, state, layout.block_length(site.block_run)), place});
}

// Local memory has no address that means anything outside: offsets then, where the variable is
// known.
Id KernelWriter::outside_address(Emitter& code, Id state, const Site& site, Id address) {
  if (site.space != Space::local || site.root == kNone) return address;
  uint32_t base = device_.state_layout().root(site.root, StateLayout::base);
  return code.binary(OpISub, address, device_.load_word(code, state, base));
}

void KernelWriter::trace(Emitter& code, Id state, Id slot, uint32_t number, Id address) {
  address = outside_address(code, state, plan_.sites[number], address);
  code.emit(OpFunctionCall, globals_.void_type(),
            {device_.trace(), state, slot, globals_.u64(number), address});
}

void KernelWriter::visit(Emitter& code, Id state, Id slot, uint32_t number, Id address) {
  const Site& site = plan_.sites[number];
  if (site.meeting == kNone) return;
  uint32_t counter = plan_.meeting_counter(site.meeting, KernelPlan::kLost);
  Id lost = globals_.u64(uint64_t{device_.slot_layout().counter(0, counter)} * kWord);
  code.emit(OpFunctionCall, globals_.void_type(),
            {device_.visit(site.space == Space::local), slot,
             device_.load_word(code, state, device_.state_layout().scratch()),
             device_.access_key(code, state, site.meeting),
             outside_address(code, state, site, address), globals_.u64(site.bytes), lost});
}

void KernelWriter::tally(Emitter& code, Id state, Id slot, uint32_t dynamic, Id object) {
  const StateLayout& layout = device_.state_layout();
  Id run_object = device_.word_pointer(code, state, layout.run_object(dynamic));
  Id run_length = device_.word_pointer(code, state, layout.run_length(dynamic));
  code.emit(OpFunctionCall, globals_.void_type(),
            {device_.tally(), state, slot, run_object, run_length, globals_.u64(dynamic), object});
}

Id KernelWriter::element_loop(uint32_t site) {
  Id id = globals_.new_id();
  NewFunction function(globals_, id, globals_.void_type(),
                       {device_.state_type(), device_.buffer_type(), device_.ulong(),
                        device_.ulong(), device_.ulong()},
                       kFunctionInline);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1],
     address = function.parameters[2];
  Id elements = function.parameters[3], step = function.parameters[4];
  Id entry = code.new_label(), head = code.new_label(), body = code.new_label(),
     done = code.new_label();
  Id index = globals_.new_id(), next = globals_.new_id(), zero = globals_.u64(0);
  code.begin_block(entry);
  code.branch(head);
  code.begin_block(head);
  code.blocks().back().instructions.push_back(
      Instruction::make(OpPhi, device_.ulong(), index, {zero, entry, next, body}));
  code.branch_if(code.compare(OpULessThan, index, elements), body, done);
  code.begin_block(body);
  Id at = code.binary(OpIAdd, address, code.binary(OpIMul, index, step));
  uint64_t bytes = plan_.sites[site].bytes;
  Id object = touch(code, state, slot, site, at, globals_.u64(bytes), lines_of(bytes, bytes));
  count_block(code, state, slot, site, object, at);
  if (plan_.reducers.trace) trace(code, state, slot, site, at);
  visit(code, state, slot, site, at);
  code.blocks().back().instructions.push_back(
      Instruction::make(OpIAdd, device_.ulong(), next, {index, globals_.u64(1)}));
  code.branch(head);
  code.begin_block(done);
  code.effect(OpReturn, {});
  functions_.push_back(function.finish());
  return id;
}

}  // namespace pasta::memory
