// Device functions that count the accesses to each block of an object.
//
// A work-item counts a run of accesses to one block in registers; a branch is taken only where the
// next access is to another block.
#include "device/opencl/device_code.h"

namespace pasta::memory {

using namespace spirv;

namespace {

// Offset of the counter of the block that lies `offset` bytes behind the start of the object.
Id place_of(Emitter& code, Id blocks, Id offset, Id bytes) {
  Globals& globals = code.globals;
  Id block = code.binary(OpShiftRightLogical, offset, globals.u64(kBlockShift));
  Id place = code.binary(OpIAdd, blocks, code.binary(OpIMul, block, globals.u64(kWord)));
  Id exists = code.compare(OpINotEqual, blocks, globals.u64(0));
  Id inside = code.compare(OpULessThan, offset, bytes);
  return code.select(code.emit(OpLogicalAnd, globals.bool_type(), {exists, inside}), place,
                     globals.u64(0));
}

}  // namespace

Id DeviceCode::block_of_root(Emitter& code, Id state, uint32_t root, Id address) {
  auto word = [&](StateLayout::RootWord w) { return load_word(code, state, state_.root(root, w)); };
  return place_of(code, word(StateLayout::blocks),
                  code.binary(OpISub, address, word(StateLayout::base)), word(StateLayout::bytes));
}

Id DeviceCode::block_of_any(Emitter& code, Id state, Id slot, const Site& site, Id object,
                            Id address) {
  Id zero = load_word(code, state, state_.zero());
  Id place = zero;
  if (site.ranges) {
    Id is_range = code.compare(OpUGreaterThanEqual, object, globals_.u64(state_.roots));
    Id is_object = code.compare(OpINotEqual, object, globals_.u64(kNowhere));
    is_range = code.emit(OpLogicalAnd, globals_.bool_type(), {is_range, is_object});
    Id entry = object_offset(code, state, code.select(is_range, object, zero));
    auto field = [&](ObjectWord word) {
      Id offset = code.binary(OpIAdd, entry, globals_.u64(uint64_t{word} * kWord));
      return code.load(ulong(), long_at(code, slot, offset), kWord);
    };
    Id offset = code.binary(OpISub, address, field(kObjectStart));
    place = code.select(is_range, place_of(code, field(kObjectBlocks), offset, field(kObjectBytes)),
                        place);
  }
  for (uint32_t root : site.candidates) {
    if (plan_.roots[root].space == Space::local) continue;
    Id is_root = code.compare(OpIEqual, object, globals_.u64(root));
    place = code.select(is_root, block_of_root(code, state, root, address), place);
  }
  return place;
}

Id DeviceCode::count_block() {
  Id& id = made_["count_block"];
  if (id) return id;
  add();
  Id word = globals_.pointer_type(StorageFunction, ulong());
  NewFunction function =
      begin("count_block", globals_.void_type(), {buffer_type(), word, word, ulong()}, &id);
  Emitter& code = function.code;
  Id slot = function.parameters[0], place_at = function.parameters[1];
  Id length_at = function.parameters[2], place = function.parameters[3];
  Id before = code.load(ulong(), place_at, kWord), length = code.load(ulong(), length_at, kWord);
  Id zero = globals_.u64(0), one = globals_.u64(1);
  Id is_other = code.compare(OpINotEqual, before, place);
  Id is_place = code.compare(OpINotEqual, before, zero);
  code.when(code.emit(OpLogicalAnd, globals_.bool_type(), {is_other, is_place}), [&] {
    code.emit(OpFunctionCall, globals_.void_type(), {add(), slot, before, length});
  });
  code.store(place_at, place, kWord);
  code.store(length_at, code.binary(OpIAdd, code.select(is_other, zero, length), one), kWord);
  code.effect(OpReturn, {});
  return end(function, id);
}

// Where all work-items of the device's sub-group end in the same block, one of them adds for all.
Id DeviceCode::flush_block() {
  Id& id = made_["flush_block"];
  if (id) return id;
  add();
  if (plan_.reducers.sub_groups) flush_add();
  NewFunction function =
      begin("flush_block", globals_.void_type(), {buffer_type(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id slot = function.parameters[0], place = function.parameters[1], length = function.parameters[2];
  Id is_place = code.compare(OpINotEqual, place, globals_.u64(0));
  length = code.select(is_place, length, globals_.u64(0));
  if (plan_.reducers.sub_groups) {
    Id is_same = is_same_in_sub_group(code, place);
    Id together = code.select(is_same, length, globals_.u64(0));
    code.emit(OpFunctionCall, globals_.void_type(), {flush_add(), slot, place, together});
    length = code.select(is_same, globals_.u64(0), length);
  }
  code.when(code.compare(OpINotEqual, length, globals_.u64(0)), [&] {
    code.emit(OpFunctionCall, globals_.void_type(), {add(), slot, place, length});
  });
  code.effect(OpReturn, {});
  return end(function, id);
}

}  // namespace pasta::memory
