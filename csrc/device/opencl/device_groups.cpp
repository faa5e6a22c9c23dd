// Device functions by which the work-items of a sub-group are compared.
//
// Lanes cannot vote: a CPU runs one work-item after the other, or a vector of some, and a sub-group
// of the declared width is none of the device's. So they meet in a hash table, the *scratch* of
// their work-group, at entries whose keys say what they do together. Whoever comes first takes the
// entry, whoever comes later adds to it: sums, distinct counts and maxima do not depend on the
// order. At the end of the work-group the entries are added to the slot, and freed.
//
//   key, from the highest bit                                      count                      most
//   sub-group access  0001 site (16 bits) sub-group (12) n (32)    lanes | distinct << 32     bytes of a lane, or
//                                                                                             words in one bank
//   line or word      1    entry of the access (20)  number (43)
//   bank              01   entry of the access (20 bits from bit 20)  bank (20)  distinct words
//   sum               001  sum (29) sub-group (32)                                            largest of a lane
#include "device/opencl/device_code.h"

namespace pasta::memory {

using namespace spirv;

namespace {

constexpr uint64_t kAccessKey = uint64_t{1} << 60;
constexpr uint64_t kPartKey = uint64_t{1} << 63;
constexpr uint64_t kBankKey = uint64_t{1} << 62;
constexpr uint64_t kSumKey = uint64_t{1} << 61;
constexpr uint32_t kSiteShift = 44, kSubGroupShift = 32, kSumShift = 32;
constexpr uint32_t kPartBits = 43;
constexpr uint32_t kBankShift = 20;
constexpr uint32_t kBankWordShift = 2;

constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // of 2^64: spreads keys that follow each other
constexpr uint64_t kMostProbes = 256;

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
  NewFunction function = begin("take_scratch", ulong(),
                               {buffer_type(), ulong(), ulong(), ulong(), ulong()}, &id, kFunctionDontInline);
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

// ulong (slot, ulong scratch, ulong key): offset from the slot of the key's entry, plus 1 if it is new; 0
// when there is no room.
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

// void (slot, ulong scratch, ulong key, ulong address, ulong bytes, ulong lost): a work-item's part in a
// sub-group access. `lost`: offset of the counter of those that found no room.
Id DeviceCode::visit(bool local) {
  Id& id = made_[local ? "visit_banks" : "visit_lines"];
  if (id) return id;
  meet();
  if (plan_.reducers.bank_conflicts) add();
  NewFunction function =
      begin(local ? "visit_banks" : "visit_lines", globals_.void_type(),
            {buffer_type(), ulong(), ulong(), ulong(), ulong(), ulong()}, &id, kFunctionDontInline);
  Emitter& code = function.code;
  Id slot = function.parameters[0], packed = function.parameters[1], key = function.parameters[2];
  Id address = function.parameters[3], bytes = function.parameters[4],
     lost = function.parameters[5];
  Id zero = globals_.u64(0), one = globals_.u64(1);
  Id part = local_variable(function), fresh = local_variable(function);
  auto lose = [&] {
    code.emit(OpFunctionCall, globals_.void_type(), {add(), slot, lost, one});
  };
  auto meet_at = [&](Id what) {
    return code.emit(OpFunctionCall, ulong(), {meet(), slot, packed, what});
  };
  auto word_of = [&](Id entry, ScratchWord word) {
    return code.binary(OpIAdd, entry, globals_.u64(uint64_t{word} * kWord));
  };
  Id even = globals_.u64(~uint64_t{1});
  Id scratch = code.binary(OpBitwiseAnd, packed, globals_.u64(~kScratchShiftMask));
  code.when(code.compare(OpINotEqual, scratch, zero), [&] {
    Id shift = globals_.u64(local ? kBankWordShift : kLineShift);
    Id end_address = code.binary(OpISub, code.binary(OpIAdd, address, bytes), one);
    Id last = code.binary(OpShiftRightLogical, end_address, shift);
    Id first = code.binary(OpShiftRightLogical, address, shift);
    Id found = meet_at(key);
    Id fits = code.compare(OpULessThan, last, globals_.u64(uint64_t{1} << kPartBits));
    Id has_room = code.compare(OpINotEqual, found, zero);
    Id is_possible = code.emit(OpLogicalAnd, globals_.bool_type(), {fits, has_room});
    code.when(code.emit(OpLogicalNot, globals_.bool_type(), {is_possible}), lose);
    code.when(is_possible, [&] {
      Id entry = code.binary(OpBitwiseAnd, found, even);
      if (!local) atomic_store(code, slot, word_of(entry, kEntryMost), bytes);
      Id behind = code.binary(OpISub, entry, scratch);
      Id number = code.binary(OpUDiv, code.binary(OpISub, behind, globals_.u64(kScratchHeaderBytes)),
                              globals_.u64(kScratchEntryBytes));
      Id parts = code.binary(OpBitwiseOr, globals_.u64(kPartKey),
                             code.binary(OpShiftLeftLogical, number, globals_.u64(kPartBits)));
      code.store(part, first, kWord);
      code.store(fresh, one, kWord);
      auto is_part = [&] {
        return code.compare(OpULessThanEqual, code.load(ulong(), part, kWord), last);
      };
      code.loop(is_part, [&] {
        Id now = code.load(ulong(), part, kWord);
        Id place = meet_at(code.binary(OpBitwiseOr, parts, now));
        code.when(code.compare(OpIEqual, place, zero), lose);
        Id is_new = code.binary(OpBitwiseAnd, place, one);
        Id distinct = code.binary(OpShiftLeftLogical, is_new, globals_.u64(32));
        code.store(fresh, code.binary(OpIAdd, code.load(ulong(), fresh, kWord), distinct), kWord);
        if (local) {
          code.when(code.compare(OpINotEqual, is_new, zero), [&] {
            Id bank = code.binary(OpUMod, now, globals_.u64(plan_.reducers.banks));
            Id banks = code.binary(OpShiftLeftLogical, number, globals_.u64(kBankShift));
            Id bank_key = code.binary(OpBitwiseOr, globals_.u64(kBankKey), banks);
            Id bank_at = meet_at(code.binary(OpBitwiseOr, bank_key, bank));
            code.when(code.compare(OpIEqual, bank_at, zero), lose);
            code.when(code.compare(OpINotEqual, bank_at, zero), [&] {
              Id count_at = word_of(code.binary(OpBitwiseAnd, bank_at, even), kEntryCount);
              Id words = atomic(code, OpAtomicIAdd, slot, count_at, {one});
              atomic(code, OpAtomicUMax, slot, word_of(entry, kEntryMost),
                     {code.binary(OpIAdd, words, one)});
            });
          });
        }
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
  Id has_scratch = code.compare(OpINotEqual, packed, zero);
  code.when(code.emit(OpLogicalAnd, globals_.bool_type(), {is_something, has_scratch}), [&] {
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

// void (slot, ulong scratch, ulong local, ulong step, ulong row): adds entries `local`, local + step, ... of
// the scratch to the counters in a row of the slot, and frees them. All work-items of a work-group
// call it when none meets any more.
Id DeviceCode::settle() {
  Id& id = made_["settle"];
  if (id) return id;
  add();
  NewFunction function =
      begin("settle", globals_.void_type(),
            {buffer_type(), ulong(), ulong(), ulong(), ulong()}, &id, kFunctionDontInline);
  Emitter& code = function.code;
  Id slot = function.parameters[0], packed = function.parameters[1], local = function.parameters[2];
  Id step = function.parameters[3], row = function.parameters[4];
  Id zero = globals_.u64(0), one = globals_.u64(1);
  Id next = local_variable(function);
  Id scratch = code.binary(OpBitwiseAnd, packed, globals_.u64(~kScratchShiftMask));
  Id entries = code.binary(OpIAdd, scratch, globals_.u64(kScratchHeaderBytes));
  Id taken_at = code.binary(OpIAdd, scratch, globals_.u64(kScratchTaken * kWord));
  Id taken = atomic(code, OpAtomicLoad, slot, taken_at, {});
  auto entry_word = [&](Id number, ScratchWord word) {
    Id offset = code.binary(OpIMul, number, globals_.u64(kScratchEntryBytes));
    offset = code.binary(OpIAdd, offset, globals_.u64(uint64_t{word} * kWord));
    return code.binary(OpIAdd, entries, offset);
  };
  auto count = [&](uint32_t first, Id number, uint32_t apart, Id value) {
    Id counter = code.binary(OpIMul, number, globals_.u64(uint64_t{apart} * kWord));
    Id offset = code.binary(OpIAdd, row, globals_.u64(uint64_t{slot_.counter(0, first)} * kWord));
    code.when(code.compare(OpINotEqual, value, zero), [&] {
      code.emit(OpFunctionCall, globals_.void_type(),
                {add(), slot, code.binary(OpIAdd, offset, counter), value});
    });
  };
  code.store(next, local, kWord);
  code.loop([&] { return code.compare(OpULessThan, code.load(ulong(), next, kWord), taken); }, [&] {
    Id place = code.load(ulong(), next, kWord);
    Id number = code.load(ulong(), long_at(code, slot, entry_word(place, kEntryLog)), kWord);
    Id key_at = entry_word(number, kEntryKey), count_at = entry_word(number, kEntryCount),
       most_at = entry_word(number, kEntryMost);
    Id key = atomic(code, OpAtomicLoad, slot, key_at, {});
    Id both = atomic(code, OpAtomicLoad, slot, count_at, {});
    Id most = atomic(code, OpAtomicLoad, slot, most_at, {});
    Id kind = code.binary(OpShiftRightLogical, key, globals_.u64(60));
    code.when(code.compare(OpIEqual, kind, globals_.u64(kAccessKey >> 60)), [&] {
      Id meeting = code.binary(OpBitwiseAnd,
                               code.binary(OpShiftRightLogical, key, globals_.u64(kSiteShift)),
                               globals_.u64(0xffff));
      Id lanes = code.binary(OpBitwiseAnd, both, globals_.u64(0xffffffff));
      Id distinct = code.binary(OpShiftRightLogical, both, globals_.u64(32));
      // Both kinds are computed: which one it is, is known to the host.
      Id filled = code.binary(OpIAdd, code.binary(OpIMul, lanes, most),
                              globals_.u64((uint64_t{1} << kLineShift) - 1));
      filled = code.binary(OpShiftRightLogical, filled, globals_.u64(kLineShift));
      Id is_local = is_local_meeting(code, meeting);
      Id banks = globals_.u64(plan_.reducers.banks);
      Id rounded = code.binary(OpIAdd, distinct, globals_.u64(plan_.reducers.banks - 1));
      Id passes = code.binary(OpISub, most, code.binary(OpUDiv, rounded, banks));
      Id needed = code.select(is_local, zero, code.unsigned_min(distinct, filled));
      count(plan_.meeting_counter(0, KernelPlan::kMoved), meeting, KernelPlan::kMeetingCounters,
            code.select(is_local, passes, distinct));
      count(plan_.meeting_counter(0, KernelPlan::kNeeded), meeting, KernelPlan::kMeetingCounters,
            needed);
    });
    code.when(code.compare(OpIEqual, code.binary(OpShiftRightLogical, kind, one), one), [&] {
      Id sum = code.binary(OpShiftRightLogical, key, globals_.u64(kSumShift));
      sum = code.binary(OpBitwiseAnd, sum, globals_.u64((kSumKey >> kSumShift) - 1));
      count(plan_.sum_counter(0), sum, 2, most);
    });
    for (Id freed : {count_at, most_at, key_at}) atomic_store(code, slot, freed, zero);
    code.store(next, code.binary(OpIAdd, place, step), kWord);
  });
  code.effect(OpReturn, {});
  return end(function, id);
}

// Sites of local memory have the highest numbers.
Id DeviceCode::is_local_meeting(Emitter& code, Id meeting) {
  uint64_t first = plan_.meetings - plan_.local_meetings;
  return code.compare(OpUGreaterThanEqual, meeting, globals_.u64(first));
}

void DeviceCode::atomic_store(Emitter& code, Id slot, Id offset, Id value, uint32_t semantics) {
  globals_.capability(CapabilityInt64Atomics);
  code.effect(OpAtomicStore, {long_at(code, slot, offset), globals_.u32(ScopeDevice),
                              globals_.u32(semantics), value});
}

void DeviceCode::group_barrier(Emitter& code) {
  code.effect(OpControlBarrier, {globals_.u32(ScopeWorkgroup), globals_.u32(ScopeWorkgroup),
                                 globals_.u32(kAcquireReleaseGlobal)});
}

}  // namespace pasta::memory
