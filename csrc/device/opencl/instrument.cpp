#include "device/opencl/instrument.h"

#include <exception>
#include <map>
#include <set>

#include "device/opencl/calltree.h"
#include "device/opencl/kernel_writer.h"
#include "device/opencl/spirv/cleanup.h"

namespace pasta::memory {

using namespace spirv;

namespace {

struct EntryPoint {
  Id function;
  std::string name;
};

std::vector<EntryPoint> kernels_of(const Module& module) {
  std::vector<EntryPoint> found;
  for (const Instruction& entry : module.section(Section::entry_points)) {
    if (entry.operand(0) == kExecutionModelKernel)
      found.push_back({entry.operand(1), literal_string(entry, 2)});
  }
  return found;
}

// The translator keeps types and qualifiers of kernel arguments in strings like
// "kernel_arg_type.NAME.float*,int,": without entries for the hidden arguments the lists would be
// too short.
void extend_argument_strings(Module& module, const std::string& kernel) {
  for (Instruction& string : module.section(Section::debug)) {
    if (string.opcode() != OpString) continue;
    std::string text = literal_string(string, 0);
    if (text.rfind("kernel_arg_type." + kernel + ".", 0) == 0) {
      text += "uchar*,ulong,";
    } else if (text.rfind("kernel_arg_type_qual." + kernel + ".", 0) == 0) {
      text += ",,";
    } else {
      continue;
    }
    std::vector<uint32_t> words;
    append_string(words, text);
    string = Instruction::make(OpString, 0, string.result(), words);
  }
}

// What is added calls work-item functions of OpenCL C 2.0. Drivers (Intel's CPU runtime) pick their
// library of such functions by the language version that the module names.
void raise_language_version(Module& module) {
  constexpr uint32_t kOpenClC = 3, kVersion = 200000;
  auto& debug = module.section(Section::debug);
  bool is_named = false;
  for (Instruction& source : debug) {
    if (source.opcode() != OpSource) continue;
    is_named = true;
    if (source.operand(0) == kOpenClC && source.operand(1) < kVersion)
      source.set_operand(1, kVersion);
  }
  if (!is_named) debug.insert(debug.begin(), Instruction::make(OpSource, {kOpenClC, kVersion}));
}

void extend_interfaces(Globals& globals, const std::set<Id>& instrumented) {
  for (Instruction& entry : globals.module().section(Section::entry_points)) {
    if (!instrumented.count(entry.operand(1))) continue;
    size_t interface = 0;
    literal_string(entry, 2, &interface);
    for (Id variable : globals.interface()) {
      bool listed = false;
      for (size_t o = interface; o < entry.operand_count(); ++o)
        listed |= entry.operand(o) == variable;
      if (!listed) entry.append(variable);
    }
  }
}

std::set<Id> ids_of_body(const Function& function) {
  std::set<Id> ids;
  for (const Block& block : function.blocks) {
    for (const Instruction& instruction : block.instructions) {
      if (Id id = instruction.result()) ids.insert(id);
    }
  }
  return ids;
}

void refuse_called_kernels(const Source& source, const std::vector<EntryPoint>& kernels) {
  std::set<Id> entries;
  for (const EntryPoint& kernel : kernels) entries.insert(kernel.function);
  for (const Function& function : source.module.functions) {
    for (const Block& block : function.blocks) {
      for (const Instruction& i : block.instructions) {
        if (i.opcode() == OpFunctionCall && entries.count(i.operand(0)))
          throw Malformed("call of a kernel");
      }
    }
  }
}

// A variable at program scope that can be written and that the kernel, or anything it calls, refers
// to; 0: none.
Id variable_of(const Source& source, Id kernel) {
  std::set<Id> constant;
  for (const Instruction& i : source.module.section(Section::annotations)) {
    if (i.opcode() == OpDecorate && i.operand(1) == DecorationConstant)
      constant.insert(i.operand(0));
  }
  std::set<Id> seen{kernel};
  std::vector<Id> work{kernel};
  const auto visit = [&](const Instruction& instruction) {
    const uint32_t literals = instruction.opcode() == OpSwitch
                                  ? switch_literal_words(source.definitions, instruction)
                                  : 1;
    for (size_t position : instruction.id_positions(literals)) {
      const Id id = instruction.words()[position];
      if (seen.insert(id).second) work.push_back(id);
    }
  };
  while (!work.empty()) {
    const Id id = work.back();
    work.pop_back();
    if (const auto function = source.functions.find(id); function != source.functions.end()) {
      for (const Block& block : function->second->blocks) {
        for (const Instruction& instruction : block.instructions) visit(instruction);
      }
    } else if (const Instruction* definition = source.definitions.find(id)) {
      if (definition->opcode() == OpVariable && !constant.count(id) &&
          definition->operand(0) == StorageCrossWorkgroup) {
        return id;
      }
      visit(*definition);
    }
  }
  return 0;
}

Instrumented rewrite(const uint32_t* words, size_t count, const InstrumentOptions& options) {
  Instrumented result;
  Module original = Module::parse(words, count);
  Source source(original);
  std::vector<EntryPoint> kernels = kernels_of(original);
  refuse_called_kernels(source, kernels);

  Module module = original;
  Globals globals(module);
  globals.capability(CapabilityInt8);
  globals.capability(CapabilityInt64);
  std::map<Id, KernelPlan> done;
  std::set<Id> instrumented;
  for (const EntryPoint& kernel : kernels) {
    if (options.wants && !options.wants(kernel.name)) continue;
    auto known = done.find(kernel.function);
    if (known != done.end()) {
      result.kernels.push_back(known->second);
      result.kernels.back().name = kernel.name;
      continue;
    }
    try {
      const Id variable = options.own_variables ? 0 : variable_of(source, kernel.function);
      if (variable != 0) {
        const auto name = source.names.find(variable);
        throw Unsupported("it uses the program-scope variable " +
                          (name != source.names.end() ? name->second : std::to_string(variable)) +
                          ", of which the program's own kernels have another copy");
      }
      CallTree tree = build_call_tree(source, kernel.function, kernel.name, options.reducers);
      std::vector<Function> written = KernelWriter(source, tree, globals).write();
      for (Function& function : module.functions) {
        if (function.id() != kernel.function) continue;
        forget(module, ids_of_body(function));
        function = std::move(written.front());
      }
      module.functions.insert(module.functions.end(), std::make_move_iterator(written.begin() + 1),
                              std::make_move_iterator(written.end()));
      done.emplace(kernel.function, tree.plan);
      instrumented.insert(kernel.function);
      result.kernels.push_back(std::move(tree.plan));
    } catch (const Unsupported& reason) {
      result.skipped.push_back({kernel.name, reason.what()});
    }
  }
  for (const KernelPlan& plan : result.kernels) extend_argument_strings(module, plan.name);
  extend_interfaces(globals, instrumented);
  if (!instrumented.empty()) {
    raise_language_version(module);
    strip_debug_information(module);
    drop_unreachable_functions(module);
  }
  result.words = module.write();
  return result;
}

}  // namespace

Instrumented instrument(const uint32_t* words, size_t count, const InstrumentOptions& options) {
  try {
    return rewrite(words, count, options);
  } catch (const std::exception& reason) {
    Instrumented refused;
    refused.error = reason.what();
    return refused;
  }
}

}  // namespace pasta::memory
