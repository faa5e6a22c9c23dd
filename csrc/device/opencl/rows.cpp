#include "device/opencl/rows.h"

#include <optional>
#include <unordered_map>
#include <vector>

#include "device/opencl/calltree.h"
#include "device/opencl/layout.h"
#include "device/opencl/spirv/cfg.h"

namespace pasta::memory {

using namespace spirv;

bool RowStep::operator==(const RowStep& other) const { return tied() == other.tied(); }
bool RowStep::operator<(const RowStep& other) const { return tied() < other.tied(); }

namespace {

constexpr size_t kMaxBlocks = 1024;  // of a function; in larger ones each work-item marks for itself
constexpr uint32_t kDimensions = 3;
constexpr int64_t kLine = int64_t{1} << kLineShift;

int64_t product(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

int64_t sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

// What is known of a value: nothing yet, a step, or that it has none. It only ever goes on in this order.
class Change {
 public:
  static Change unseen() { return Change(0, {}); }
  static Change step(const RowStep& step) { return Change(1, step); }
  static Change same() { return step({}); }
  static Change any() { return Change(2, {}); }

  bool is_unseen() const { return order_ == 0; }
  bool is_step() const { return order_ == 1; }
  bool is_any() const { return order_ == 2; }
  bool is_same() const { return is_step() && step_.is_same(); }
  const RowStep& step() const { return step_; }

  // What holds where either may; true when that changed anything.
  bool join(const Change& other) {
    if (is_any() || other.is_unseen()) return false;
    if (is_unseen()) {
      *this = other;
      return true;
    }
    if (other.is_step() && other.step_ == step_) return false;
    *this = any();
    return true;
  }

 private:
  Change(int order, const RowStep& step) : order_(order), step_(step) {}
  int order_;
  RowStep step_;
};

// Instructions whose result depends on their operands only.
bool is_pure(uint16_t op) {
  constexpr std::pair<uint16_t, uint16_t> kRanges[] = {
      {77, 84},    // parts of vectors and structs
      {109, 124},  // conversions
      {126, 152},  // arithmetic
      {154, 191},  // comparisons and logic
      {194, 205},  // bits
  };
  for (const auto& [first, last] : kRanges) {
    if (first <= op && op <= last) return true;
  }
  return op == OpAccessChain || op == OpInBoundsAccessChain || op == OpPtrAccessChain ||
         op == OpInBoundsPtrAccessChain || op == OpExtInst;
}

// The values of one function.
class Rows {
 public:
  Rows(const Source& source, const Function& function, uint32_t dimension,
       const std::vector<Change>& parameters, bool together)
      : source_(source),
        function_(function),
        dimension_(dimension),
        branches_(source.definitions, function),
        together_(function.blocks.size(), together) {
    const auto declared = function.parameters();
    for (size_t i = 0; i < declared.size(); ++i)
      changes_.emplace(declared[i]->result(), i < parameters.size() ? parameters[i] : Change::any());
    for (const Instruction& i : source.module.section(Section::annotations)) {
      if (i.opcode() == OpDecorate && i.operand(1) == DecorationBuiltIn)
        builtins_[i.operand(0)] = i.operand(2);
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t b = 0; b < function.blocks.size(); ++b) {
        for (const Instruction& i : function.blocks[b].instructions) {
          if (const Id result = i.result(); result != 0 && i.opcode() != OpLabel)
            changed |= changes_.emplace(result, Change::unseen()).first->second.join(of(i, b));
        }
        changed |= part(b);
      }
    }
  }

  bool together(uint32_t block) const { return together_[block]; }

  Change of(Id id) const {
    if (const auto known = changes_.find(id); known != changes_.end()) return known->second;
    const uint16_t op = source_.definitions.at(id).opcode();
    const bool is_constant = (OpConstantTrue <= op && op <= OpSpecConstantOp) || op == OpVariable;
    const bool is_type = OpTypeVoid <= op && op <= OpTypePipe;
    if (is_constant || is_type || op == OpExtInstImport) return Change::same();
    return op == OpUndef ? Change::any() : Change::unseen();  // of this function, and further down
  }

  // Of the address of an access whose bytes have a fixed number.
  Change of(const Access& access) const {
    const Change pointer = of(access.pointer);
    if (!access.index) return pointer;
    return added(pointer, times(index(access.index), static_cast<int64_t>(access.index_bytes)), 1);
  }

  // Of a value that outlives the narrow one.
  static Change without_narrow(const Change& change) {
    return change.is_step() && change.step().narrow != 0 ? Change::any() : change;
  }

 private:
  // A branch that parts the row parts it in all blocks up to where it meets again.
  bool part(uint32_t block) {
    const Instruction& last = function_.blocks[block].instructions.back();
    const bool branches = last.opcode() == OpBranchConditional || last.opcode() == OpSwitch;
    if (!branches) return false;
    const Change condition = of(last.operand(0));
    if (condition.is_unseen() || condition.is_same()) return false;
    bool changed = false;
    for (uint32_t behind : branches_.blocks_behind(block)) {
      changed |= together_[behind];
      together_[behind] = false;
    }
    return changed;
  }

  uint32_t bits(Id value) const {
    const Instruction& type = source_.definitions.at(source_.definitions.at(value).type());
    if (source_.types.pointer_of(value)) return 64;
    return type.opcode() == OpTypeInt ? type.operand(0) : 0;
  }

  Change of(const Instruction& i, uint32_t block) const {
    if (!together_[block]) return Change::any();  // seen by a part of the row, or at different times
    switch (i.opcode()) {
      case OpLoad: return load(i);
      case OpCompositeExtract: {
        const Instruction& whole = source_.definitions.at(i.operand(0));
        if (const auto builtin = builtin_of(whole); builtin && i.operand_count() == 2)
          return component(*builtin, i.operand(1));
        return pure(i);
      }
      case OpBitcast:
      case OpCopyObject:
      case OpPtrCastToGeneric:
      case OpGenericCastToPtr:
      case OpConvertPtrToU:
      case OpConvertUToPtr:
        return bits(i.operand(0)) == bits(i.result()) && bits(i.result()) != 0 ? of(i.operand(0))
                                                                               : pure(i);
      case OpPhi: return phi(i, block);
      case OpSelect: return select(i);
      case OpIAdd:
      case OpISub: return added(of(i.operand(0)), of(i.operand(1)), i.opcode() == OpISub ? -1 : 1);
      case OpIMul: {
        for (size_t o : {0, 1}) {
          if (const auto factor = source_.types.signed_constant(i.operand(o)))
            return times(of(i.operand(1 - o)), *factor);
        }
        return pure(i);
      }
      case OpShiftLeftLogical: {
        const auto by = source_.types.constant(i.operand(1));
        return by && *by < 63 ? times(of(i.operand(0)), int64_t{1} << *by) : pure(i);
      }
      case OpUConvert:
      case OpSConvert: return converted(i);
      case OpAccessChain:
      case OpInBoundsAccessChain:
      case OpPtrAccessChain:
      case OpInBoundsPtrAccessChain: return chain(i);
      default: return pure(i);
    }
  }

  // The number of the built-in variable that an instruction loads.
  std::optional<uint32_t> builtin_of(const Instruction& i) const {
    if (i.opcode() != OpLoad) return std::nullopt;
    const auto found = builtins_.find(i.operand(0));
    if (found == builtins_.end()) return std::nullopt;
    return found->second;
  }

  // A value that is by one more from one work-item to the next.
  static Change one() {
    RowStep step;
    step.by = 1;
    return Change::step(step);
  }

  Change component(uint32_t builtin, uint32_t number) const {
    switch (builtin) {
      case BuiltInGlobalInvocationId:
      case BuiltInLocalInvocationId: return number == dimension_ ? one() : Change::same();
      case BuiltInWorkgroupSize:
      case BuiltInEnqueuedWorkgroupSize:
      case BuiltInNumWorkgroups:
      case BuiltInWorkgroupId:
      case BuiltInGlobalSize:
      case BuiltInGlobalOffset: return Change::same();
      default: return Change::any();
    }
  }

  Change load(const Instruction& i) const {
    if (const auto builtin = builtin_of(i)) {
      const bool linear = *builtin == BuiltInLocalInvocationIndex || *builtin == BuiltInGlobalLinearId;
      return linear && dimension_ == 0 ? one() : Change::any();
    }
    // Other memory may change between the work-items of a row.
    const auto pointer = source_.types.pointer_of(i.operand(0));
    const bool is_constant = pointer && pointer->storage == StorageUniformConstant;
    return is_constant ? pure(i) : Change::any();
  }

  Change pure(const Instruction& i) const {
    if (!is_pure(i.opcode()) && i.opcode() != OpLoad) return Change::any();
    Change joined = Change::same();
    for (size_t position : i.id_positions(0)) {
      const Id id = i.words()[position];
      if (id == i.result() || id == i.type()) continue;
      // What extended instructions do with pointers is to load.
      if (i.opcode() == OpExtInst && source_.types.pointer_of(id)) return Change::any();
      const Change change = of(id);
      if (change.is_unseen()) return change;
      joined.join(change);
    }
    return joined.is_same() ? joined : Change::any();
  }

  Change phi(const Instruction& i, uint32_t block) const {
    for (uint32_t before : branches_.predecessors(block)) {
      if (!together_[before]) return Change::any();  // parts of the row come from different blocks
    }
    Change joined = Change::unseen();
    for (size_t o = 0; o + 1 < i.operand_count(); o += 2) joined.join(of(i.operand(o)));
    return without_narrow(joined);
  }

  Change select(const Instruction& i) const {
    const Instruction& condition = source_.definitions.at(i.operand(0));
    if (condition.opcode() == OpConstantTrue) return of(i.operand(1));
    if (condition.opcode() == OpConstantFalse) return of(i.operand(2));
    const Change which = of(i.operand(0));
    if (!which.is_same()) return which.is_unseen() ? which : Change::any();
    Change joined = of(i.operand(1));
    joined.join(of(i.operand(2)));
    return joined;
  }

  static Change added(const Change& a, const Change& b, int64_t sign) {
    if (a.is_any() || b.is_any()) return Change::any();
    if (a.is_unseen() || b.is_unseen()) return Change::unseen();
    RowStep left = a.step(), right = b.step();
    right.by = product(right.by, sign);
    if (left.is_same()) return Change::step(right);
    if (right.is_same()) return Change::step(left);
    if (left.narrow != 0 || right.narrow != 0) return Change::any();
    left.by = sum(left.by, right.by);
    return Change::step(left);
  }

  static Change times(const Change& change, int64_t factor) {
    if (!change.is_step()) return change;
    RowStep step = change.step();
    step.by = product(step.by, factor);
    return Change::step(step.by == 0 ? RowStep{} : step);
  }

  Change converted(const Instruction& i) const {
    const uint32_t from = bits(i.operand(0)), to = bits(i.result());
    if (from == 0 || to == 0) return pure(i);  // vectors
    const Change change = of(i.operand(0));
    if (!change.is_step() || change.is_same()) return change;
    if (change.step().narrow != 0) return Change::any();
    return to <= from ? change : extended(i.operand(0), change, i.opcode() == OpSConvert);
  }

  // What is read as a wider integer grows by what the narrow one does, until that wraps around.
  Change extended(Id narrow, const Change& change, bool is_signed) const {
    RowStep step{1, narrow, change.step().by, bits(narrow), is_signed, 0};
    const uint32_t unused = 64 - step.narrow_bits;
    step.narrow_by = static_cast<int64_t>(static_cast<uint64_t>(step.narrow_by) << unused) >> unused;
    return Change::step(step);
  }

  Change chain(const Instruction& i) const {
    const auto chain = source_.types.access_chain(i);
    if (!chain) return pure(i);
    Change address = of(i.operand(0));
    for (const auto& [value, stride] : chain->indices)
      address = added(address, times(index(value), static_cast<int64_t>(stride)), 1);
    return address;
  }

  // Of an integer that an address is counted with: signed.
  Change index(Id id) const {
    const Change change = of(id);
    if (!change.is_step() || change.is_same() || bits(id) == 64) return change;
    return bits(id) == 0 || change.step().narrow != 0 ? Change::any() : extended(id, change, true);
  }

  const Source& source_;
  const Function& function_;
  uint32_t dimension_;
  Branches branches_;
  std::vector<bool> together_;  // by block
  std::unordered_map<Id, Change> changes_;
  std::unordered_map<Id, uint32_t> builtins_;
};

void plan_rows(const Source& source, CallTree& tree, uint32_t dimension) {
  struct Entry {
    std::vector<Change> parameters;
    bool together = true;
  };
  std::vector<Entry> entries(tree.instances.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const Change first = i == 0 ? Change::same() : Change::unseen();
    entries[i].parameters.assign(tree.instances[i].function->parameters().size(), first);
  }
  for (size_t number = 0; number < tree.instances.size(); ++number) {
    Instance& instance = tree.instances[number];
    const Entry& entry = entries[number];
    const bool is_small = instance.function->blocks.size() <= kMaxBlocks;
    const Rows rows(source, *instance.function, dimension, entry.parameters,
                    entry.together && is_small);
    for (const auto& [at, callee] : instance.calls) {
      const Instruction& call = instance.function->blocks[at.first].instructions[at.second];
      Entry& called = entries[callee];
      called.together = called.together && rows.together(at.first);
      for (size_t p = 0; p < called.parameters.size() && p + 1 < call.operand_count(); ++p) {
        called.parameters[p].join(Rows::without_narrow(rows.of(call.operand(p + 1))));
      }
    }
    for (InstanceAccess& found : instance.accesses) {
      const Access& access = found.access;
      Site& site = tree.plan.sites[found.site];
      if (access.form != AccessForm::fixed || site.root == kNone || !is_mapped(site.space) ||
          !found.mark.wanted || found.row || !rows.together(found.block))
        continue;
      const Change change = rows.of(access);
      if (!change.is_step()) continue;
      const int64_t bytes = static_cast<int64_t>(found.mark.bytes ? found.mark.bytes : access.bytes);
      const int64_t step = change.step().bytes();
      // Kernels that do not ask for a higher id have none: rows of one work-item.
      if (dimension > 0 && step == 0) continue;
      // So that no line between two work-items' is left out.
      if (bytes > 0 && -kLine - bytes < step && step < kLine + bytes) {
        found.row = change.step();
        found.row->dimension = dimension;
        site.along_row = tree.plan.rows = true;
      }
    }
  }
}

}  // namespace

void plan_rows(const Source& source, CallTree& tree) {
  for (uint32_t dimension = 0; dimension < kDimensions; ++dimension) plan_rows(source, tree, dimension);
}

}  // namespace pasta::memory
