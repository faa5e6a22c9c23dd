// A program's second self: the same kernels, rewritten so that they count their memory accesses.
//
//   spirv_of() ── instrument() ──▶ clCreateProgramWithIL, clBuildProgram
//
// The program's own build is never touched: its errors, its log and its binaries stay what they
// are. The second self is made when the program makes its first kernel, from what the driver then
// tells about the program.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/opencl/cl_api.h"
#include "backends/opencl/memory_source.h"
#include "device/opencl/plan.h"

namespace pasta::opencl {

// One instrumented kernel function.
class MeasuredFunction {
 public:
  explicit MeasuredFunction(memory::KernelPlan plan);

  const memory::KernelPlan& plan() const { return plan_; }
  int64_t site_id(uint32_t site) const { return site_ids_[site]; }
  // Counts a launch; true when --sample has it measured.
  bool samples(const std::array<size_t, 3>& global);
  // Writes the rows of `line`, the first time that it is called.
  void emit_lines();

 private:
  const memory::KernelPlan plan_;
  std::vector<int64_t> site_ids_;
  std::mutex mutex_;
  std::map<std::array<size_t, 3>, int64_t> launches_;  // by global size
  bool lines_emitted_ = false;
};

// A value that the program gave for a constant of its SPIR-V.
struct SpecializationConstant {
  cl_uint id;
  std::vector<unsigned char> value;
};

class MeasuredProgram {
 public:
  // Builds the second self of `program`, which is built.
  static std::shared_ptr<const MeasuredProgram> make(
      cl_program program, const std::vector<SpecializationConstant>& constants,
      const ProgramParts& parts);
  MeasuredProgram() = default;
  MeasuredProgram(const MeasuredProgram&) = delete;
  MeasuredProgram& operator=(const MeasuredProgram&) = delete;
  ~MeasuredProgram();

  cl_program handle() const { return handle_; }
  // Null when the kernel is not measured: `*why` says why.
  std::shared_ptr<MeasuredFunction> find(const std::string& kernel, Unmeasured* why) const;

 private:
  // Returns false with why_ set.
  bool build(cl_program program, const std::vector<SpecializationConstant>& constants,
             const ProgramParts& parts);

  cl_program handle_ = nullptr;
  std::map<std::string, std::shared_ptr<MeasuredFunction>> functions_;
  std::map<std::string, std::string> skipped_;  // kernel -> reason
  Unmeasured why_;                              // of the program as a whole
};

}  // namespace pasta::opencl
