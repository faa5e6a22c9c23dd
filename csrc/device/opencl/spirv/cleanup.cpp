#include "device/opencl/spirv/cleanup.h"

#include <algorithm>
#include <map>
#include <string>

namespace pasta::spirv {
namespace {

bool is_debug_set(const std::string& name) {
  return name.find("DebugInfo") != std::string::npos || name == "SPIRV.debug" ||
         name.rfind("NonSemantic.", 0) == 0;
}

template <class Predicate>
void drop_if(std::vector<Instruction>& list, Predicate predicate) {
  list.erase(std::remove_if(list.begin(), list.end(), predicate), list.end());
}

// In the globals and in functions.
template <class Predicate>
void drop_instructions(Module& module, Predicate predicate) {
  drop_if(module.section(Section::globals), predicate);
  for (Function& function : module.functions) {
    drop_if(function.head, predicate);
    for (function.function_at = 0; function.head[function.function_at].opcode() != OpFunction;)
      ++function.function_at;
    for (Block& block : function.blocks) drop_if(block.instructions, predicate);
    drop_if(function.tail, predicate);
  }
}

void collect_results(const std::vector<Instruction>& list, std::set<Id>* ids) {
  for (const Instruction& instruction : list) {
    if (Id id = instruction.result()) ids->insert(id);
  }
}

void collect_results(const Function& function, std::set<Id>* ids) {
  collect_results(function.head, ids);
  for (const Block& block : function.blocks) collect_results(block.instructions, ids);
}

}  // namespace

void strip_debug_sets(Module& module) {
  std::set<Id> gone;
  auto& imports = module.section(Section::imports);
  drop_if(imports, [&](const Instruction& import) {
    bool debug = is_debug_set(literal_string(import, 0));
    if (debug) gone.insert(import.result());
    return debug;
  });
  const std::set<Id> sets = gone;
  drop_instructions(module, [&](const Instruction& i) {
    if (i.opcode() != OpExtInst || !sets.count(i.operand(0))) return false;
    gone.insert(i.result());
    return true;
  });
  forget(module, gone);
}

void strip_debug_information(Module& module) {
  strip_debug_sets(module);
  drop_instructions(module, [](const Instruction& i) { return i.is_debug_line(); });
}

void drop_unreachable_functions(Module& module) {
  std::map<Id, Function*> functions;
  for (Function& function : module.functions) functions[function.id()] = &function;
  std::set<Id> reached;
  std::vector<Id> work;
  auto reach = [&](Id id) {
    if (functions.count(id) && reached.insert(id).second) work.push_back(id);
  };
  for (const Instruction& entry : module.section(Section::entry_points)) reach(entry.operand(1));
  // A word that merely looks like the id of a function keeps it: that does no harm.
  auto reach_all = [&](const std::vector<Instruction>& list) {
    for (const Instruction& i : list) {
      for (size_t o = 0; o < i.operand_count(); ++o) reach(i.operand(o));
    }
  };
  for (const Instruction& global : module.section(Section::globals)) {
    if (!global.shape() || global.opcode() == OpVariable || global.opcode() == OpConstantComposite)
      reach_all({global});
  }
  while (!work.empty()) {
    Function* function = functions[work.back()];
    work.pop_back();
    for (const Block& block : function->blocks) reach_all(block.instructions);
  }
  std::set<Id> gone;
  auto unreached = [&](const Function& function) {
    bool drop = !reached.count(function.id());
    if (drop) collect_results(function, &gone);
    return drop;
  };
  module.functions.erase(
      std::remove_if(module.functions.begin(), module.functions.end(), unreached),
      module.functions.end());
  forget(module, gone);
}

void forget(Module& module, const std::set<Id>& ids) {
  if (ids.empty()) return;
  drop_if(module.section(Section::debug), [&](const Instruction& i) {
    return (i.opcode() == OpName || i.opcode() == OpMemberName) && ids.count(i.operand(0));
  });
  auto& annotations = module.section(Section::annotations);
  drop_if(annotations, [&](const Instruction& i) {
    uint16_t op = i.opcode();
    bool has_target = op == OpDecorate || op == OpDecorateId || op == OpDecorateString;
    return has_target && ids.count(i.operand(0));
  });
  for (Instruction& i : annotations) {
    if (i.opcode() != OpGroupDecorate) continue;
    std::vector<uint32_t> kept{i.operand(0)};
    for (size_t o = 1; o < i.operand_count(); ++o) {
      if (!ids.count(i.operand(o))) kept.push_back(i.operand(o));
    }
    i = Instruction::make(OpGroupDecorate, kept);
  }
}

}  // namespace pasta::spirv
