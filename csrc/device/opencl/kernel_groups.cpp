// The part of KernelWriter that compares the work-items of a sub-group at the end of a work-group.
#include <algorithm>

#include "device/opencl/kernel_writer.h"

namespace pasta::memory {

using namespace spirv;

// Collective functions of work-groups would say it in fewer words, but Intel's compiler for CPUs
// (2026.2) can crash on them where a kernel has many barriers, in ReduceCrossBarrierValues.
Id KernelWriter::group_word(Emitter& code, uint32_t word) {
  if (!group_words_) {
    uint32_t words = 1 + 2 * static_cast<uint32_t>(plan_.sums.size());
    group_words_ = globals_.local_variable(globals_.array_type(device_.ulong(), words));
  }
  Id type = globals_.pointer_type(StorageWorkgroup, device_.ulong());
  return code.emit(OpInBoundsAccessChain, type, {group_words_, globals_.u64(word)});
}

// The first work-item of the work-group takes a scratch for all.
void KernelWriter::take_scratch(Emitter& code, Id state, Id slot, Id slot_offset) {
  const StateLayout& layout = device_.state_layout();
  Id local =
      device_.builtin1(code, BuiltInLocalInvocationIndex, "__spirv_BuiltInLocalInvocationIndex");
  Id zero = globals_.u64(0);
  device_.store_word(code, state, layout.sub_group(),
                     code.binary(OpUDiv, local, globals_.u64(plan_.reducers.width)));
  Id varying_zero = device_.load_word(code, state, layout.zero());
  for (uint32_t m = 0; m < layout.meetings; ++m)
    device_.store_word(code, state, layout.ordinal(m), varying_zero);
  code.when(code.compare(OpIEqual, local, zero), [&] {
    auto word = [&](uint32_t number) { return device_.binding_word(code, state, slot, number); };
    Id first = code.binary(OpISub, word(kBindingScratch), slot_offset);
    Id shift = code.binary(OpISub, globals_.u64(64), word(kBindingScratchShift));
    Id bytes = code.binary(OpShiftLeftLogical, globals_.u64(kScratchEntryBytes), shift);
    bytes = code.binary(OpIAdd, bytes, globals_.u64(kScratchHeaderBytes));
    Id taken = code.emit(OpFunctionCall, device_.ulong(),
                         {device_.take_scratch(), slot, first, word(kBindingScratches), bytes,
                          group_number(code)});
    Id is_none = code.compare(OpIEqual, taken, zero);
    Id packed = code.binary(OpBitwiseOr, taken, word(kBindingScratchShift));
    code.store(group_word(code, kGroupScratch), code.select(is_none, zero, packed), kWord);
    code.when(is_none, [&] {
      code.emit(OpFunctionCall, globals_.void_type(),
                {device_.add(), slot, globals_.u64(kSlotUngrouped * kWord), globals_.u64(1)});
    });
  });
  device_.group_barrier(code);
  device_.store_word(code, state, layout.scratch(),
                     code.load(device_.ulong(), group_word(code, kGroupScratch), kWord));
}

// What the sub-groups of a work-group have counted together, once all have ended.
void KernelWriter::settle(Emitter& code, Id state, Id slot, Id slot_offset) {
  const StateLayout& layout = device_.state_layout();
  Id row = shard_row(code);
  Id zero = globals_.u64(0), width = globals_.u64(plan_.reducers.width);
  Id local =
      device_.builtin1(code, BuiltInLocalInvocationIndex, "__spirv_BuiltInLocalInvocationIndex");
  auto size = [&](uint32_t c) {
    return device_.builtin3(code, BuiltInWorkgroupSize, "__spirv_BuiltInWorkgroupSize", c);
  };
  Id volume = code.binary(OpIMul, code.binary(OpIMul, size(0), size(1)), size(2));
  Id rounded = code.binary(OpIAdd, volume, globals_.u64(plan_.reducers.width - 1));
  Id sub_groups = code.binary(OpUDiv, rounded, width);
  Id is_first = code.compare(OpIEqual, local, zero);

  std::vector<Id> totals;
  std::vector<bool> is_fixed;
  for (const CountSum& sum : plan_.sums) {
    Id total = zero;
    is_fixed.push_back(true);
    for (const CountTerm& term : sum) {
      Id part = globals_.u64(term.factor);
      if (term.counter != kWorkItems) {
        is_fixed.back() = false;
        part = code.binary(OpIMul, device_.load_word(code, state, term.counter), part);
      }
      total = code.binary(OpIAdd, total, part);
    }
    totals.push_back(total);
  }
  auto for_varying = [&](const std::function<void(uint32_t)>& body) {
    for (uint32_t s = 0; s < totals.size(); ++s) {
      if (!is_fixed[s]) body(s);
    }
  };
  bool varies = std::find(is_fixed.begin(), is_fixed.end(), false) != is_fixed.end();
  if (varies) {
    code.when(is_first, [&] {
      for_varying([&](uint32_t s) {
        code.store(group_word(code, group_total(s)), totals[s], kWord);
        code.store(group_word(code, group_differs(s)), zero, kWord);
      });
    });
    device_.group_barrier(code);
    for_varying([&](uint32_t s) {
      Id of_first = code.load(device_.ulong(), group_word(code, group_total(s)), kWord);
      code.when(code.compare(OpINotEqual, totals[s], of_first), [&] {
        code.store(group_word(code, group_differs(s)), globals_.u64(1), kWord);
      });
    });
    device_.group_barrier(code);
  }

  // Where all work-items have the same sum, that is each sub-group's; else they have to meet.
  std::vector<Id> differing;
  Id differ = plan_.meetings ? globals_.u64(1) : zero;
  for (uint32_t s = 0; s < totals.size(); ++s) {
    Id of_each = totals[s], of_own = 0;
    if (!is_fixed[s]) {
      Id differs = code.load(device_.ulong(), group_word(code, group_differs(s)), kWord);
      Id is_same = code.compare(OpIEqual, differs, zero);
      differ = code.binary(OpBitwiseOr, differ, differs);
      of_each = code.select(is_same, totals[s], zero);
      of_own = code.select(is_same, zero, totals[s]);
    }
    differing.push_back(of_own);
    Id something = code.compare(OpINotEqual, of_each, zero);
    code.when(code.emit(OpLogicalAnd, globals_.bool_type(), {is_first, something}), [&] {
      uint32_t counter = device_.slot_layout().counter(0, plan_.sum_counter(s));
      code.emit(OpFunctionCall, globals_.void_type(),
                {device_.add(), slot,
                 code.binary(OpIAdd, row, globals_.u64(uint64_t{counter} * kWord)),
                 code.binary(OpIMul, of_each, sub_groups)});
    });
  }

  if (!varies && !plan_.meetings) return;
  code.when(code.compare(OpINotEqual, differ, zero), [&] {
    if (!plan_.meetings) take_scratch(code, state, slot, slot_offset);
    Id packed = device_.load_word(code, state, layout.scratch());
    // Work-items that are together on the device and belong together meet as one.
    Id are_one = 0, is_leader = 0;
    if (plan_.reducers.sub_groups) {
      Id sub_group = device_.load_word(code, state, layout.sub_group());
      are_one = device_.is_same_in_sub_group(code, sub_group);
      is_leader = device_.is_first_in_sub_group(code);
    }
    for (uint32_t s = 0; s < plan_.sums.size(); ++s) {
      if (!differing[s]) continue;
      if (are_one) {
        Id most = code.emit(OpGroupUMax, device_.ulong(),
                            {globals_.u32(ScopeSubgroup), kGroupOperationReduce, differing[s]});
        differing[s] = code.select(are_one, code.select(is_leader, most, zero), differing[s]);
      }
      uint32_t lost = device_.slot_layout().counter(0, plan_.sum_lost_counter(s));
      code.emit(OpFunctionCall, globals_.void_type(),
                {device_.visit_sum(), slot, packed, device_.sum_key(code, state, s), differing[s],
                 globals_.u64(uint64_t{lost} * kWord)});
    }
    Id scratch = code.binary(OpBitwiseAnd, packed, globals_.u64(~DeviceCode::kScratchShiftMask));
    Id has_one = code.compare(OpINotEqual, scratch, zero);
    device_.group_barrier(code);
    if (plan_.local_meetings) {
      code.when(has_one, [&] {
        code.emit(OpFunctionCall, globals_.void_type(),
                  {device_.settle_banks(), slot, packed, local, volume});
      });
      device_.group_barrier(code);
    }
    code.when(has_one, [&] {
      code.emit(OpFunctionCall, globals_.void_type(),
                {device_.settle(), slot, packed, local, volume, row});
    });
    device_.group_barrier(code);
    code.when(code.emit(OpLogicalAnd, globals_.bool_type(), {is_first, has_one}), [&] {
      Id taken = code.binary(OpIAdd, scratch, globals_.u64(kScratchTaken * kWord));
      device_.atomic_store(code, slot, taken, zero);
      device_.atomic_store(code, slot, scratch, zero, kReleaseGlobal);
    });
  });
}

}  // namespace pasta::memory
