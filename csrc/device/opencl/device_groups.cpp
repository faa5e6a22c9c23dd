// Device functions by which the work-items of a sub-group meet in their work-group's scratch.
#include "device/opencl/device_code.h"
#include "device/opencl/scratch_keys.h"

namespace pasta::memory {

using namespace spirv;

namespace {

constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // of 2^64: spreads neighbouring keys
constexpr uint64_t kMostProbes = 64;  // of a table that is as good as full

}  // namespace

Id DeviceCode::local_variable(NewFunction& function) {
  Id id = globals_.new_id();
  Id type = globals_.pointer_type(StorageFunction, ulong());
  auto& first = function.code.blocks().front().instructions;
  first.insert(first.begin() + 1, Instruction::make(OpVariable, type, id, {StorageFunction}));
  return id;
}

Id DeviceCode::atomic(Emitter& code, Op operation, Id slot, Id offset, const Parameters& values,
                      uint32_t semantics) {
  globals_.capability(CapabilityInt64Atomics);
  std::vector<uint32_t> operands{long_at(code, slot, offset), globals_.u32(ScopeDevice),
                                 globals_.u32(semantics)};
  if (operation == OpAtomicCompareExchange) operands.push_back(globals_.u32(kRelaxed));
  operands.insert(operands.end(), values.begin(), values.end());
  return code.emit(operation, ulong(), operands);
}

// ulong (slot, ulong first, ulong scratches, ulong bytes, ulong start): offset from the slot of a
// scratch that was free; 0 when none is. One work-item of a work-group calls it.
Id DeviceCode::take_scratch() {
  Id& id = made_["take_scratch"];
  if (id) return id;
  NewFunction function =
      begin("take_scratch", ulong(), {buffer_type(), ulong(), ulong(), ulong(), ulong()}, &id,
            kFunctionDontInline);
  Emitter& code = function.code;
  Id slot = function.parameters[0], first = function.parameters[1], count = function.parameters[2];
  Id bytes = function.parameters[3], start = function.parameters[4];
  Id zero = globals_.u64(0), one = globals_.u64(1);
  Id taken = local_variable(function), tries = local_variable(function);
  code.store(taken, zero, kWord);
  code.store(tries, zero, kWord);
  auto is_looking = [&] {
    Id none = code.compare(OpIEqual, code.load(ulong(), taken, kWord), zero);
    Id left = code.compare(OpULessThan, code.load(ulong(), tries, kWord), count);
    return code.emit(OpLogicalAnd, globals_.bool_type(), {none, left});
  };
  code.loop(is_looking, [&] {
    Id number = code.load(ulong(), tries, kWord);
    code.store(tries, code.binary(OpIAdd, number, one), kWord);
    number = code.binary(OpUMod, code.binary(OpIAdd, start, number), count);
    Id at = code.binary(OpIAdd, first, code.binary(OpIMul, number, bytes));
    Id before = atomic(code, OpAtomicCompareExchange, slot, at, {one, zero},
                       kAcquireReleaseGlobal);
    code.when(code.compare(OpIEqual, before, zero), [&] { code.store(taken, at, kWord); });
  });
  code.effect(OpReturnValue, {code.load(ulong(), taken, kWord)});
  return end(function, id);
}

// ulong (slot, ulong scratch, ulong key): offset from the slot of the key's entry, plus 1 if it is
// new; 0 when there is no room.
Id DeviceCode::meet() {
  Id& id = made_["meet"];
  if (id) return id;
  NewFunction function =
      begin("meet", ulong(), {buffer_type(), ulong(), ulong()}, &id, kFunctionDontInline);
  Emitter& code = function.code;
  Id slot = function.parameters[0], packed = function.parameters[1], key = function.parameters[2];
  Id zero = globals_.u64(0), one = globals_.u64(1);
  Id found = local_variable(function), left = local_variable(function),
     entry = local_variable(function), present = local_variable(function);
  Id scratch = code.binary(OpBitwiseAnd, packed, globals_.u64(~kScratchShiftMask));
  Id shift = code.binary(OpBitwiseAnd, packed, globals_.u64(kScratchShiftMask));
  Id mask = code.binary(OpShiftRightLogical, globals_.u64(~uint64_t{0}), shift);
  Id entries = code.binary(OpIAdd, scratch, globals_.u64(kScratchHeaderBytes));
  code.store(found, zero, kWord);
  code.store(left, globals_.u64(kMostProbes), kWord);
  Id hash = code.binary(OpIMul, key, globals_.u64(kGoldenRatio));
  code.store(entry, code.binary(OpShiftRightLogical, hash, shift), kWord);
  auto is_looking = [&] {
    return code.compare(OpINotEqual, code.load(ulong(), left, kWord), zero);
  };
  code.loop(is_looking, [&] {
    Id number = code.load(ulong(), entry, kWord);
    Id at = code.binary(OpIAdd, entries,
                        code.binary(OpIMul, number, globals_.u64(kScratchEntryBytes)));
    code.store(present, atomic(code, OpAtomicLoad, slot, at, {}), kWord);
    code.when(code.compare(OpIEqual, code.load(ulong(), present, kWord), zero), [&] {
      Id before = atomic(code, OpAtomicCompareExchange, slot, at, {key, zero});
      code.store(present, before, kWord);
      code.when(code.compare(OpIEqual, before, zero), [&] {
        Id taken_at = code.binary(OpIAdd, scratch, globals_.u64(kScratchTaken * kWord));
        Id place = atomic(code, OpAtomicIAdd, slot, taken_at, {one});
        Id log = code.binary(OpIAdd, entries,
                             code.binary(OpIMul, place, globals_.u64(kScratchEntryBytes)));
        log = code.binary(OpIAdd, log, globals_.u64(kEntryLog * kWord));
        code.store(long_at(code, slot, log), number, kWord);
        code.store(found, code.binary(OpIAdd, at, one), kWord);
      });
    });
    Id is_ours = code.compare(OpIEqual, code.load(ulong(), present, kWord), key);
    code.when(is_ours, [&] { code.store(found, at, kWord); });
    Id is_found = code.compare(OpINotEqual, code.load(ulong(), found, kWord), zero);
    Id fewer = code.binary(OpISub, code.load(ulong(), left, kWord), one);
    code.store(left, code.select(is_found, zero, fewer), kWord);
    code.store(entry, code.binary(OpBitwiseAnd, code.binary(OpIAdd, number, one), mask), kWord);
  });
  code.effect(OpReturnValue, {code.load(ulong(), found, kWord)});
  return end(function, id);
}

// ulong (slot, ulong entry, ulong part): 1 if a line or word near the first one of the access is
// new, 0 if not; kNowhere if it is not near.
Id DeviceCode::meet_near() {
  Id& id = made_["meet_near"];
  if (id) return id;
  NewFunction function =
      begin("meet_near", ulong(), {buffer_type(), ulong(), ulong()}, &id, kFunctionDontInline);
  Emitter& code = function.code;
  Id slot = function.parameters[0], entry = function.parameters[1], part = function.parameters[2];
  Id zero = globals_.u64(0), one = globals_.u64(1);
  Id first = local_variable(function), result = local_variable(function);
  Id first_at = code.binary(OpIAdd, entry, globals_.u64(kEntryFirst * kWord));
  Id bits_at = code.binary(OpIAdd, entry, globals_.u64(kEntryBits * kWord));
  Id named = code.binary(OpIAdd, part, one);  // 0: there is none yet
  code.store(first, atomic(code, OpAtomicLoad, slot, first_at, {}), kWord);
  code.when(code.compare(OpIEqual, code.load(ulong(), first, kWord), zero), [&] {
    Id before = atomic(code, OpAtomicCompareExchange, slot, first_at, {named, zero});
    code.store(first, code.select(code.compare(OpIEqual, before, zero), named, before), kWord);
  });
  Id place = code.binary(OpISub, code.binary(OpIAdd, named, globals_.u64(kNear)),
                         code.load(ulong(), first, kWord));
  code.store(result, globals_.u64(kNowhere), kWord);
  code.when(code.compare(OpULessThan, place, globals_.u64(2 * kNear)), [&] {
    auto is_new = [&](Id bits) {
      Id bit = code.binary(OpBitwiseAnd, code.binary(OpShiftRightLogical, bits, place), one);
      return code.select(code.compare(OpIEqual, bit, zero), one, zero);
    };
    code.store(result, is_new(atomic(code, OpAtomicLoad, slot, bits_at, {})), kWord);
    code.when(code.compare(OpINotEqual, code.load(ulong(), result, kWord), zero), [&] {
      Id mask = code.binary(OpShiftLeftLogical, one, place);
      code.store(result, is_new(atomic(code, OpAtomicOr, slot, bits_at, {mask})), kWord);
    });
  });
  code.effect(OpReturnValue, {code.load(ulong(), result, kWord)});
  return end(function, id);
}

// Whether the work-item is to look for its entry. Once one found no room in the whole launch, what
// is counted with it will not be known: looking on would only take time, at each access.
Id DeviceCode::is_worth_meeting(Emitter& code, Id slot, Id scratch, Id lost) {
  Id has_scratch = code.compare(OpINotEqual, scratch, globals_.u64(0));
  Id has_lost = atomic(code, OpAtomicLoad, slot, lost, {});
  Id is_whole = code.compare(OpIEqual, has_lost, globals_.u64(0));
  return code.emit(OpLogicalAnd, globals_.bool_type(), {has_scratch, is_whole});
}

// void (slot, ulong scratch, ulong key, ulong address, ulong bytes, ulong lost): a work-item's part
// in a sub-group access. `lost`: offset of the counter of those that found no room.
Id DeviceCode::visit(bool local) {
  Id& id = made_[local ? "visit_banks" : "visit_lines"];
  if (id) return id;
  meet();
  meet_near();
  add();
  NewFunction function =
      begin(local ? "visit_banks" : "visit_lines", globals_.void_type(),
            {buffer_type(), ulong(), ulong(), ulong(), ulong(), ulong()}, &id, kFunctionDontInline);
  Emitter& code = function.code;
  Id slot = function.parameters[0], packed = function.parameters[1], key = function.parameters[2];
  Id address = function.parameters[3], bytes = function.parameters[4],
     lost = function.parameters[5];
  Id zero = globals_.u64(0), one = globals_.u64(1), even = globals_.u64(~uint64_t{1});
  Id part = local_variable(function), fresh = local_variable(function),
     is_new = local_variable(function);
  auto lose = [&] {
    code.emit(OpFunctionCall, globals_.void_type(), {add(), slot, lost, one});
  };
  auto meet_at = [&](Id what) {
    return code.emit(OpFunctionCall, ulong(), {meet(), slot, packed, what});
  };
  auto word_of = [&](Id entry, ScratchWord word) {
    return code.binary(OpIAdd, entry, globals_.u64(uint64_t{word} * kWord));
  };
  Id scratch = code.binary(OpBitwiseAnd, packed, globals_.u64(~kScratchShiftMask));
  code.when(is_worth_meeting(code, slot, scratch, lost), [&] {
    Id shift = globals_.u64(local ? kBankWordShift : kLineShift);
    Id end_address = code.binary(OpISub, code.binary(OpIAdd, address, bytes), one);
    Id last = code.binary(OpShiftRightLogical, end_address, shift);
    Id found = meet_at(key);
    Id fits = code.compare(OpULessThan, last, globals_.u64(uint64_t{1} << kPartBits));
    Id has_room = code.compare(OpINotEqual, found, zero);
    Id is_possible = code.emit(OpLogicalAnd, globals_.bool_type(), {fits, has_room});
    code.when(code.emit(OpLogicalNot, globals_.bool_type(), {is_possible}), lose);
    code.when(is_possible, [&] {
      Id entry = code.binary(OpBitwiseAnd, found, even);
      Id entry_is_new = code.compare(OpINotEqual, code.binary(OpBitwiseAnd, found, one), zero);
      if (!local) {
        code.when(entry_is_new,
                  [&] { atomic_store(code, slot, word_of(entry, kEntryMost), bytes); });
      }
      code.store(part, code.binary(OpShiftRightLogical, address, shift), kWord);
      code.store(fresh, one, kWord);
      auto is_part = [&] {
        return code.compare(OpULessThanEqual, code.load(ulong(), part, kWord), last);
      };
      code.loop(is_part, [&] {
        Id now = code.load(ulong(), part, kWord);
        code.store(is_new, code.emit(OpFunctionCall, ulong(), {meet_near(), slot, entry, now}),
                   kWord);
        Id is_far = code.compare(OpIEqual, code.load(ulong(), is_new, kWord),
                                 globals_.u64(kNowhere));
        code.when(is_far, [&] {
          Id behind = code.binary(OpISub, code.binary(OpISub, entry, scratch),
                                  globals_.u64(kScratchHeaderBytes));
          Id number = code.binary(OpUDiv, behind, globals_.u64(kScratchEntryBytes));
          Id parts = code.binary(OpBitwiseOr, globals_.u64(kPartKey),
                                 code.binary(OpShiftLeftLogical, number, globals_.u64(kPartBits)));
          Id place = meet_at(code.binary(OpBitwiseOr, parts, now));
          code.when(code.compare(OpIEqual, place, zero), lose);
          Id far_is_new = code.binary(OpBitwiseAnd, place, one);
          code.store(is_new, far_is_new, kWord);
          if (!local) return;
          code.when(code.compare(OpINotEqual, far_is_new, zero), [&] {
            Id bank = code.binary(OpUMod, now, globals_.u64(kBanks));
            Id banks = code.binary(OpShiftLeftLogical, number, globals_.u64(kBankShift));
            Id bank_key = code.binary(OpBitwiseOr, globals_.u64(kBankKey), banks);
            Id bank_at = meet_at(code.binary(OpBitwiseOr, bank_key, bank));
            code.when(code.compare(OpIEqual, bank_at, zero), lose);
            code.when(code.compare(OpINotEqual, bank_at, zero), [&] {
              Id count_at = word_of(code.binary(OpBitwiseAnd, bank_at, even), kEntryCount);
              atomic(code, OpAtomicIAdd, slot, count_at, {one});
            });
          });
        });
        Id distinct = code.binary(OpShiftLeftLogical, code.load(ulong(), is_new, kWord),
                                  globals_.u64(32));
        code.store(fresh, code.binary(OpIAdd, code.load(ulong(), fresh, kWord), distinct), kWord);
        code.store(part, code.binary(OpIAdd, now, one), kWord);
      });
      atomic(code, OpAtomicIAdd, slot, word_of(entry, kEntryCount),
             {code.load(ulong(), fresh, kWord)});
    });
  });
  code.effect(OpReturn, {});
  return end(function, id);
}

// void (slot, ulong scratch, ulong key, ulong value, ulong lost): the value counts if it is the
// largest of the sub-group.
Id DeviceCode::visit_sum() {
  Id& id = made_["visit_sum"];
  if (id) return id;
  meet();
  add();
  NewFunction function =
      begin("visit_sum", globals_.void_type(),
            {buffer_type(), ulong(), ulong(), ulong(), ulong()}, &id, kFunctionDontInline);
  Emitter& code = function.code;
  Id slot = function.parameters[0], packed = function.parameters[1], key = function.parameters[2];
  Id value = function.parameters[3], lost = function.parameters[4];
  Id zero = globals_.u64(0);
  Id is_something = code.compare(OpINotEqual, value, zero);
  Id is_worth = is_worth_meeting(code, slot, packed, lost);
  code.when(code.emit(OpLogicalAnd, globals_.bool_type(), {is_something, is_worth}), [&] {
    Id entry = code.emit(OpFunctionCall, ulong(), {meet(), slot, packed, key});
    code.when(code.compare(OpIEqual, entry, zero), [&] {
      code.emit(OpFunctionCall, globals_.void_type(), {add(), slot, lost, globals_.u64(1)});
    });
    code.when(code.compare(OpINotEqual, entry, zero), [&] {
      entry = code.binary(OpBitwiseAnd, entry, globals_.u64(~uint64_t{1}));
      Id most = code.binary(OpIAdd, entry, globals_.u64(kEntryMost * kWord));
      atomic(code, OpAtomicUMax, slot, most, {value});
    });
  });
  code.effect(OpReturn, {});
  return end(function, id);
}

Id DeviceCode::access_key(Emitter& code, Id state, uint32_t meeting) {
  Id ordinal_at = word_pointer(code, state, state_.ordinal(meeting));
  Id ordinal = code.load(ulong(), ordinal_at, kWord);
  code.store(ordinal_at, code.binary(OpIAdd, ordinal, globals_.u64(1)), kWord);
  uint64_t fixed = kAccessKey | uint64_t{meeting} << kSiteShift;
  Id group = code.binary(OpShiftLeftLogical, load_word(code, state, state_.sub_group()),
                         globals_.u64(kSubGroupShift));
  return code.binary(OpBitwiseOr, code.binary(OpBitwiseOr, ordinal, group), globals_.u64(fixed));
}

Id DeviceCode::sum_key(Emitter& code, Id state, uint32_t sum) {
  return code.binary(OpBitwiseOr, globals_.u64(kSumKey | uint64_t{sum} << kSumShift),
                     load_word(code, state, state_.sub_group()));
}

void DeviceCode::atomic_store(Emitter& code, Id slot, Id offset, Id value, uint32_t semantics) {
  globals_.capability(CapabilityInt64Atomics);
  code.effect(OpAtomicStore, {long_at(code, slot, offset), globals_.u32(ScopeDevice),
                              globals_.u32(semantics), value});
}

void DeviceCode::group_barrier(Emitter& code) {
  code.effect(OpControlBarrier, {globals_.u32(ScopeWorkgroup), globals_.u32(ScopeWorkgroup),
                                 globals_.u32(kAcquireReleaseAll)});
}

}  // namespace pasta::memory
