#include "device/opencl/calltree.h"

#include <algorithm>
#include <set>

#include "device/opencl/marks.h"
#include "device/opencl/spirv/cfg.h"

namespace pasta::memory {

using namespace spirv;

namespace {

constexpr size_t kMaxDepth = 200;  // of calls
constexpr size_t kMaxInstances =
    128;  // beyond it, functions are no longer told apart by their arguments
constexpr uint32_t kMaxCounters = 4096;
constexpr size_t kMaxSites = 1 << 16;
constexpr size_t kMaxHitCounters =
    8;  // candidates of a dynamic site that get counters of their own

Space space_of(StorageClass storage) {
  switch (storage) {
    case StorageCrossWorkgroup: return Space::global;
    case StorageUniformConstant: return Space::constant;
    case StorageWorkgroup: return Space::local;
    case StorageGeneric: return Space::generic;
    default: return Space::unknown;
  }
}

void add(CountSum& sum, const CountSum& other) {
  for (const CountTerm& term : other) {
    auto same = std::find_if(sum.begin(), sum.end(),
                             [&](const CountTerm& t) { return t.counter == term.counter; });
    if (same == sum.end()) {
      sum.push_back(term);
    } else {
      same->factor += term.factor;
    }
  }
}

class Builder {
 public:
  Builder(const Source& source, CallTree& tree) : source_(source), tree_(tree) {}

  void build(Id kernel) {
    const Function& function = this->function(kernel);
    if (function.blocks.empty()) throw Malformed("kernel without a body");
    std::vector<Origin> parameters;
    for (const Instruction* parameter : function.parameters())
      parameters.push_back(argument(*parameter));
    tree_.plan.argument_count = static_cast<uint32_t>(parameters.size());
    discover(function, parameters, 0);
    callers_first();
    for (Instance& instance : tree_.instances) {
      count(instance);
      plan_marks(source_, tree_, instance);
    }
    if (tree_.plan.reducers.marks_by_row() && source_.types.address_bytes() == 8)
      plan_rows(source_, tree_);
    resolve_dynamic_sites();
    compare_lanes();
    count_blocks();
    if (tree_.plan.counters > kMaxCounters) throw Unsupported("more blocks than pasta counts");
  }

 private:
  const Function& function(Id id) const {
    auto found = source_.functions.find(id);
    if (found == source_.functions.end()) throw Malformed("call of something that is no function");
    return *found->second;
  }

  // A kernel argument as a root, where it is memory.
  Origin argument(const Instruction& parameter) {
    Origin origin;
    const Instruction& type = source_.definitions.at(parameter.type());
    auto pointer = source_.types.pointer(parameter.type());
    Root root;
    if (pointer && is_shared_storage(pointer->storage)) {
      root.space = space_of(pointer->storage);
    } else if (type.opcode() == OpTypeImage) {
      root.space = Space::image;
    } else if (type.opcode() == OpTypePipe) {
      root.space = Space::pipe;
    } else {
      origin.is_private = pointer.has_value();
      ++next_argument_;
      return origin;
    }
    root.argument = next_argument_++;
    root.id = parameter.result();
    origin.roots = {add_root(root)};
    return origin;
  }

  uint32_t add_root(const Root& root) {
    tree_.plan.roots.push_back(root);
    return static_cast<uint32_t>(tree_.plan.roots.size() - 1);
  }

  uint32_t variable_root(Id id) {
    auto known = variables_.find(id);
    if (known != variables_.end()) return known->second;
    const Instruction& variable = source_.definitions.at(id);
    auto pointer = source_.types.pointer(variable.type());
    if (!pointer) throw Malformed("variable that is no pointer");
    Root root;
    root.space = space_of(pointer->storage);
    root.id = id;
    auto name = source_.names.find(id);
    if (name != source_.names.end()) root.name = name->second;
    Id content = pointer->pointee               ? pointer->pointee
                 : variable.operand_count() > 1 ? variable.operand(1)
                                                : 0;
    if (content) root.bytes = source_.types.size_of(content).value_or(0);
    uint32_t number = add_root(root);
    variables_.emplace(id, number);
    if (pointer->pointee && variable.operand_count() > 1) variables_in(variable.operand(1), 0);
    return number;
  }

  // Variables whose addresses stand in an initializer can be reached through a load of it.
  void variables_in(Id constant, size_t depth) {
    const Instruction* value = source_.definitions.find(constant);
    if (!value || depth > kMaxDepth || !visited_constants_.insert(constant).second) return;
    if (value->opcode() == OpVariable) {
      variable_root(constant);
    } else if (value->opcode() == OpConstantComposite || value->opcode() == OpSpecConstantOp) {
      for (size_t o = 0; o < value->operand_count(); ++o)
        variables_in(value->operand(o), depth + 1);
    }
  }

  uint32_t discover(const Function& function, std::vector<Origin> parameters, size_t depth) {
    if (depth > kMaxDepth) throw Unsupported("calls nested too deeply");
    if (tree_.instances.size() >= kMaxInstances) {
      for (Origin& origin : parameters) origin = {{}, false, true};
    }
    auto key = std::pair(function.id(), parameters);
    auto known = known_.find(key);
    if (known != known_.end()) {
      if (active_.count(known->second)) throw Unsupported("a function that calls itself");
      return known->second;
    }
    if (tree_.instances.size() >= 4 * kMaxInstances)
      throw Unsupported("more functions than pasta follows");
    uint32_t number = static_cast<uint32_t>(tree_.instances.size());
    tree_.instances.emplace_back();
    known_.emplace(std::move(key), number);
    active_.insert(number);

    Instance instance;
    instance.function = &function;
    instance.parameters = std::move(parameters);
    auto classes = classes_.find(&function);
    if (classes == classes_.end()) {
      classes = classes_.emplace(&function, count_classes(source_.definitions, function)).first;
    }
    instance.classes = classes->second;
    Provenance provenance(function, source_.definitions, source_.types, instance.parameters,
                          [this](Id variable) { return variable_root(variable); });
    find_accesses(instance, provenance, depth);
    active_.erase(number);
    tree_.instances[number] = std::move(instance);
    finished_.push_back(number);
    return number;
  }

  void find_accesses(Instance& instance, const Provenance& provenance, size_t depth) {
    uint32_t position = 0;
    for (uint32_t b = 0; b < instance.function->blocks.size(); ++b) {
      const auto& instructions = instance.function->blocks[b].instructions;
      const Instruction* line = nullptr;
      for (uint32_t i = 0; i < instructions.size(); ++i, ++position) {
        const Instruction& instruction = instructions[i];
        // Copies of the function will rename ids: find out now whether that can be done.
        uint16_t op = instruction.opcode();
        instruction.id_positions(
            op == OpSwitch ? switch_literal_words(source_.definitions, instruction) : 0);
        if (instruction.is_debug_line())
          line = instruction.opcode() == OpLine ? &instruction : nullptr;
        if (instruction.opcode() == OpFunctionCall) {
          call(instance, provenance, b, i, depth);
          continue;
        }
        for (const Access& access :
             accesses_of(instruction, source_.definitions, source_.types, source_.opencl_std)) {
          Origin origin = provenance.of(access.pointer);
          bool known_private = origin.is_private && origin.roots.empty() && !origin.unknown;
          if (known_private) continue;
          instance.matters = true;
          uint32_t site = add_site(instance, access, origin, instruction, b, position, line);
          instance.accesses.push_back({b, i, access, site, {}, std::nullopt, kNone});
        }
      }
    }
  }

  void call(Instance& instance, const Provenance& provenance, uint32_t block, uint32_t position,
            size_t depth) {
    const Instruction& instruction = instance.function->blocks[block].instructions[position];
    const Function& callee = function(instruction.operand(0));
    bool is_external = callee.blocks.empty();
    std::vector<Origin> origins;
    for (size_t o = 1; o < instruction.operand_count(); ++o) {
      Id value = instruction.operand(o);
      const Instruction& definition = source_.definitions.at(value);
      auto pointer = source_.types.pointer_of(value);
      uint16_t type = 0;
      if (definition.type()) type = source_.definitions.at(definition.type()).opcode();
      bool is_memory =
          pointer || type == OpTypeImage || type == OpTypePipe || type == OpTypeSampledImage;
      if (is_external && is_memory && !(pointer && !is_shared_storage(pointer->storage))) {
        throw Unsupported("a call of " + name_of(callee.id()) +
                          ", whose body is not in the program, with a pointer");
      }
      origins.push_back(is_memory ? provenance.of(value) : Origin{});
    }
    if (is_external) return;
    if (callee.parameters().size() != origins.size())
      throw Malformed("call with a wrong number of arguments");
    uint32_t number = discover(callee, std::move(origins), depth + 1);
    instance.calls[{block, position}] = number;
    instance.matters |= tree_.instances[number].matters;
  }

  std::string name_of(Id id) const {
    auto name = source_.names.find(id);
    return name == source_.names.end() ? "function " + std::to_string(id) : name->second;
  }

  uint32_t add_site(const Instance& instance, const Access& access, const Origin& origin,
                    const Instruction& instruction, uint32_t block, uint32_t position,
                    const Instruction* line) {
    if (tree_.plan.sites.size() >= kMaxSites) throw Unsupported("more accesses than pasta follows");
    Site site{};
    site.kind = access.kind;
    site.form = access.form;
    site.bytes = access.bytes;
    site.function = name_of(instance.function->id());
    site.block = block;
    site.instruction = position;
    site.opcode = instruction.opcode();
    auto pointer = source_.types.pointer_of(access.pointer);
    site.space = pointer ? space_of(pointer->storage) : Space::unknown;
    if (access.form == AccessForm::opaque) site.space = Space::image;
    if (origin.is_single_root()) {
      site.root = origin.roots[0];
      site.space = tree_.root(site.root).space;
    } else if (is_mapped(site.space) || site.space == Space::generic) {
      site.dynamic = tree_.plan.dynamic_sites++;
      dynamic_origins_.push_back(origin);
    }
    if (line) {
      auto file = source_.strings.find(line->operand(0));
      if (file != source_.strings.end()) site.file = file->second;
      site.line = line->operand(1);
      site.column = line->operand(2);
    }
    tree_.plan.sites.push_back(std::move(site));
    return static_cast<uint32_t>(tree_.plan.sites.size() - 1);
  }

  // Instances are finished callees first; the kernel was started first.
  void callers_first() {
    std::vector<uint32_t> place(tree_.instances.size());
    std::vector<Instance> ordered;
    for (size_t i = finished_.size(); i-- > 0;) {
      place[finished_[i]] = static_cast<uint32_t>(ordered.size());
      ordered.push_back(std::move(tree_.instances[finished_[i]]));
    }
    for (Instance& instance : ordered) {
      for (auto& [at, callee] : instance.calls) callee = place[callee];
    }
    tree_.instances = std::move(ordered);
    tree_.instances.front().entry = {{kWorkItems, 1}};
  }

  // Gives counters to the blocks that need one. Runs over callers before callees.
  void count(Instance& instance) {
    uint32_t classes =
        instance.classes.empty()
            ? 0
            : *std::max_element(instance.classes.begin(), instance.classes.end()) + 1;
    instance.class_counters.assign(classes, kNone);
    auto executions = [&](uint32_t block) {
      uint32_t in_class = instance.classes[block];
      if (in_class == 0) return instance.entry;
      uint32_t& counter = instance.class_counters[in_class];
      if (counter == kNone) counter = tree_.plan.counters++;
      return CountSum{{counter, 1}};
    };
    for (const auto& [at, callee] : instance.calls) {
      Instance& called = tree_.instances[callee];
      if (called.matters) add(called.entry, executions(at.first));
    }
    for (InstanceAccess& found : instance.accesses) {
      Site& site = tree_.plan.sites[found.site];
      site.executions = site.units = executions(found.block);
      if (found.access.form == AccessForm::sized || found.access.form == AccessForm::elements) {
        found.amount = tree_.plan.counters++;
        site.units = {{found.amount, 1}};
        if (found.access.form == AccessForm::elements) site.executions = site.units;
      }
    }
  }

  // Now that all roots are known: which may each dynamic site reach?
  void resolve_dynamic_sites() {
    const auto& roots = tree_.plan.roots;
    for (Site& site : tree_.plan.sites) {
      if (site.dynamic == kNone) continue;
      const Origin& origin = dynamic_origins_[site.dynamic];
      bool anything = origin.unknown || origin.roots.empty();
      site.ranges = anything;
      for (uint32_t r = 0; r < roots.size(); ++r) {
        Space space = roots[r].space;
        bool fits = site.space == Space::generic ? space == Space::global || space == Space::local
                                                 : space == site.space;
        bool possible = anything || std::binary_search(origin.roots.begin(), origin.roots.end(), r);
        if (fits && possible) site.candidates.push_back(r);
      }
      if (site.candidates.size() <= kMaxHitCounters && !site.candidates.empty()) {
        site.first_hit = tree_.plan.counters;
        tree_.plan.counters += static_cast<uint32_t>(site.candidates.size());
      }
    }
  }

  // Sites of local memory come last.
  void compare_lanes() {
    KernelPlan& plan = tree_.plan;
    if (!plan.reducers.compares_lanes()) return;
    for (bool local : {false, true}) {
      for (Site& site : plan.sites) {
        if ((site.space == Space::local) != local) continue;
        auto same = std::find(plan.sums.begin(), plan.sums.end(), site.executions);
        site.sum = static_cast<uint32_t>(same - plan.sums.begin());
        if (same == plan.sums.end()) plan.sums.push_back(site.executions);
        bool meets = site.form == AccessForm::fixed || site.form == AccessForm::elements;
        if (!meets || !(local ? plan.reducers.bank_conflicts : plan.reducers.coalescing)) continue;
        site.meeting = plan.meetings++;
        plan.local_meetings += local;
      }
    }
  }

  void count_blocks() {
    if (!tree_.plan.reducers.blocks) return;
    for (Site& site : tree_.plan.sites) {
      if ((site.root != kNone && is_mapped(site.space)) || site.dynamic != kNone)
        site.block_run = tree_.plan.block_runs++;
    }
  }

  const Source& source_;
  CallTree& tree_;
  std::map<std::pair<Id, std::vector<Origin>>, uint32_t> known_;
  std::set<uint32_t> active_;
  std::map<const Function*, std::vector<uint32_t>> classes_;
  std::vector<uint32_t> finished_;
  std::map<Id, uint32_t> variables_;
  std::set<Id> visited_constants_;
  std::vector<Origin> dynamic_origins_;  // by Site::dynamic
  uint32_t next_argument_ = 0;
};

}  // namespace

Source::Source(const Module& original)
    : module(original), definitions(original), types(original, definitions) {
  for (const Instruction& import : module.section(Section::imports)) {
    if (literal_string(import, 0) == "OpenCL.std") opencl_std = import.result();
  }
  for (const Instruction& i : module.section(Section::debug)) {
    if (i.opcode() == OpName) names[i.operand(0)] = literal_string(i, 1);
    if (i.opcode() == OpString) strings[i.result()] = literal_string(i, 0);
  }
  for (const Function& function : module.functions) functions[function.id()] = &function;
}

CallTree build_call_tree(const Source& source, Id kernel, std::string name,
                         const Reducers& reducers) {
  CallTree tree;
  tree.plan.name = std::move(name);
  tree.plan.reducers = reducers;
  Builder(source, tree).build(kernel);
  return tree;
}

}  // namespace pasta::memory
