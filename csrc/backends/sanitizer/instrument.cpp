#include "backends/sanitizer/instrument.h"

#include <vector>

#include "backends/sanitizer/library.h"
#include "session/session.h"

// The fat binary of device/nvidia/patches.cu, embedded by patches.S.
extern "C" const unsigned char pasta_sanitizer_patches[];

namespace pasta::sanitizer {
namespace {

// What a kind of instruction needs to be selected.
enum class For { device_memory, shared, local };

struct Patch {
  Sanitizer_InstructionId instruction;
  const char* name;   // of the kind, for users
  For purpose;
  bool at_each_depth;  // pasta_objects_NAME, pasta_full_NAME and pasta_trace_NAME, else pasta_NAME
  bool at_floor;
};

constexpr Patch kPatches[] = {
    {SANITIZER_INSTRUCTION_GLOBAL_MEMORY_ACCESS, "global", For::device_memory, true, true},
    {SANITIZER_INSTRUCTION_MEMCPY_ASYNC, "memcpy_async", For::device_memory, true, true},
    {SANITIZER_INSTRUCTION_BULK_COPY_GLOBAL_TO_SHARED, "bulk_load", For::device_memory, true, false},
    {SANITIZER_INSTRUCTION_BULK_COPY_SHARED_TO_GLOBAL, "bulk_store", For::device_memory, true, false},
    {SANITIZER_INSTRUCTION_BULK_REDUCTION_SHARED_TO_GLOBAL, "bulk_reduction", For::device_memory, true, false},
#ifdef PASTA_SANITIZER_TMA
    {SANITIZER_INSTRUCTION_TMA_LOAD, "tma_load", For::device_memory, false, false},
    {SANITIZER_INSTRUCTION_TMA_STORE, "tma_store", For::device_memory, false, false},
#endif
    {SANITIZER_INSTRUCTION_SHARED_MEMORY_ACCESS, "shared", For::shared, true, false},
    {SANITIZER_INSTRUCTION_REMOTE_SHARED_MEMORY_ACCESS, "remote_shared", For::shared, false, false},
    {SANITIZER_INSTRUCTION_MATRIX_MEMORY_ACCESS, "matrix", For::shared, false, false},
    {SANITIZER_INSTRUCTION_ASYNC_STORE, "async_store", For::shared, false, false},
    {SANITIZER_INSTRUCTION_ASYNC_REDUCTION, "async_reduction", For::shared, false, false},
    {SANITIZER_INSTRUCTION_LOCAL_MEMORY_ACCESS, "local", For::local, false, false},
};

constexpr const char* kNewer = "install the newest nvidia-cuda-sanitizer-api";

bool wants(const Selection& selection, const Patch& patch) {
  if (selection.floor) return patch.at_floor;
  switch (patch.purpose) {
    case For::device_memory: return true;
    case For::shared: return selection.shared;
    case For::local: return selection.local;
  }
  return false;
}

std::string function_name(const Selection& selection, const Patch& patch) {
  std::string name = "pasta_";
  if (selection.floor) name += "floor_";
  else if (patch.at_each_depth && selection.trace) name += "trace_";
  else if (patch.at_each_depth) name += selection.sites || selection.blocks ? "full_" : "objects_";
  return name + patch.name;
}

}  // namespace

Instrumenter::Instrumenter(const Selection& selection) : selection_(selection) {
#ifndef PASTA_SANITIZER_TMA
  report_loss("sanitizer", "access_object", kNullI64,
              "TMA loads and stores are not counted: pasta was built with a Sanitizer older than 13.3", kNewer);
#endif
}

bool Instrumenter::add_patches(CUcontext context) {
  if (patched_contexts_.count(context) != 0) return true;
  const SanitizerResult result = library().call.sanitizerAddPatches(pasta_sanitizer_patches, context);
  if (result != SANITIZER_SUCCESS) {
    report_loss("sanitizer", "access_object", kNullI64, "patches do not load: " + describe(result),
                "the GPU or the driver may be newer than this version of pasta");
    return false;
  }
  patched_contexts_.insert(context);
  return true;
}

std::string Instrumenter::instrument(CUcontext context, CUmodule module) {
  std::lock_guard lock(mutex_);
  if (!add_patches(context)) return {};
  const Functions& call = library().call;
  std::string covered;
  for (const Patch& patch : kPatches) {
    if (!wants(selection_, patch) || refused_.count(patch.instruction) != 0) continue;
    const std::string name = function_name(selection_, patch);
    const SanitizerResult result = call.sanitizerPatchInstructions(patch.instruction, module, name.c_str());
    if (result == SANITIZER_SUCCESS) {
      covered.append(covered.empty() ? "" : " ").append(patch.name);
      continue;
    }
    refused_.insert(patch.instruction);
    report_loss("sanitizer", "access_object", kNullI64,
                std::string(patch.name) + " instructions cannot be patched: " + describe(result), kNewer);
  }
  const SanitizerResult result = call.sanitizerPatchModule(module);
  if (result == SANITIZER_SUCCESS) return covered;
  report_loss("sanitizer", "access_object", kNullI64, "a module cannot be patched: " + describe(result));
  return {};
}

void Instrumenter::forget(CUcontext context) {
  std::lock_guard lock(mutex_);
  patched_contexts_.erase(context);
}

}  // namespace pasta::sanitizer
