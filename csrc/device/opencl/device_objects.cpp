// Device functions that find out which object an address belongs to, and the trace.
#include "device/opencl/device_code.h"

namespace pasta::memory {

using namespace spirv;

Id DeviceCode::binding_word(Emitter& code, Id state, Id slot, uint32_t word) {
  Id offset = code.binary(OpIAdd, load_word(code, state, state_.binding()),
                          globals_.u64(uint64_t{word} * kWord));
  return code.load(ulong(), long_at(code, slot, offset), kWord);
}

// Offset from the slot of the binding's entry for object number `object` (roots, then ranges).
Id DeviceCode::object_offset(Emitter& code, Id state, Id object) {
  Id entry = code.binary(OpIMul, object, globals_.u64(kBindingObjectWords * kWord));
  Id first = code.binary(OpIAdd, load_word(code, state, state_.binding()),
                         globals_.u64(kBindingObjects * kWord));
  return code.binary(OpIAdd, first, entry);
}

// ulong (state, slot, ulong address): number of the range that holds it, kNowhere if none does.
// Binary search for the last range that begins at or before the address.
Id DeviceCode::find_range() {
  Id& id = made_["find_range"];
  if (id) return id;
  NewFunction function = begin("find_range", ulong(), {state_type(), buffer_type(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1],
     address = function.parameters[2];
  Id roots = globals_.u64(state_.roots), zero = globals_.u64(0), one = globals_.u64(1);
  Id varying = load_word(code, state, state_.zero());
  Id ranges = code.binary(OpBitwiseOr, binding_word(code, state, slot, kBindingRanges), varying);
  Id before = code.blocks().back().label;
  Id head = code.new_label(), body = code.new_label(), found = code.new_label();
  Id check = code.new_label(), none = code.new_label();
  Id low = globals_.new_id(), high = globals_.new_id(), next_low = globals_.new_id(),
     next_high = globals_.new_id();
  code.branch(head);

  code.begin_block(
      head);  // ranges [0, low) begin at or before the address, [high, ranges) behind it
  auto& phis = code.blocks().back().instructions;
  phis.push_back(Instruction::make(OpPhi, ulong(), low, {varying, before, next_low, body}));
  phis.push_back(Instruction::make(OpPhi, ulong(), high, {ranges, before, next_high, body}));
  code.branch_if(code.compare(OpULessThan, low, high), body, found);

  code.begin_block(body);
  Id middle = code.binary(OpShiftRightLogical, code.binary(OpIAdd, low, high), one);
  Id middle_at = object_offset(code, state, code.binary(OpIAdd, roots, middle));
  Id starts = code.load(ulong(), long_at(code, slot, middle_at), kWord);
  Id at_or_before = code.compare(OpULessThanEqual, starts, address);
  auto& steps = code.blocks().back().instructions;
  Id after_middle = code.binary(OpIAdd, middle, one);
  steps.push_back(
      Instruction::make(OpSelect, ulong(), next_low, {at_or_before, after_middle, low}));
  steps.push_back(Instruction::make(OpSelect, ulong(), next_high, {at_or_before, high, middle}));
  code.branch(head);

  code.begin_block(found);
  code.branch_if(code.compare(OpIEqual, low, zero), none, check);
  code.begin_block(check);
  Id range = code.binary(OpISub, low, one);
  Id range_at = object_offset(code, state, code.binary(OpIAdd, roots, range));
  Id begin_address = code.load(ulong(), long_at(code, slot, range_at), kWord);
  Id size_at = code.binary(OpIAdd, range_at, globals_.u64(kWord));
  Id size = code.load(ulong(), long_at(code, slot, size_at), kWord);
  Id inside = code.compare(OpULessThan, code.binary(OpISub, address, begin_address), size);
  code.effect(OpReturnValue, {code.select(inside, range, globals_.u64(kNowhere))});
  code.begin_block(none);
  code.effect(OpReturnValue, {code.emit(OpNot, ulong(), {varying})});
  return end(function, id);
}

Id DeviceCode::touch_range() {
  Id& id = made_["touch_range"];
  if (id) return id;
  mark();
  raise();
  NewFunction function = begin("touch_range", globals_.void_type(),
                               {state_type(), buffer_type(), ulong(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1], range = function.parameters[2];
  Id address = function.parameters[3], bytes = function.parameters[4];
  Id entry = object_offset(code, state, code.binary(OpIAdd, range, globals_.u64(state_.roots)));
  auto field = [&](uint32_t number) {
    Id offset = code.binary(OpIAdd, entry, globals_.u64(uint64_t{number} * kWord));
    return code.load(ulong(), long_at(code, slot, offset), kWord);
  };
  Id base = field(0), size = field(1), map = field(2), shift = field(3);
  if (plan_.reducers.extents) {
    Id offset = code.binary(OpISub, address, base);
    Id extents = binding_word(code, state, slot, kBindingExtents);
    Id first_at = code.binary(OpIAdd, extents, code.binary(OpIMul, range, globals_.u64(2 * kWord)));
    Id last_at = code.binary(OpIAdd, first_at, globals_.u64(kWord));
    code.emit(OpFunctionCall, globals_.void_type(),
              {raise(), slot, first_at, code.emit(OpNot, ulong(), {offset})});
    code.emit(OpFunctionCall, globals_.void_type(),
              {raise(), slot, last_at, code.binary(OpIAdd, offset, bytes)});
  }
  Id line0 = code.binary(OpShiftRightLogical, base, shift);
  Id end_of_range = code.binary(OpISub, code.binary(OpIAdd, base, size), globals_.u64(1));
  Id limit = code.binary(OpISub, code.binary(OpShiftRightLogical, end_of_range, shift), line0);
  limit = code.binary(OpIAdd, limit, globals_.u64(1));
  auto line_of = [&](Id at) {
    return code.unsigned_min(
        code.binary(OpISub, code.binary(OpShiftRightLogical, at, shift), line0), limit);
  };
  Id last = code.binary(OpISub, code.binary(OpIAdd, address, bytes), globals_.u64(1));
  mark_lines(code, slot, map, line_of(address), line_of(last));
  code.effect(OpReturn, {});
  return end(function, id);
}

Id DeviceCode::reach(const std::vector<uint32_t>& candidates) {
  Id& id = reach_[candidates];
  if (id) return id;
  bool lines = plan_.reducers.lines;
  find_range();
  if (lines) {
    touch_range();
    for (uint32_t root : candidates) {
      if (plan_.roots[root].space != Space::local) touch_span(root);
    }
  }
  NewFunction function =
      begin("reach", ulong(), {state_type(), buffer_type(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1];
  Id address = function.parameters[2], bytes = function.parameters[3];
  Id zero = load_word(code, state, state_.zero());
  auto varying = [&](uint64_t value) {
    return code.binary(OpBitwiseOr, zero, globals_.u64(value));
  };
  for (uint32_t root : candidates) {
    Id base = load_word(code, state, state_.root(root, StateLayout::base));
    Id size = load_word(code, state, state_.root(root, StateLayout::bytes));
    Id hit = code.new_label(), miss = code.new_label();
    code.branch_if(code.compare(OpULessThan, code.binary(OpISub, address, base), size), hit, miss);
    code.begin_block(hit);
    if (lines && plan_.roots[root].space != Space::local) {
      code.emit(OpFunctionCall, globals_.void_type(),
                {touch_span(root), state, slot, address, bytes});
    }
    code.effect(OpReturnValue, {varying(root)});
    code.begin_block(miss);
  }
  Id range = code.emit(OpFunctionCall, ulong(), {find_range(), state, slot, address});
  Id hit = code.new_label(), miss = code.new_label();
  code.branch_if(code.compare(OpINotEqual, range, globals_.u64(kNowhere)), hit, miss);
  code.begin_block(hit);
  if (lines) {
    code.emit(OpFunctionCall, globals_.void_type(),
              {touch_range(), state, slot, range, address, bytes});
  }
  code.effect(OpReturnValue, {code.binary(OpIAdd, range, globals_.u64(state_.roots))});
  code.begin_block(miss);
  code.effect(OpReturnValue, {varying(kNowhere)});
  return end(function, id);
}

// Run-length counting: consecutive accesses of a work-item to one object cost one atomic.
Id DeviceCode::tally() {
  Id& id = made_["tally"];
  if (id) return id;
  add();
  Id word = globals_.pointer_type(StorageFunction, ulong());
  NewFunction function = begin("tally", globals_.void_type(),
                               {state_type(), buffer_type(), word, word, ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1];
  Id object_at = function.parameters[2], length_at = function.parameters[3];
  Id site = function.parameters[4], object = function.parameters[5];
  Id before = code.load(ulong(), object_at, kWord), length = code.load(ulong(), length_at, kWord);
  // Nowhere is not tabled: it is what the others leave of the executions.
  Id is_object = code.compare(OpINotEqual, object, globals_.u64(kNowhere));
  Id one = code.select(is_object, globals_.u64(1), globals_.u64(0));
  Id change = code.new_label(), flush = code.new_label(), restart = code.new_label();
  Id same = code.new_label(), done = code.new_label();
  code.branch_if(code.compare(OpIEqual, before, object), same, change);
  code.begin_block(same);
  code.store(length_at, code.binary(OpIAdd, length, one), kWord);
  code.branch(done);
  code.begin_block(change);
  code.branch_if(code.compare(OpIEqual, length, globals_.u64(0)), restart, flush);
  code.begin_block(flush);
  Id row = code.binary(OpIMul, site, binding_word(code, state, slot, kBindingStride));
  Id entry = code.binary(OpIMul, code.binary(OpIAdd, row, before), globals_.u64(kWord));
  Id offset = code.binary(OpIAdd, binding_word(code, state, slot, kBindingTable), entry);
  code.emit(OpFunctionCall, globals_.void_type(), {add(), slot, offset, length});
  code.branch(restart);
  code.begin_block(restart);
  code.store(object_at, object, kWord);
  code.store(length_at, one, kWord);
  code.branch(done);
  code.begin_block(done);
  code.effect(OpReturn, {});
  return end(function, id);
}

Id DeviceCode::trace() {
  Id& id = made_["trace"];
  if (id) return id;
  NewFunction function =
      begin("trace", globals_.void_type(), {state_type(), buffer_type(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1];
  Id site = function.parameters[2], address = function.parameters[3];
  Id yes = code.new_label(), done = code.new_label();
  Id uint = globals_.int_type(32);
  Id device = globals_.u32(ScopeDevice), relaxed = globals_.u32(0);
  Id cursor_offset = globals_.u64(kSlotTraceWanted * kWord);
  Id cursor;
  if (plan_.reducers.int64_atomics) {
    globals_.capability(CapabilityInt64Atomics);
    cursor = code.emit(OpAtomicIAdd, ulong(),
                       {long_at(code, slot, cursor_offset), device, relaxed, globals_.u64(1)});
  } else {
    Id half = globals_.pointer_type(StorageCrossWorkgroup, uint);
    Id at = code.emit(OpBitcast, half, {byte_at(code, slot, cursor_offset)});
    // Stops counting before it would wrap around and overwrite the first records.
    Id low = code.new_label();
    code.branch_if(code.compare(OpULessThan, code.load(uint, at, 4), globals_.u32(1u << 31)), low,
                   done);
    code.begin_block(low);
    cursor = code.emit(OpUConvert, ulong(),
                       {code.emit(OpAtomicIAdd, uint, {at, device, relaxed, globals_.u32(1)})});
  }
  Id room = binding_word(code, state, slot, kBindingTraceRecords);
  code.branch_if(code.compare(OpULessThan, cursor, room), yes, done);
  code.begin_block(yes);
  Id place = code.binary(OpIAdd, binding_word(code, state, slot, kBindingTrace),
                         code.binary(OpIMul, cursor, globals_.u64(kTraceRecordBytes)));
  code.store(long_at(code, slot, place), address, kWord);
  Id who = code.binary(OpShiftLeftLogical, load_word(code, state, state_.work_item()),
                       globals_.u64(kTraceSiteBits));
  code.store(long_at(code, slot, code.binary(OpIAdd, place, globals_.u64(kWord))),
             code.binary(OpBitwiseOr, who, site), kWord);
  code.branch(done);
  code.begin_block(done);
  code.effect(OpReturn, {});
  return end(function, id);
}

}  // namespace pasta::memory
