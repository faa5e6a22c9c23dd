#include "device/opencl/spirv/link.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "device/opencl/spirv/cleanup.h"

namespace pasta::spirv {
namespace {

using Words = std::vector<uint32_t>;

constexpr uint16_t kOpConstantTrue = 41;  // the first of the constants

// Types and constants, which a module declares once each (specification 2.8). A value that a
// specialization may change, or that is no single one, is not the same as another.
bool is_unique(uint16_t opcode) {
  return (opcode >= OpTypeVoid && opcode <= OpTypePipe) ||
         (opcode >= kOpConstantTrue && opcode <= OpConstantNull) ||
         opcode == OpTypeUntypedPointerKHR;
}

bool is_decoration(uint16_t opcode) {
  return opcode == OpDecorate || opcode == OpMemberDecorate || opcode == OpDecorateId ||
         opcode == OpDecorateString || opcode == OpMemberDecorateString;
}

// Appends modules to one, under new ids.
class Merger {
 public:
  explicit Merger(Module& into) : into_(into) {
    const auto attributes = attributes_of(into);
    for (const Instruction& global : into.section(Section::globals)) {
      if (is_unique(global.opcode()))
        known_.emplace(key(global, attributes, global.result()), global.result());
    }
  }

  void append(const Module& module);

 private:
  using Attributes = std::map<Id, std::vector<Words>>;  // decorations, without their target

  static Attributes attributes_of(const Module& module) {
    Attributes found;
    for (const Instruction& i : module.section(Section::annotations)) {
      if (!is_decoration(i.opcode())) continue;
      Words words = i.words();
      words.erase(words.begin() + 1);
      found[i.operand(0)].push_back(std::move(words));
    }
    return found;
  }

  // What makes a type or constant the same as another: all but its result id. `global` has the ids
  // of the new module, `original` is its id in its own.
  static Words key(const Instruction& global, const Attributes& attributes, Id original) {
    Words words = global.words();
    words.erase(words.begin() + (global.type() != 0 ? 2 : 1));
    const auto found = attributes.find(original);
    if (found == attributes.end()) return words;
    for (const Words& attribute : found->second)
      words.insert(words.end(), attribute.begin(), attribute.end());
    return words;
  }

  Id renamed(Id id) {
    if (id == 0) throw Malformed("id 0");
    Id& known = ids_[id];
    if (known == 0) known = into_.new_id();
    return known;
  }

  Instruction renamed(Instruction instruction, uint32_t literal_words = 1) {
    instruction.for_each_id(literal_words, [&](uint32_t& id) { id = renamed(id); });
    return instruction;
  }

  void append_all(const std::vector<Instruction>& from, std::vector<Instruction>& to,
                  const Definitions& definitions) {
    for (const Instruction& i : from) {
      to.push_back(renamed(i, i.opcode() == OpSwitch ? switch_literal_words(definitions, i) : 1));
    }
  }

  // Instructions that say something about a module as a whole.
  void append_missing(const Module& module, Section section) {
    auto& to = into_.section(section);
    for (const Instruction& i : module.section(section)) {
      const auto same = [&](const Instruction& other) { return other.words() == i.words(); };
      if (std::none_of(to.begin(), to.end(), same)) to.push_back(i);
    }
  }

  Module& into_;
  std::map<Words, Id> known_;
  std::unordered_map<Id, Id> ids_;  // of the module that is being appended
};

void Merger::append(const Module& module) {
  ids_.clear();
  const Definitions definitions(module);
  const Attributes attributes = attributes_of(module);
  std::set<Id> merged;  // ids of the module that stand for something which is there already

  const auto& model = module.section(Section::memory_model);
  const auto& own_model = into_.section(Section::memory_model);
  if (model.size() != 1 || own_model.size() != 1 || model[0].words() != own_model[0].words())
    throw Unsupported("programs of different memory models");
  append_missing(module, Section::capabilities);
  append_missing(module, Section::extensions);
  auto& imports = into_.section(Section::imports);
  for (const Instruction& import : module.section(Section::imports)) {
    const std::string name = literal_string(import, 0);
    const auto same = std::find_if(imports.begin(), imports.end(), [&](const Instruction& other) {
      return literal_string(other, 0) == name;
    });
    if (same == imports.end()) {
      imports.push_back(renamed(import));
    } else {
      ids_[import.result()] = same->result();
    }
  }

  auto& globals = into_.section(Section::globals);
  for (const Instruction& global : module.section(Section::globals)) {
    if (!is_unique(global.opcode())) {
      globals.push_back(renamed(global));
      continue;
    }
    // Its own id comes last, so that nothing is wasted on it if the module has the same already.
    const bool is_named_ahead = ids_.count(global.result()) != 0;
    Instruction copy = global;
    copy.for_each_id(1, [&](uint32_t& id) {
      if (id != global.result()) id = renamed(id);
    });
    // A key has decorations with ids of its own module: none that matter to types have any.
    const Words same = key(copy, attributes, global.result());
    const auto known = known_.find(same);
    if (known != known_.end() && !is_named_ahead) {
      ids_[global.result()] = known->second;
      merged.insert(global.result());
      continue;
    }
    globals.push_back(renamed(global));
    known_.emplace(same, globals.back().result());
  }

  append_all(module.section(Section::entry_points), into_.section(Section::entry_points),
             definitions);
  append_all(module.section(Section::execution_modes), into_.section(Section::execution_modes),
             definitions);
  auto& debug = into_.section(Section::debug);
  for (const Instruction& i : module.section(Section::debug)) {
    const bool is_name = i.opcode() == OpName || i.opcode() == OpMemberName;
    if (is_name && merged.count(i.operand(0)) != 0) continue;
    // The source's text, and the id of its name, which is a word like others to the grammar.
    if (i.opcode() == OpSourceContinued) continue;
    debug.push_back(i.opcode() == OpSource
                        ? Instruction::make(OpSource, {i.operand(0), i.operand(1)})
                        : renamed(i));
  }
  auto& annotations = into_.section(Section::annotations);
  for (const Instruction& i : module.section(Section::annotations)) {
    if (!is_decoration(i.opcode()) || merged.count(i.operand(0)) == 0)
      annotations.push_back(renamed(i));
  }

  for (const Function& function : module.functions) {
    Function& copy = into_.functions.emplace_back();
    copy.function_at = function.function_at;
    append_all(function.head, copy.head, definitions);
    for (const Block& block : function.blocks) {
      Block& to = copy.blocks.emplace_back();
      to.label = renamed(block.label);
      append_all(block.instructions, to.instructions, definitions);
    }
    append_all(function.tail, copy.tail, definitions);
  }
}

// The function or variable that a symbol is; `type` is that of the function or the pointer.
struct Symbol {
  Id id = 0;
  Id type = 0;
};

// Puts what is exported in the place of what is imported under the same name.
void resolve(Module& module) {
  const Definitions definitions(module);
  std::map<std::string, Symbol> exported, imported;
  std::unordered_map<Id, Id> replaced;
  struct Linkage {
    std::string name;
    Symbol symbol;
    bool is_import;
  };
  std::vector<Linkage> all;
  for (const Instruction& i : module.section(Section::annotations)) {
    if (i.opcode() != OpDecorate || i.operand(1) != DecorationLinkageAttributes) continue;
    size_t next = 0;
    Linkage linkage;
    linkage.name = literal_string(i, 2, &next);
    linkage.is_import = i.operand(next) == kLinkageImport;
    const Instruction& definition = definitions.at(i.operand(0));
    const bool is_function = definition.opcode() == OpFunction;
    linkage.symbol = {definition.result(),
                      is_function ? definition.operand(1) : definition.type()};
    if (!linkage.is_import) exported.emplace(linkage.name, linkage.symbol);
    all.push_back(std::move(linkage));
  }
  std::set<Id> gone;
  for (const Linkage& linkage : all) {
    if (!linkage.is_import) continue;
    auto target = exported.find(linkage.name);
    if (target == exported.end()) {
      target = imported.emplace(linkage.name, linkage.symbol).first;
      if (target->second.id == linkage.symbol.id) continue;  // the first of its name stays
    }
    if (target->second.type != linkage.symbol.type)
      throw Unsupported(linkage.name + " has different types in the programs that are linked");
    replaced[linkage.symbol.id] = target->second.id;
    gone.insert(linkage.symbol.id);
  }

  auto& functions = module.functions;
  const auto is_replaced = [&](const Function& function) {
    if (gone.count(function.id()) == 0) return false;
    for (const Instruction* parameter : function.parameters()) gone.insert(parameter->result());
    return true;
  };
  functions.erase(std::remove_if(functions.begin(), functions.end(), is_replaced),
                  functions.end());
  auto& globals = module.section(Section::globals);
  globals.erase(
      std::remove_if(globals.begin(), globals.end(),
                     [&](const Instruction& i) { return gone.count(i.result()) != 0; }),
      globals.end());
  forget(module, gone);

  const auto replace = [&](std::vector<Instruction>& list) {
    for (Instruction& i : list) {
      const uint32_t literals =
          i.opcode() == OpSwitch ? switch_literal_words(definitions, i) : 1;
      i.for_each_id(literals, [&](uint32_t& id) {
        if (const auto found = replaced.find(id); found != replaced.end()) id = found->second;
      });
    }
  };
  replace(module.section(Section::entry_points));
  replace(globals);
  for (Function& function : functions) {
    for (Block& block : function.blocks) replace(block.instructions);
  }
  // Specification 2.4: declarations come before definitions.
  std::stable_partition(functions.begin(), functions.end(),
                        [](const Function& function) { return function.blocks.empty(); });
}

// Drivers take functions, and variables, of one name to be one: these get numbers.
void tidy_names(Module& module) {
  std::set<Id> named;
  for (const Function& function : module.functions) named.insert(function.id());
  for (const Instruction& global : module.section(Section::globals)) {
    if (global.opcode() == OpVariable) named.insert(global.result());
  }
  auto& debug = module.section(Section::debug);
  std::set<std::string> names;
  for (Instruction& i : debug) {
    if (i.opcode() != OpName || named.count(i.operand(0)) == 0) continue;
    const std::string given = literal_string(i, 1);
    std::string name = given;
    for (int n = 1; !names.insert(name).second; ++n) name = given + "." + std::to_string(n);
    Words words{i.operand(0)};
    append_string(words, name);
    i = Instruction::make(OpName, words);
  }
  // Specification 2.4: strings and sources, names, the rest.
  const auto place = [](const Instruction& i) {
    const bool is_name = i.opcode() == OpName || i.opcode() == OpMemberName;
    return is_name ? 1 : i.opcode() == OpModuleProcessed ? 2 : 0;
  };
  std::stable_sort(debug.begin(), debug.end(), [&](const Instruction& a, const Instruction& b) {
    return place(a) < place(b);
  });
}

}  // namespace

Module link(std::vector<Module> modules) {
  // Into the newest version, which has all that the others use.
  const auto newest = std::max_element(
      modules.begin(), modules.end(),
      [](const Module& a, const Module& b) { return a.version() < b.version(); });
  Module linked = *newest;
  strip_debug_sets(linked);
  Merger merger(linked);
  for (Module& module : modules) {
    if (&module == &*newest) continue;
    strip_debug_sets(module);
    merger.append(module);
  }
  resolve(linked);
  tidy_names(linked);
  return linked;
}

}  // namespace pasta::spirv
