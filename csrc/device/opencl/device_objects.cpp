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

// ulong (state, slot, ulong address): number of the range that holds it, kNowhere if none does. A
// binary search whose steps are the same for all work-items, so that no branch depends on the
// address:
//
//   found = 0;  // ranges [0, found) begin at or before the address
//   for (step = kBindingFirstStep; step; step /= 2)
//     if (found + step <= ranges && begin[found + step - 1] <= address) found += step;
Id DeviceCode::find_range() {
  Id& id = made_["find_range"];
  if (id) return id;
  NewFunction function = begin("find_range", ulong(), {state_type(), buffer_type(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1],
     address = function.parameters[2];
  Id zero = globals_.u64(0), one = globals_.u64(1);
  Id varying = load_word(code, state, state_.zero());
  Id ranges = binding_word(code, state, slot, kBindingRanges);
  auto field = [&](Id range, ObjectWord number) {
    Id entry = object_offset(code, state, code.binary(OpIAdd, range, globals_.u64(state_.roots)));
    Id offset = code.binary(OpIAdd, entry, globals_.u64(uint64_t{number} * kWord));
    return code.load(ulong(), long_at(code, slot, offset), kWord);
  };
  Id before = code.blocks().back().label;
  Id head = code.new_label(), body = code.new_label(), done = code.new_label();
  Id step = globals_.new_id(), next_step = globals_.new_id();
  Id found = globals_.new_id(), next_found = globals_.new_id();
  Id first_step = binding_word(code, state, slot, kBindingFirstStep);
  code.branch(head);
  code.begin_block(head);
  auto& phis = code.blocks().back().instructions;
  phis.push_back(Instruction::make(OpPhi, ulong(), step, {first_step, before, next_step, body}));
  phis.push_back(Instruction::make(OpPhi, ulong(), found, {varying, before, next_found, body}));
  code.branch_if(code.compare(OpINotEqual, step, zero), body, done);
  code.begin_block(body);
  Id further = code.binary(OpIAdd, found, step);
  Id exists = code.compare(OpULessThanEqual, further, ranges);
  Id last = code.select(exists, code.binary(OpISub, further, one), zero);
  Id at_or_before = code.compare(OpULessThanEqual, field(last, kObjectStart), address);
  Id take = code.emit(OpLogicalAnd, globals_.bool_type(), {exists, at_or_before});
  auto& steps = code.blocks().back().instructions;
  steps.push_back(Instruction::make(OpSelect, ulong(), next_found, {take, further, found}));
  steps.push_back(Instruction::make(OpShiftRightLogical, ulong(), next_step, {step, one}));
  code.branch(head);
  code.begin_block(done);
  Id any = code.compare(OpINotEqual, found, zero);
  Id range = code.select(any, code.binary(OpISub, found, one), zero);
  Id offset = code.binary(OpISub, address, field(range, kObjectStart));
  Id in_range = code.compare(OpULessThan, offset, field(range, kObjectBytes));
  Id inside = code.emit(OpLogicalAnd, globals_.bool_type(), {any, in_range});
  code.effect(OpReturnValue, {code.select(inside, range, globals_.u64(kNowhere))});
  return end(function, id);
}

// void (state, slot, ulong range, ulong address, ulong bytes): widens the extents of a range.
Id DeviceCode::widen_range() {
  Id& id = made_["widen_range"];
  if (id) return id;
  raise();
  NewFunction function = begin("widen_range", globals_.void_type(),
                               {state_type(), buffer_type(), ulong(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1], range = function.parameters[2];
  Id address = function.parameters[3], bytes = function.parameters[4];
  Id yes = code.new_label(), done = code.new_label();
  Id some = code.compare(OpINotEqual, bytes, globals_.u64(0));
  Id is_range = code.compare(OpINotEqual, range, globals_.u64(kNowhere));
  code.branch_if(code.emit(OpLogicalAnd, globals_.bool_type(), {some, is_range}), yes, done);
  code.begin_block(yes);
  Id entry = object_offset(code, state, code.binary(OpIAdd, range, globals_.u64(state_.roots)));
  Id offset = code.binary(OpISub, address, code.load(ulong(), long_at(code, slot, entry), kWord));
  Id extents = binding_word(code, state, slot, kBindingExtents);
  Id first_at = code.binary(OpIAdd, extents, code.binary(OpIMul, range, globals_.u64(2 * kWord)));
  Id last_at = code.binary(OpIAdd, first_at, globals_.u64(kWord));
  code.emit(OpFunctionCall, globals_.void_type(),
            {raise(), slot, first_at, code.emit(OpNot, ulong(), {offset})});
  code.emit(OpFunctionCall, globals_.void_type(),
            {raise(), slot, last_at, code.binary(OpIAdd, offset, bytes)});
  code.branch(done);
  code.begin_block(done);
  code.effect(OpReturn, {});
  return end(function, id);
}

// All alternatives are computed and the right one selected: again no branch that depends on the
// address.
Id DeviceCode::reach(const std::vector<uint32_t>& candidates, bool ranges, uint32_t lines) {
  Id& id = reach_[{candidates, ranges, lines}];
  if (id) return id;
  bool marks = plan_.reducers.lines, extents = marks && plan_.reducers.extents;
  mark();
  if (ranges) find_range();
  if (ranges && extents) widen_range();
  NewFunction function =
      begin("reach", ulong(), {state_type(), buffer_type(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1];
  Id address = function.parameters[2], bytes = function.parameters[3];
  Id zero = load_word(code, state, state_.zero());
  auto varying = [&](uint64_t value) {
    return code.binary(OpBitwiseOr, zero, globals_.u64(value));
  };

  Id object = varying(kNowhere);
  Map map{load_word(code, state, state_.spare()), zero, zero,
          zero};  // its line 0 is the spare line
  auto choose = [&](Id condition, Id number, const Map& other) {
    object = code.select(condition, number, object);
    if (!marks) return;
    map.offset = code.select(condition, other.offset, map.offset);
    map.shift = code.select(condition, other.shift, map.shift);
    map.line0 = code.select(condition, other.line0, map.line0);
    map.limit = code.select(condition, other.limit, map.limit);
  };
  Id range = 0;
  if (ranges) {
    range = code.emit(OpFunctionCall, ulong(), {find_range(), state, slot, address});
    Id is_range = code.compare(OpINotEqual, range, globals_.u64(kNowhere));
    Id number = code.binary(OpIAdd, code.select(is_range, range, zero), globals_.u64(state_.roots));
    Id entry = object_offset(code, state, number);
    auto field = [&](ObjectWord word) {
      Id offset = code.binary(OpIAdd, entry, globals_.u64(uint64_t{word} * kWord));
      return code.load(ulong(), long_at(code, slot, offset), kWord);
    };
    Id begin_address = field(kObjectStart), shift = field(kObjectShift), one = globals_.u64(1);
    Id line0 = code.binary(OpShiftRightLogical, begin_address, shift);
    Id last = code.binary(OpISub, code.binary(OpIAdd, begin_address, field(kObjectBytes)), one);
    Id granules = code.binary(OpISub, code.binary(OpShiftRightLogical, last, shift), line0);
    choose(is_range, number, {field(kObjectMap), shift, line0, code.binary(OpIAdd, granules, one)});
  }
  // From the last candidate to the first, so that the first one that fits wins.
  for (size_t i = candidates.size(); i-- > 0;) {
    uint32_t root = candidates[i];
    Id base = load_word(code, state, state_.root(root, StateLayout::base));
    Id size = load_word(code, state, state_.root(root, StateLayout::bytes));
    Id hit = code.compare(OpULessThan, code.binary(OpISub, address, base), size);
    bool mapped = plan_.roots[root].space != Space::local;
    choose(hit, varying(root),
           mapped ? map_of(code, state, root)
                  : Map{load_word(code, state, state_.spare()), zero, zero, zero});
  }
  for (uint32_t root : candidates) {
    if (!extents || plan_.roots[root].space == Space::local) continue;
    widen_extents(code, state, root, address, bytes,
                  code.compare(OpIEqual, object, globals_.u64(root)));
  }
  if (ranges && extents) {
    Id is_range = code.compare(OpUGreaterThanEqual, object, globals_.u64(state_.roots));
    Id reached = code.select(is_range, range, globals_.u64(kNowhere));
    code.emit(OpFunctionCall, globals_.void_type(),
              {widen_range(), state, slot, reached, address, bytes});
  }
  if (marks) mark_bytes(code, state, slot, map, address, bytes, lines);
  code.effect(OpReturnValue, {object});
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
