// The device function that marks the lines of a row of work-items.
#include "device/opencl/device_code.h"

namespace pasta::memory {

using namespace spirv;

// void (state, slot, ulong address, ulong narrow): marks `bytes` at the address of each work-item of the row, which all
// call it together. `narrow` is the value that RowStep::narrow names, extended. The first work-item of the row does it.
// Along dimension 0, a row is several sub-groups, or less than one: all is computed from what the first work-item has,
// so that it is the same for the sub-group and vector units compute it once. Along the others, each work-item of a
// sub-group is in a row of its own.
//
//   if (!leads) return;
//   if (no number wraps around, and the first line is in the object)
//     for (line = first; line <= last; ++line) mark(line);
//   else
//     for (j = 0; j < items; ++j) mark lines of address[j];
Id DeviceCode::mark_row(uint32_t root, uint64_t bytes, uint32_t lines, const RowStep& step) {
  RowStep kind = step;
  kind.narrow = step.narrow != 0;  // which value it is, the call says
  Id& id = mark_row_[{root, bytes, lines, kind}];
  if (id) return id;
  mark();
  NewFunction function = begin("mark_row", globals_.void_type(),
                               {state_type(), buffer_type(), ulong(), ulong()}, &id);
  Emitter& code = function.code;
  Id state = function.parameters[0], slot = function.parameters[1];
  Id next = local_variable(function);
  Id zero = globals_.u64(0), one = globals_.u64(1);
  auto number = [&](int64_t value) { return globals_.u64(static_cast<uint64_t>(value)); };
  Id leads = load_word(code, state, state_.row_leads(step.dimension));
  code.when(code.compare(OpINotEqual, leads, zero), [&] {
    globals_.capability(CapabilityGroups);
    auto of_first = [&](Id value) {
      if (step.dimension != 0) return value;
      return code.emit(OpGroupBroadcast, ulong(),
                       {globals_.u32(ScopeSubgroup), value, globals_.u32(0)});
    };
    Id address = of_first(function.parameters[2]);
    Id narrow = step.narrow ? of_first(function.parameters[3]) : zero;
    Id items = load_word(code, state, state_.row_items(step.dimension));
    Id last_item = code.binary(OpISub, items, one);
    const Map map = object_of(code, state, slot, root).map;

    Id end = code.binary(OpIAdd, address, code.binary(OpIMul, last_item, number(step.bytes())));
    Id low = step.bytes() < 0 ? end : address, high = step.bytes() < 0 ? address : end;
    Id first = line_of(code, map, low);
    Id last = line_of(code, map, code.binary(OpIAdd, high, globals_.u64(bytes - 1)));
    Id is_inside = code.compare(OpULessThan, first, map.limit);
    Id is_plain = code.emit(OpLogicalAnd, globals_.bool_type(),
                            {is_inside, code.compare(OpULessThanEqual, first, last)});
    if (step.narrow) {
      // The last value, from the least that so many bits hold.
      const uint64_t least = step.is_signed ? uint64_t{1} << (step.narrow_bits - 1) : 0;
      Id grown = code.binary(OpIMul, last_item, number(step.narrow_by));
      grown = code.binary(OpIAdd, code.binary(OpIAdd, narrow, grown), globals_.u64(least));
      Id fits = code.compare(OpULessThan, grown, globals_.u64(uint64_t{1} << step.narrow_bits));
      is_plain = code.emit(OpLogicalAnd, globals_.bool_type(), {is_plain, fits});
    }
    code.when(is_plain, [&] {
      code.store(next, first, kWord);
      auto is_left = [&] {
        return code.compare(OpULessThanEqual, code.load(ulong(), next, kWord), last);
      };
      code.loop(is_left, [&] {
        Id line = code.load(ulong(), next, kWord);
        code.emit(OpFunctionCall, globals_.void_type(),
                  {mark(), state, slot, code.binary(OpIAdd, map.offset, line)});
        code.store(next, code.binary(OpIAdd, line, one), kWord);
      });
    });
    code.when(code.emit(OpLogicalNot, globals_.bool_type(), {is_plain}), [&] {
      code.store(next, zero, kWord);
      auto is_left = [&] {
        return code.compare(OpULessThan, code.load(ulong(), next, kWord), items);
      };
      code.loop(is_left, [&] {
        Id item = code.load(ulong(), next, kWord);
        Id grown = code.binary(OpIMul, item, number(step.narrow_by));
        if (step.narrow) {
          Id unused = globals_.u64(64 - step.narrow_bits);
          grown = code.binary(OpShiftLeftLogical, code.binary(OpIAdd, narrow, grown), unused);
          grown = code.binary(step.is_signed ? OpShiftRightArithmetic : OpShiftRightLogical, grown, unused);
          grown = code.binary(OpISub, grown, narrow);
        }
        Id own = code.binary(OpIAdd, address, code.binary(OpIMul, grown, number(step.by)));
        mark_bytes(code, state, slot, map, own, globals_.u64(bytes), lines);
        code.store(next, code.binary(OpIAdd, item, one), kWord);
      });
    });
  });
  code.effect(OpReturn, {});
  return end(function, id);
}

}  // namespace pasta::memory
