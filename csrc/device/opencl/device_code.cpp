#include "device/opencl/device_code.h"

namespace pasta::memory {

using namespace spirv;

DeviceCode::DeviceCode(Globals& globals, const KernelPlan& plan, uint32_t size_bits,
                       std::vector<Function>& functions)
    : globals_(globals),
      plan_(plan),
      size_bits_(size_bits),
      functions_(functions),
      slot_(plan.slot_layout()),
      state_{plan.counters, static_cast<uint32_t>(plan.roots.size()), plan.dynamic_sites,
             plan.meetings, plan.block_runs} {}

Id DeviceCode::state_type() {
  return globals_.pointer_type(StorageFunction, globals_.array_type(ulong(), state_.words()));
}

Id DeviceCode::buffer_type() {
  return globals_.pointer_type(StorageCrossWorkgroup, globals_.int_type(8));
}

Id DeviceCode::word_pointer(Emitter& code, Id state, uint32_t word) {
  Id type = globals_.pointer_type(StorageFunction, ulong());
  return code.emit(OpInBoundsAccessChain, type, {state, globals_.u64(word)});
}

Id DeviceCode::load_word(Emitter& code, Id state, uint32_t word) {
  return code.load(ulong(), word_pointer(code, state, word), kWord);
}

void DeviceCode::store_word(Emitter& code, Id state, uint32_t word, Id value) {
  code.store(word_pointer(code, state, word), value, kWord);
}

Id DeviceCode::byte_at(Emitter& code, Id buffer, Id offset) {
  return code.emit(OpInBoundsPtrAccessChain, buffer_type(), {buffer, offset});
}

Id DeviceCode::long_at(Emitter& code, Id buffer, Id offset) {
  Id type = globals_.pointer_type(StorageCrossWorkgroup, ulong());
  return code.emit(OpBitcast, type, {byte_at(code, buffer, offset)});
}

Id DeviceCode::builtin3(Emitter& code, BuiltIn builtin, const char* name, uint32_t component) {
  Id size = globals_.int_type(size_bits_);
  Id vector = globals_.vector_type(size, 3);
  Id value = code.load(vector, globals_.builtin(builtin, name, vector), size_bits_ / 2);
  return widen(code, code.emit(OpCompositeExtract, size, {value, component}));
}

Id DeviceCode::builtin1(Emitter& code, BuiltIn builtin, const char* name) {
  Id size = globals_.int_type(size_bits_);
  return widen(code, code.load(size, globals_.builtin(builtin, name, size), size_bits_ / 8));
}

Id DeviceCode::widen(Emitter& code, Id size) {
  return size_bits_ == 64 ? size : code.emit(OpUConvert, ulong(), {size});
}

Id DeviceCode::is_same_in_sub_group(Emitter& code, Id value) {
  globals_.capability(CapabilityGroups);
  Id scope = globals_.u32(ScopeSubgroup);
  Id first = code.emit(OpGroupBroadcast, ulong(), {scope, value, globals_.u32(0)});
  return code.emit(OpGroupAll, globals_.bool_type(),
                   {scope, code.compare(OpIEqual, value, first)});
}

Id DeviceCode::lane(Emitter& code) {
  Id uint = globals_.int_type(32);
  Id variable = globals_.builtin(BuiltInSubgroupLocalInvocationId,
                                 "__spirv_BuiltInSubgroupLocalInvocationId", uint);
  return code.emit(OpUConvert, ulong(), {code.load(uint, variable, 4)});
}

Id DeviceCode::is_first_in_sub_group(Emitter& code) {
  return code.compare(OpIEqual, lane(code), globals_.u64(0));
}

NewFunction DeviceCode::begin(const char* name, Id result, const Parameters& parameters, Id* id,
                              uint32_t control) {
  *id = globals_.new_id();
  globals_.name_function(*id, std::string("pasta_") + name);
  NewFunction function(globals_, *id, result, parameters, control);
  function.code.begin_block(function.code.new_label());
  return function;
}

Id DeviceCode::end(NewFunction& function, Id id) {
  functions_.push_back(function.finish());
  return id;
}

Id DeviceCode::add() {
  Id& id = made_["add"];
  if (id) return id;
  NewFunction function = begin("add", globals_.void_type(), {buffer_type(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id slot = function.parameters[0], offset = function.parameters[1], value = function.parameters[2];
  Id device = globals_.u32(ScopeDevice), relaxed = globals_.u32(0);
  if (plan_.reducers.int64_atomics) {
    globals_.capability(CapabilityInt64Atomics);
    code.emit(OpAtomicIAdd, ulong(), {long_at(code, slot, offset), device, relaxed, value});
  } else {
    // Low half, then high half with the carry: each carry is seen by exactly one addition, so the
    // sum is exact.
    Id uint = globals_.int_type(32);
    Id half = globals_.pointer_type(StorageCrossWorkgroup, uint);
    Id low_at = code.emit(OpBitcast, half, {byte_at(code, slot, offset)});
    Id high_at = code.emit(OpBitcast, half,
                           {byte_at(code, slot, code.binary(OpIAdd, offset, globals_.u64(4)))});
    Id low = code.emit(OpUConvert, uint, {value});
    Id high =
        code.emit(OpUConvert, uint, {code.binary(OpShiftRightLogical, value, globals_.u64(32))});
    Id before = code.emit(OpAtomicIAdd, uint, {low_at, device, relaxed, low});
    Id after = code.emit(OpIAdd, uint, {before, low});
    Id carry = code.emit(OpSelect, uint,
                         {code.compare(OpULessThan, after, low), globals_.u32(1), globals_.u32(0)});
    Id above = code.emit(OpIAdd, uint, {high, carry});
    Id yes = code.new_label(), done = code.new_label();
    code.branch_if(code.compare(OpINotEqual, above, globals_.u32(0)), yes, done);
    code.begin_block(yes);
    code.emit(OpAtomicIAdd, uint, {high_at, device, relaxed, above});
    code.branch(done);
    code.begin_block(done);
  }
  code.effect(OpReturn, {});
  return end(function, id);
}

Id DeviceCode::raise() {
  Id& id = made_["raise"];
  if (id) return id;
  NewFunction function =
      begin("raise", globals_.void_type(), {buffer_type(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id slot = function.parameters[0], offset = function.parameters[1], value = function.parameters[2];
  Id type = ulong();
  Id place;
  if (plan_.reducers.int64_atomics) {
    globals_.capability(CapabilityInt64Atomics);
    place = long_at(code, slot, offset);
  } else {
    // 32 bits: the host knows that objects of 4 GiB and more have no extents then.
    type = globals_.int_type(32);
    place = code.emit(OpBitcast, globals_.pointer_type(StorageCrossWorkgroup, type),
                      {byte_at(code, slot, offset)});
    value = code.emit(OpUConvert, type, {value});
  }
  Id now = code.load(type, place, plan_.reducers.int64_atomics ? 8 : 4);
  Id yes = code.new_label(), done = code.new_label();
  code.branch_if(code.compare(OpULessThan, now, value), yes, done);
  code.begin_block(yes);
  code.emit(OpAtomicUMax, type, {place, globals_.u32(ScopeDevice), globals_.u32(0), value});
  code.branch(done);
  code.begin_block(done);
  code.effect(OpReturn, {});
  return end(function, id);
}

// All work-items of the sub-group call it together, at the end of the kernel.
Id DeviceCode::flush(const char* name, Op group_operation, Id by_one) {
  Id& id = made_[name];
  if (id) return id;
  NewFunction function = begin(name, globals_.void_type(), {buffer_type(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id slot = function.parameters[0], offset = function.parameters[1], value = function.parameters[2];
  Id wanted;
  if (plan_.reducers.sub_groups) {
    globals_.capability(CapabilityGroups);
    value = code.emit(group_operation, ulong(),
                      {globals_.u32(ScopeSubgroup), kGroupOperationReduce, value});
    Id is_something = code.compare(OpINotEqual, value, globals_.u64(0));
    wanted = code.emit(OpLogicalAnd, globals_.bool_type(),
                       {is_first_in_sub_group(code), is_something});
  } else {
    wanted = code.compare(OpINotEqual, value, globals_.u64(0));
  }
  Id yes = code.new_label(), done = code.new_label();
  code.branch_if(wanted, yes, done);
  code.begin_block(yes);
  code.emit(OpFunctionCall, globals_.void_type(), {by_one, slot, offset, value});
  code.branch(done);
  code.begin_block(done);
  code.effect(OpReturn, {});
  return end(function, id);
}

Id DeviceCode::flush_add() { return flush("flush_add", OpGroupIAdd, add()); }
Id DeviceCode::flush_raise() { return flush("flush_raise", OpGroupUMax, raise()); }

// A byte, not a bit, so that no atomic is needed; and no branch, so that the program's control flow
// stays as it was and vector units run this without masks. With many cores, a byte that is set is
// not written again, so that lines of the map can stay in all caches: the store goes to the
// work-group's own spare line instead. The test reads a 32-bit word because vector units gather
// words, not bytes.
Id DeviceCode::mark() {
  Id& id = made_["mark"];
  if (id) return id;
  NewFunction function =
      begin("mark", globals_.void_type(), {state_type(), buffer_type(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1], place = function.parameters[2];
  Id uint = globals_.int_type(32), uchar = globals_.int_type(8);
  if (plan_.reducers.many_cores) {
    Id word_offset = code.binary(OpBitwiseAnd, place, globals_.u64(~uint64_t{3}));
    Id word_type = globals_.pointer_type(StorageCrossWorkgroup, uint);
    Id word =
        code.load(uint, code.emit(OpBitcast, word_type, {byte_at(code, slot, word_offset)}), 4);
    Id byte_in_word =
        code.emit(OpBitwiseAnd, uint, {code.emit(OpUConvert, uint, {place}), globals_.u32(3)});
    Id bit = code.emit(OpShiftLeftLogical, uint, {byte_in_word, globals_.u32(3)});
    Id byte = code.emit(OpShiftRightLogical, uint, {word, bit});
    Id is_clear = code.compare(OpIEqual, code.emit(OpBitwiseAnd, uint, {byte, globals_.u32(1)}),
                               globals_.u32(0));
    place = code.select(is_clear, place, load_word(code, state, state_.spare()));
  }
  code.store(byte_at(code, slot, place), code.emit(OpUConvert, uchar, {globals_.u32(1)}), 1);
  code.effect(OpReturn, {});
  return end(function, id);
}

DeviceCode::Object DeviceCode::object_of(Emitter& code, Id state, Id slot, uint32_t root) {
  auto field = [&](ObjectWord number) {
    return binding_word(code, state, slot,
                        kBindingObjects + root * kBindingObjectWords + number);
  };
  Id one = globals_.u64(1), zero = globals_.u64(0);
  Id pointer = load_word(code, state, state_.root(root, StateLayout::pointer));
  Object object;
  object.base = code.binary(OpISub, pointer, field(kObjectStart));
  object.bytes = field(kObjectBytes);
  object.blocks = field(kObjectBlocks);
  Id shift = field(kObjectShift);
  Id line0 = code.binary(OpShiftRightLogical, object.base, shift);
  Id end = code.binary(OpISub, code.binary(OpIAdd, object.base, object.bytes), one);
  Id lines = code.binary(
      OpIAdd, code.binary(OpISub, code.binary(OpShiftRightLogical, end, shift), line0), one);
  Id limit = code.select(code.compare(OpIEqual, object.bytes, zero), zero, lines);
  object.map = {field(kObjectMap), shift, line0, limit};
  return object;
}

DeviceCode::Map DeviceCode::map_of(Emitter& code, Id state, uint32_t root) {
  auto word = [&](StateLayout::RootWord w) { return load_word(code, state, state_.root(root, w)); };
  return {word(StateLayout::map), word(StateLayout::shift), word(StateLayout::line0),
          word(StateLayout::limit)};
}

// The line of an address in its object's map; where it is in none, the map's last.
Id DeviceCode::line_of(Emitter& code, const Map& map, Id address) {
  Id line = code.binary(OpISub, code.binary(OpShiftRightLogical, address, map.shift), map.line0);
  return code.unsigned_min(line, map.limit);
}

void DeviceCode::mark_bytes(Emitter& code, Id state, Id slot, const Map& map, Id address, Id bytes,
                            uint32_t lines) {
  auto mark_line = [&](Id line) {
    code.emit(OpFunctionCall, globals_.void_type(),
              {mark(), state, slot, code.binary(OpIAdd, map.offset, line)});
  };
  Id first = line_of(code, map, address);
  if (lines == 1) return mark_line(first);
  Id one = globals_.u64(1);
  Id last = line_of(code, map, code.binary(OpISub, code.binary(OpIAdd, address, bytes), one));
  if (lines != kAnyLines) {
    mark_line(first);
    if (lines == 3) mark_line(code.unsigned_min(code.binary(OpIAdd, first, one), last));
    return mark_line(last);
  }
  Id before = code.blocks().back().label;
  Id head = code.new_label(), body = code.new_label(), done = code.new_label();
  Id line = globals_.new_id(), next = globals_.new_id();
  Id something = code.compare(OpINotEqual, bytes, globals_.u64(0));
  code.branch(head);
  code.begin_block(head);
  auto& phi = code.blocks().back().instructions;
  phi.push_back(Instruction::make(OpPhi, ulong(), line, {first, before, next, body}));
  Id more = code.compare(OpULessThanEqual, line, last);
  code.branch_if(code.emit(OpLogicalAnd, globals_.bool_type(), {something, more}), body, done);
  code.begin_block(body);
  mark_line(line);
  code.blocks().back().instructions.push_back(
      Instruction::make(OpIAdd, ulong(), next, {line, one}));
  code.branch(head);
  code.begin_block(done);
}

// Widens the extents of a root by this access, if `condition` (0: always) holds and there is a byte
// in it.
void DeviceCode::widen_extents(Emitter& code, Id state, uint32_t root, Id address, Id bytes,
                               Id condition) {
  auto word = [&](StateLayout::RootWord w) { return load_word(code, state, state_.root(root, w)); };
  Id offset = code.binary(OpISub, address, word(StateLayout::base));
  Id some = code.compare(OpINotEqual, bytes, globals_.u64(0));
  if (condition) some = code.emit(OpLogicalAnd, globals_.bool_type(), {some, condition});
  auto raise_word = [&](StateLayout::RootWord w, Id value) {
    Id now = word(w);
    store_word(code, state, state_.root(root, w),
               code.unsigned_max(now, code.select(some, value, now)));
  };
  raise_word(StateLayout::first, code.emit(OpNot, ulong(), {offset}));
  raise_word(StateLayout::last, code.binary(OpIAdd, offset, bytes));
}

Id DeviceCode::touch(uint32_t root, uint32_t lines) {
  std::string name = "touch_" + std::to_string(root) + "_" + std::to_string(lines);
  Id& id = made_[name];
  if (id) return id;
  mark();
  NewFunction function = begin(name.c_str(), globals_.void_type(),
                               {state_type(), buffer_type(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1];
  Id address = function.parameters[2], bytes = function.parameters[3];
  if (plan_.reducers.extents) widen_extents(code, state, root, address, bytes, 0);
  mark_bytes(code, state, slot, map_of(code, state, root), address, bytes, lines);
  code.effect(OpReturn, {});
  return end(function, id);
}

}  // namespace pasta::memory
