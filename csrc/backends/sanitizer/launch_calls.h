// The calls of the driver in which kernels are launched, and those with which the capture of a CUDA graph begins.
#pragma once

#include <sanitizer.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <optional>

namespace pasta::sanitizer {

// Not those that launch graphs: once there is one, code does not change.
inline constexpr Sanitizer_CallbackId kLaunchCalls[] = {
    SANITIZER_CBID_DRIVER_API_cuLaunchKernel,
    SANITIZER_CBID_DRIVER_API_cuLaunchKernel_ptsz,
    SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx,
    SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx_ptsz,
    SANITIZER_CBID_DRIVER_API_cuLaunchCooperativeKernel,
    SANITIZER_CBID_DRIVER_API_cuLaunchCooperativeKernel_ptsz,
    SANITIZER_CBID_DRIVER_API_cuLaunchCooperativeKernelMultiDevice,
    SANITIZER_CBID_DRIVER_API_cuLaunch,
    SANITIZER_CBID_DRIVER_API_cuLaunchGrid,
    SANITIZER_CBID_DRIVER_API_cuLaunchGridAsync,
};
// The last four by number, for older headers: cuStreamBeginCaptureToGraph and ToCig, each also for a thread's stream.
inline constexpr Sanitizer_CallbackId kCaptureCalls[] = {
    SANITIZER_CBID_DRIVER_API_cuStreamBeginCapture,
    SANITIZER_CBID_DRIVER_API_cuStreamBeginCapture_ptsz,
    SANITIZER_CBID_DRIVER_API_cuStreamBeginCapture_v2,
    SANITIZER_CBID_DRIVER_API_cuStreamBeginCapture_v2_ptsz,
    720, 721, 783, 814,
};

template <class Calls>
bool is_among(const Calls& calls, Sanitizer_CallbackId id) {
  return std::find(std::begin(calls), std::end(calls), id) != std::end(calls);
}

struct LaunchOperands {
  CUfunction kernel;  // or a CUkernel
  std::array<uint32_t, 3> grid;
  bool extended;  // of cuLaunchKernelEx
};
// Null for a call that launches several kernels, or one whose grid is set by another.
std::optional<LaunchOperands> to_launch(Sanitizer_CallbackId id, const void* operands);

}  // namespace pasta::sanitizer
