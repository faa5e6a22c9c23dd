#include "backends/sanitizer/launch_calls.h"

namespace pasta::sanitizer {
namespace {

// The operands as the driver hands them to callbacks, as far as they are read: in order, each aligned as C aligns it.
// The headers that have them come with some versions only.
struct Kernel {
  CUfunction kernel;
  unsigned grid_x, grid_y, grid_z;
};
struct KernelEx {
  const CUlaunchConfig* config;
  CUfunction kernel;
};

}  // namespace

std::optional<LaunchOperands> to_launch(Sanitizer_CallbackId id, const void* operands) {
  if (operands == nullptr) return std::nullopt;
  switch (id) {
    case SANITIZER_CBID_DRIVER_API_cuLaunchKernel:
    case SANITIZER_CBID_DRIVER_API_cuLaunchKernel_ptsz:
    case SANITIZER_CBID_DRIVER_API_cuLaunchCooperativeKernel:
    case SANITIZER_CBID_DRIVER_API_cuLaunchCooperativeKernel_ptsz: {
      const auto& launch = *static_cast<const Kernel*>(operands);
      return LaunchOperands{launch.kernel, {launch.grid_x, launch.grid_y, launch.grid_z}, false};
    }
    case SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx:
    case SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx_ptsz: {
      const auto& launch = *static_cast<const KernelEx*>(operands);
      if (launch.config == nullptr) return std::nullopt;
      const CUlaunchConfig& config = *launch.config;
      return LaunchOperands{launch.kernel, {config.gridDimX, config.gridDimY, config.gridDimZ}, true};
    }
    default: return std::nullopt;
  }
}

}  // namespace pasta::sanitizer
