// Kernel launches, graphs and synchronisation, as the Sanitizer calls back for them.
#include <cstring>
#include <optional>
#include <utility>

#include "backends/sanitizer/begun.h"
#include "backends/sanitizer/collector.h"
#include "backends/sanitizer/library.h"
#include "backends/sanitizer/normalize.h"
#include "session/session.h"

namespace pasta::sanitizer {
namespace {

thread_local std::optional<LaunchChoice> t_choice;  // of the launch that this thread's call is about to make

}  // namespace

std::shared_ptr<Launches> Collector::known_launches(CUcontext context) {
  std::lock_guard lock(mutex_);
  const auto found = launches_.find(context);
  return found == launches_.end() ? nullptr : found->second;
}

std::shared_ptr<Launches> Collector::launches(CUcontext context) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Launches>& launches = launches_[context];
  if (launches == nullptr) {
    tensor_maps_.use(context);
    launches = std::make_shared<Launches>(context, selection_, objects_, tensor_maps_, features_);
  }
  return launches;
}

KernelCode Collector::kernel_code(const Sanitizer_LaunchData& data, const KernelName& name, int patchings) {
  KernelCode code{name.readable_id};
  if (!selection_.tells_instructions()) return code;
  {
    std::lock_guard lock(mutex_);
    const auto known = code_.find(data.function);
    if (known != code_.end() && known->second.patchings == patchings) return known->second.kernel;
  }
  code.symbol = name.mangled_id.value != 0 ? name.mangled_id : name.readable_id;
  code.binary = cubins_.measured(data.module);
  uint64_t size = 0;
  if (library().call.sanitizerGetFunctionPcAndSize(data.module, data.functionName, &code.pc, &size) !=
      SANITIZER_SUCCESS) {
    code.pc = 0;
  }
  std::lock_guard lock(mutex_);
  code_[data.function] = {code, patchings};
  return code;
}

void Collector::set_slot(const Sanitizer_LaunchData& data, Sanitizer_StreamHandle stream, void* slot) {
  const SanitizerResult result =
      library().call.sanitizerSetLaunchCallbackData(data.hLaunch, data.function, stream, slot);
  if (result != SANITIZER_SUCCESS && slot != nullptr) {
    report_loss("sanitizer", "access_object", 1, "a launch was not given its slot: " + describe(result));
  }
}

LaunchChoice Collector::choose(const KernelName& name, const std::array<uint32_t, 3>& grid) {
  if (!select_launch(name.readable)) return {false, false};
  return {true, !selection_.floor && sampler_.take(name.readable_id.value, grid)};
}

void Collector::on_launch(const Sanitizer_LaunchData& data, Sanitizer_StreamHandle stream, const GraphNode& node) {
  const KernelName& name = names_.kernel(data.functionName);
  const bool in_graph = node.node_id != kNullI64;
  const std::optional<LaunchChoice> before = in_graph ? std::nullopt : std::exchange(t_choice, std::nullopt);
  const LaunchChoice choice = before ? *before : choose(name, {data.gridDim_x, data.gridDim_y, data.gridDim_z});
  const Instrumenter::Code code = instrumenter_->begin(data.context, data.module, stream, choice.measured);
  // Without patches nothing asks for a slot. To say that there is none takes a call to the library.
  if (!code.measured && !code.is_plain) set_slot(data, stream, nullptr);
  if (!choice.recorded) return;
  KernelRecord row = to_kernel(data);
  row.queued_ns = now_ns();
  row.thread_id = thread_id();
  row.context_id = names_.context(data.context, data.device);
  row.stream_id = names_.stream(stream, row.context_id, data.device);
  row.op_id = current_op();
  row.launch_id = next_id();
  row.name = name.readable_id;
  row.mangled = name.mangled_id;
  row.graph_id = node.graph_id, row.graph_node_id = node.node_id;
  if (traces(TableId::kernel)) emit(row);

  if (!code.measured) return;
  const std::shared_ptr<Launches> launches = this->launches(data.context);
  uint64_t token = 0;
  void* const slot = launches->begin({row.launch_id, row.queued_ns, kernel_code(data, name, code.patchings), stream,
                                       data.function},
                                      token);
  set_slot(data, stream, slot);
  if (slot != nullptr) Begun::add(launches, token, in_graph);
}

void Collector::on_graph_node(const Sanitizer_GraphNodeLaunchData& data) {
  if (data.isGraphUpload != 0) return;  // nothing runs
  const GraphNode node = names_.node(data.graphExec, data.node);
  switch (data.nodeType) {
    case CU_GRAPH_NODE_TYPE_KERNEL: on_launch(data.launchData, data.launchData.hApiStream, node); break;
    case CU_GRAPH_NODE_TYPE_MEMCPY: on_memcpy(data.memcpyData, node); break;
    case CU_GRAPH_NODE_TYPE_MEMSET: on_memset(data.memsetData, node); break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: on_alloc(data.memAllocData, "graph"); break;
    case CU_GRAPH_NODE_TYPE_MEM_FREE: on_free(data.memFreeAddress); break;
    default: break;
  }
}

void Collector::on_graph(Sanitizer_CallbackId id, const void* data) {
  switch (id) {
    case SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN:
      on_graph_node(*static_cast<const Sanitizer_GraphNodeLaunchData*>(data));
      break;
    case SANITIZER_CBID_GRAPHS_LAUNCH_END: Begun::launched(true); break;
    case SANITIZER_CBID_GRAPHS_GRAPHEXEC_CREATING: instrumenter_->graph_begins(); break;
    case SANITIZER_CBID_GRAPHS_GRAPHEXEC_CREATED:
      if (static_cast<const Sanitizer_GraphExecData*>(data)->containsDeviceGraphLaunches != 0) {
        report_loss("sanitizer", "access_object", kNullI64, "graphs that are launched from the device are not measured",
                    "launch them from the host");
      }
      break;
    default: break;
  }
}

void Collector::on_synchronize(Sanitizer_CallbackId id, const Sanitizer_SynchronizeData& data) {
  Begun::launched(true);
  const std::shared_ptr<Launches> launches = known_launches(data.context);
  if (launches == nullptr) return;
  if (id == SANITIZER_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED) launches->synchronized(data.hStream);
  if (id == SANITIZER_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED) launches->context_synchronized();
}

Collector::Launched Collector::about_to_launch(const Sanitizer_CallbackData& data, const LaunchOperands& launch) {
  const std::pair key(data.context, launch.kernel);
  {
    std::lock_guard lock(mutex_);
    const auto known = kernels_.find(key);
    if (known != kernels_.end() && (known->second.name != nullptr || launch.extended)) return known->second;
  }
  const KernelFacts facts = load(launch.kernel);
  // Of cuLaunchKernelEx the library (13.5) gives no name that can be read.
  const char* const name = facts.name != nullptr || launch.extended ? facts.name : data.symbolName;
  const Launched kernel{facts.module, name == nullptr ? nullptr : &names_.kernel(name)};
  std::lock_guard lock(mutex_);
  return kernels_[key] = kernel;
}

// Here, before the driver begins with it, code may change for the launch.
void Collector::on_launch_call(Sanitizer_CallbackId id, const Sanitizer_CallbackData& data) {
  t_choice.reset();
  if (data.callbackSite == SANITIZER_API_EXIT) return instrumenter_->call_ends();
  if (!instrumenter_->changes_code()) return;
  Launched kernel{};
  if (const std::optional<LaunchOperands> launch = to_launch(id, data.functionParams)) {
    kernel = about_to_launch(data, *launch);
    if (kernel.name != nullptr) t_choice = choose(*kernel.name, launch->grid);
  }
  instrumenter_->call_begins(data.context, kernel.module, t_choice && t_choice->measured);
}

void Collector::on_driver_call(Sanitizer_CallbackId id, const Sanitizer_CallbackData& data) {
  if (is_among(kLaunchCalls, id)) return on_launch_call(id, data);
  if (is_among(kCaptureCalls, id)) return instrumenter_->graph_begins();
  if (data.callbackSite != SANITIZER_API_EXIT || data.functionParams == nullptr) return;
  if (data.functionReturnValue == nullptr ||
      *static_cast<const CUresult*>(data.functionReturnValue) != CUDA_SUCCESS) {
    return;
  }
  const auto add = [this](const auto& operands) {
    if (operands.encoded == nullptr || operands.dimensions == nullptr) return;
    uint64_t encoded[16];
    std::memcpy(encoded, operands.encoded, sizeof(encoded));
    tensor_maps_.add(encoded, to_tensor_map(operands));
  };
  if (id == SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeTiled) {
    add(*static_cast<const EncodeTiledOperands*>(data.functionParams));
  } else if (id == SANITIZER_CBID_DRIVER_API_cuTensorMapEncodeIm2col) {
    add(*static_cast<const EncodeIm2colOperands*>(data.functionParams));
  }
}

}  // namespace pasta::sanitizer
