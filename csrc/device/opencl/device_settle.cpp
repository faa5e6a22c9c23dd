// Device functions that add what is in a work-group's scratch to the slot, and free it.
#include "device/opencl/device_code.h"
#include "device/opencl/scratch_keys.h"

namespace pasta::memory {

using namespace spirv;

// Sites of local memory have the highest numbers.
Id DeviceCode::is_local_meeting(Emitter& code, Id meeting) {
  uint64_t first = plan_.meetings - plan_.local_meetings;
  return code.compare(OpUGreaterThanEqual, meeting, globals_.u64(first));
}

// A loop over entries `local`, local + step, ... of those taken, in the order of their taking;
// `body` gets the number of the entry.
void DeviceCode::for_entries(NewFunction& function, Id slot, Id scratch, Id local, Id step,
                             const std::function<void(Id)>& body) {
  Emitter& code = function.code;
  Id next = local_variable(function);
  Id taken_at = code.binary(OpIAdd, scratch, globals_.u64(kScratchTaken * kWord));
  Id taken = atomic(code, OpAtomicLoad, slot, taken_at, {});
  code.store(next, local, kWord);
  auto is_left = [&] { return code.compare(OpULessThan, code.load(ulong(), next, kWord), taken); };
  code.loop(is_left, [&] {
    Id place = code.load(ulong(), next, kWord);
    Id log = entry_word(code, scratch, place, kEntryLog);
    body(code.load(ulong(), long_at(code, slot, log), kWord));
    code.store(next, code.binary(OpIAdd, place, step), kWord);
  });
}

// Offset from the slot of a word of an entry.
Id DeviceCode::entry_word(Emitter& code, Id scratch, Id number, ScratchWord word) {
  Id offset = code.binary(OpIMul, number, globals_.u64(kScratchEntryBytes));
  return code.binary(OpIAdd, code.binary(OpIAdd, scratch, offset),
                     globals_.u64(kScratchHeaderBytes + uint64_t{word} * kWord));
}

// void (slot, ulong scratch, ulong local, ulong step): tells each access how many words of it are
// in one bank, where some are far from the first. All work-items of a work-group call it when none
// meets any more.
Id DeviceCode::settle_banks() {
  Id& id = made_["settle_banks"];
  if (id) return id;
  NewFunction function =
      begin("settle_banks", globals_.void_type(), {buffer_type(), ulong(), ulong(), ulong()}, &id,
            kFunctionDontInline);
  Emitter& code = function.code;
  Id slot = function.parameters[0], packed = function.parameters[1];
  Id scratch = code.binary(OpBitwiseAnd, packed, globals_.u64(~kScratchShiftMask));
  auto read = [&](Id number, ScratchWord word) {
    return atomic(code, OpAtomicLoad, slot, entry_word(code, scratch, number, word), {});
  };
  Id local = function.parameters[2], step = function.parameters[3];
  for_entries(function, slot, scratch, local, step, [&](Id number) {
    Id key = read(number, kEntryKey);
    Id kind = code.binary(OpShiftRightLogical, key, globals_.u64(62));
    code.when(code.compare(OpIEqual, kind, globals_.u64(kBankKey >> 62)), [&] {
      Id access = code.binary(OpShiftRightLogical, key, globals_.u64(kBankShift));
      access = code.binary(OpBitwiseAnd, access, globals_.u64((1 << kMostScratchBits) - 1));
      // The bank's bits: the first of them is as far behind bit 0 as the bank is behind its word's.
      Id bank = code.binary(OpBitwiseAnd, key, globals_.u64(kBanks - 1));
      Id first = code.binary(OpISub, read(access, kEntryFirst), globals_.u64(1 + kNear));
      Id bit = code.binary(OpISub, bank, first);
      bit = code.binary(OpBitwiseAnd, bit, globals_.u64(kBanks - 1));
      Id bits = code.binary(OpShiftRightLogical, read(access, kEntryBits), bit);
      Id near = code.binary(OpBitwiseAnd, bits, globals_.u64(1));
      near = code.binary(OpIAdd, near,
                         code.binary(OpBitwiseAnd,
                                     code.binary(OpShiftRightLogical, bits, globals_.u64(kBanks)),
                                     globals_.u64(1)));
      atomic(code, OpAtomicUMax, slot, entry_word(code, scratch, access, kEntryMost),
             {code.binary(OpIAdd, near, read(number, kEntryCount))});
    });
  });
  code.effect(OpReturn, {});
  return end(function, id);
}

// void (slot, ulong scratch, ulong local, ulong step, ulong row): adds entries `local`,
// local + step, ... of the scratch to the counters in a row of the slot, and frees them. All
// work-items of a work-group call it at last.
Id DeviceCode::settle() {
  Id& id = made_["settle"];
  if (id) return id;
  add();
  NewFunction function =
      begin("settle", globals_.void_type(),
            {buffer_type(), ulong(), ulong(), ulong(), ulong()}, &id, kFunctionDontInline);
  Emitter& code = function.code;
  Id slot = function.parameters[0], packed = function.parameters[1];
  Id local = function.parameters[2], step = function.parameters[3], row = function.parameters[4];
  Id zero = globals_.u64(0), one = globals_.u64(1);
  Id scratch = code.binary(OpBitwiseAnd, packed, globals_.u64(~kScratchShiftMask));
  auto count = [&](uint32_t first, Id number, uint32_t apart, Id value) {
    Id counter = code.binary(OpIMul, number, globals_.u64(uint64_t{apart} * kWord));
    Id offset = code.binary(OpIAdd, row, globals_.u64(uint64_t{slot_.counter(0, first)} * kWord));
    code.when(code.compare(OpINotEqual, value, zero), [&] {
      code.emit(OpFunctionCall, globals_.void_type(),
                {add(), slot, code.binary(OpIAdd, offset, counter), value});
    });
  };
  for_entries(function, slot, scratch, local, step, [&](Id number) {
    auto read = [&](ScratchWord word) {
      return atomic(code, OpAtomicLoad, slot, entry_word(code, scratch, number, word), {});
    };
    Id key = read(kEntryKey), most = read(kEntryMost);
    Id kind = code.binary(OpShiftRightLogical, key, globals_.u64(60));
    code.when(code.compare(OpIEqual, kind, globals_.u64(kAccessKey >> 60)), [&] {
      Id meeting = code.binary(OpBitwiseAnd,
                               code.binary(OpShiftRightLogical, key, globals_.u64(kSiteShift)),
                               globals_.u64(0xffff));
      Id both = read(kEntryCount);
      Id lanes = code.binary(OpBitwiseAnd, both, globals_.u64(0xffffffff));
      Id distinct = code.binary(OpShiftRightLogical, both, globals_.u64(32));
      // Both kinds are computed, and the right one taken.
      Id filled = code.binary(OpIAdd, code.binary(OpIMul, lanes, most),
                              globals_.u64((uint64_t{1} << kLineShift) - 1));
      filled = code.binary(OpShiftRightLogical, filled, globals_.u64(kLineShift));
      Id is_local = is_local_meeting(code, meeting);
      Id bits = read(kEntryBits);
      Id twice = code.binary(OpBitwiseAnd, bits,
                             code.binary(OpShiftRightLogical, bits, globals_.u64(kBanks)));
      Id near = code.select(code.compare(OpINotEqual, twice, zero), globals_.u64(2), one);
      Id rounded = code.binary(OpIAdd, distinct, globals_.u64(kBanks - 1));
      Id passes = code.binary(OpISub, code.unsigned_max(near, most),
                              code.binary(OpUDiv, rounded, globals_.u64(kBanks)));
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
    for (ScratchWord word : {kEntryCount, kEntryMost, kEntryFirst, kEntryBits, kEntryKey})
      atomic_store(code, slot, entry_word(code, scratch, number, word), zero);
  });
  code.effect(OpReturn, {});
  return end(function, id);
}

}  // namespace pasta::memory
