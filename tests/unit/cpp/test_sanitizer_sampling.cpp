// Patches on demand: which modules are patched when launches are left out, over the fake Sanitizer. A launch that is
// measured while its module has no patches finds nothing there. To change code inside of a launch, or while kernels
// run, ends the program, for the hang that this can be on a GPU.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "fake_driver.h"
#include "fake_program.h"
#include "patched.h"
#include "session/session.h"
#include "shard_rows.h"
#include "warp_emulator.h"

using namespace pasta;
using pasta::sanitizer::Instrumenter, pasta::sanitizer::Selection;
using fake::allocate, fake::callback, fake::kContext, fake::kDefaultStream, fake::kMiB, fake::stream, fake::wait_for,
    fake::zeroed;

namespace {

constexpr uint64_t kData = 64 * kMiB;
// Launches that are left out for which patches stay for sure (instrument.cpp), and after which they are gone unless the
// fake's patching took 49 ms.
constexpr int kFew = 7, kMany = 499;
constexpr std::chrono::milliseconds kPatience{50};

CUmodule module_handle(uintptr_t number) { return reinterpret_cast<CUmodule>(number); }
fake::Gpu::Module& module(uintptr_t number) { return fake::g_gpu.modules[module_handle(number)]; }

void load(uintptr_t number) {
  auto data = zeroed<Sanitizer_ResourceModuleData>();
  data.context = kContext, data.module = module_handle(number);
  callback(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED, &data);
}

// A warp that loads 32 floats, where the code has patches.
void run(fake::Stream in, const Sanitizer_LaunchData& data) {
  std::lock_guard lock(fake::g_gpu.mutex);
  ++fake::g_gpu.kernels;
  if (module(reinterpret_cast<uintptr_t>(data.module)).patched) {
    const uint64_t pc = fake::pc_of(data.module) + 0x40;
    fake::enqueue(in, fake::slot_of(data.hLaunch), [pc](const nvidia::SlotHeader& slot) {
      const auto reduce = slot.site_capacity == 0 ? patched::objects : patched::all;
      warp::run(0xffffffff, [&](uint32_t lane) { reduce(slot, pc, kData + lane * 4, 4, nvidia::AccessKind::load); });
    });
  }
  fake::g_gpu.streams[in].push_back([] { --fake::g_gpu.kernels; });
}

// The handle of a kernel of the module.
uintptr_t handle(uintptr_t number, const char* kernel) {
  static std::mutex mutex;
  static std::map<std::pair<uintptr_t, std::string>, fake::KernelHandle> kernels;
  std::lock_guard lock(mutex);
  const auto [at, fresh] = kernels.try_emplace({number, kernel});
  const bool older_driver = at->first.second == "nameless";
  at->second = {number, older_driver ? nullptr : at->first.second.c_str()};
  return reinterpret_cast<uintptr_t>(&at->second);
}

void driver_call(Sanitizer_CallbackId id, Sanitizer_ApiCallbackSite site, const void* operands = nullptr,
                 const char* kernel = nullptr) {
  auto data = zeroed<Sanitizer_CallbackData>();
  data.callbackSite = site, data.functionParams = operands, data.symbolName = kernel, data.context = kContext;
  callback(SANITIZER_CB_DOMAIN_DRIVER_API, id, &data);
}

// The launch itself, in a call or not.
Sanitizer_LaunchData begin(uintptr_t number, fake::Stream in, const char* kernel) {
  Sanitizer_LaunchData data = fake::launch_data(in, kernel);
  data.module = module_handle(number);
  data.function = reinterpret_cast<CUfunction>(handle(number, kernel) + 1);
  callback(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN, &data);
  return data;
}

void end(const Sanitizer_LaunchData& data) {
  run(data.hStream, data);
  callback(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_END, &data);
}

// By cuLaunchKernelEx, of which the library tells no name.
Sanitizer_LaunchData launch_one(uintptr_t number, fake::Stream in, const char* kernel) {
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  struct {
    const CUlaunchConfig* config;
    uintptr_t kernel;
  } const operands{&config, handle(number, kernel)};
  const auto no_name = reinterpret_cast<const char*>(1);
  driver_call(SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx, SANITIZER_API_ENTER, &operands, no_name);
  const Sanitizer_LaunchData data = begin(number, in, kernel);
  end(data);
  driver_call(SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx, SANITIZER_API_EXIT, &operands, no_name);
  return data;
}

void launch(uintptr_t number, int times = 1, fake::Stream in = kDefaultStream, const char* kernel = "sampled") {
  for (int i = 0; i < times; ++i) launch_one(number, in, kernel);
}

void stream_goes(fake::Stream stream) {
  auto data = zeroed<Sanitizer_ResourceStreamData>();
  data.context = kContext, data.hStream = stream;
  callback(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_STREAM_DESTROY_STARTING, &data);
}

void graph_is_made() {
  const auto data = zeroed<Sanitizer_GraphExecData>();
  callback(SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_GRAPHEXEC_CREATING, &data);
}

void launch_graph(uintptr_t number) {
  auto node = zeroed<Sanitizer_GraphNodeLaunchData>();
  node.graphExec = reinterpret_cast<CUgraphExec>(0x9), node.node = reinterpret_cast<CUgraphNode>(0x8);
  node.nodeType = CU_GRAPH_NODE_TYPE_KERNEL;
  node.launchData = fake::launch_data(stream(1), "node");
  node.launchData.module = module_handle(number);
  callback(SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN, &node);
  run(stream(1), node.launchData);
  const auto done = zeroed<Sanitizer_GraphLaunchData>();
  callback(SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_LAUNCH_END, &done);
}

// Records `program` with the variables set. Then the accesses must be 32 loads in each of so many launches, by one
// instruction, with so many causes of losses and rows about patching.
template <class Program>
void recorded(std::vector<std::pair<const char*, const char*>> variables, size_t measured, Program program,
              size_t losses = 0, size_t builds = 0) {
  const fake::Directory directory;
  const std::string output = directory.output();
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  fake::record(output, "objects,sites", "16M", [&] {
    allocate(kData, kMiB);
    program();
  });
  for (const auto& [name, value] : variables) unsetenv(name);
  Columns objects = read_table(output, TableId::access_object);
  Columns lost = read_table(output, TableId::loss);
  CHECK(objects["loads"] == std::vector<int64_t>(measured, 32));
  const std::vector<int64_t>& launches = objects["launch_id"];
  CHECK((std::set<int64_t>(launches.begin(), launches.end()).size() == measured));
  Columns lines = read_table(output, TableId::line);
  for (const int64_t pc : lines["pc"]) CHECK(pc == 0x40);
  CHECK((std::set<int64_t>(lines["kernel"].begin(), lines["kernel"].end()).size() == lines["site_id"].size()));
  const std::vector<int64_t>& causes = lost["cause"];
  CHECK((std::set<int64_t>(causes.begin(), causes.end()).size() == losses));
  if (builds != 0) CHECK(read_table(output, TableId::build)["log"].size() == builds);
}

// The 1st and 2nd of 1501 launches, then every 500th of the other 1499.
void test_patches_come_and_go() {
  recorded({{"PASTA_SAMPLE", "2:500"}}, 2 + 2, [] {
    load(1), load(2);
    CHECK(fake::g_gpu.modules.empty());
    launch(1, 2 + kFew);
    CHECK(module(1).patched && module(1).removals == 0);
    const int waits = fake::g_gpu.waits;
    launch(1, kMany - kFew - 1);
    CHECK(!module(1).patched && module(1).removals == 1 && module(1).patchings == 1 && fake::g_gpu.waits == waits + 1);
    const int slots_set = fake::g_gpu.slots_set;
    launch(1);  // without patches, so that nothing would ask for a slot
    CHECK(fake::g_gpu.slots_set == slots_set);
    launch(1);  // the 502nd
    CHECK(module(1).patched && module(1).patchings == 2 && fake::g_gpu.waits == waits + 2);
    launch(1, 1501 - 502);
    CHECK(module(1).patchings == 3 && module(1).removals == 3 && !module(1).patched);
    CHECK(module(2).patchings == 0);
  }, 0, 3 + 3);
}

// A second kernel of the module keeps its patches while it is measured itself.
void test_each_kernel_counts_for_its_module() {
  recorded({{"PASTA_SAMPLE", "40:1000"}}, 40 + 40, [] {
    load(1);
    launch(1, 40);
    for (int i = 0; i < 40; ++i) launch(1, 2), launch(1, 1, kDefaultStream, "other");
    CHECK(module(1).patchings == 1 && module(1).removals == 0);
    launch(1, kMany);
    CHECK(module(1).removals == 1);
  });
}

void test_all_is_patched_when_all_is_measured() {
  recorded({}, 30, [] {
    load(1), load(2);
    CHECK(module(1).patched && module(2).patched);
    launch(1, 30, stream(1));
    wait_for(stream(1));
    CHECK(module(1).patchings == 1 && module(1).removals == 0 && module(2).patchings == 1);
  });
}

void test_filters_patch_what_they_select() {
  recorded({{"PASTA_KERNELS", "^wanted$"}}, 2, [] {
    load(1), load(2);
    for (int i = 0; i < 2; ++i) launch(1, 50), launch(2, 1, kDefaultStream, "wanted");
    CHECK(module(1).patchings == 0 && module(2).patchings == 1);
  });
  recorded({{"PASTA_LAUNCH_SKIP", "20"}, {"PASTA_LAUNCH_COUNT", "3"}}, 3, [] {
    load(1);
    launch(1, 20);
    CHECK(module(1).patchings == 0);
    launch(1, 3 + kMany);
    CHECK(module(1).patchings == 1 && module(1).removals == 1);
  });
}

// What is made of a graph may be what its kernels are then.
void test_graphs_keep_patches() {
  recorded({{"PASTA_SAMPLE", "2:500"}}, 3 + 3, [] {
    load(1);
    launch(1, 2);
    graph_is_made();
    load(2);
    CHECK(module(2).patched);
    launch(1, kMany + 1);
    for (int i = 0; i < 600; ++i) launch_graph(2);
    CHECK(module(1).patchings == 1 && module(1).removals == 0 && module(2).patchings == 1 && module(2).removals == 0);
  });
}

void test_graphs_keep_code_without_patches() {
  recorded({{"PASTA_SAMPLE", "2:500"}}, 2, [] {
    load(1), load(2);
    launch(1, 2 + kMany);
    CHECK(module(1).removals == 1);
    wait_for(kDefaultStream);
    graph_is_made();
    for (int i = 0; i < 40; ++i) launch_graph(2);  // two of its launches are lost, and one of the first module's
    launch(1, 500);
    CHECK(module(1).patchings == 1 && module(2).patchings == 0);
  }, 1);
}

// So they may be for a graph that is being captured.
void test_code_stays_as_it_is_from_a_capture_on() {
  recorded({{"PASTA_SAMPLE", "2:500"}}, 2, [] {
    load(1), load(2);
    launch(1, 2);
    driver_call(SANITIZER_CBID_DRIVER_API_cuStreamBeginCapture_v2, SANITIZER_API_ENTER);
    launch(1, kMany);
    CHECK(module(1).patched);
    launch(2, 2, kDefaultStream, "other");  // are lost
    CHECK(module(2).patchings == 0);
  }, 1);
}

void test_patches_come_and_go_in_created_streams() {
  recorded({{"PASTA_SAMPLE", "2:500"}}, 2 + 2, [] {
    load(1);
    for (int i = 0; i < 2 + 2 * kFew; ++i) launch(1, 1, stream(1 + i % 2));
    launch(1, kMany - 2 * kFew, stream(2));
    CHECK(!module(1).patched && module(1).patchings == 1);
    launch(1, 1501 - 2 - kMany, stream(1));
    CHECK(module(1).patchings == 3 && module(1).removals == 3);
  });
}

void test_launches_of_modules_without_patches_have_no_slot() {
  recorded({{"PASTA_SAMPLE", "2:50"}}, 1, [] {
    fake::g_gpu.unpatchable.insert(module_handle(1));
    load(1), load(2);
    for (int i = 0; i < 2; ++i) CHECK(fake::slot_of(launch_one(1, kDefaultStream, "sampled").hLaunch) == nullptr);
    launch(2, 1, kDefaultStream, "other");
  }, 2);  // of the module, and of two launches
}

// Whether it is measured is decided when it begins.
void test_launches_by_other_calls_are_measured_where_there_are_patches() {
  recorded({{"PASTA_SAMPLE", "2:500"}}, 2 + 1, [] {
    load(1), load(2);
    launch(1, 2);
    end(begin(1, kDefaultStream, "other"));
    end(begin(2, kDefaultStream, "lost"));
    launch(1, kMany);
    CHECK(module(1).patched && module(2).patchings == 0);
  }, 1);
}

// These tell no names.
void test_older_drivers() {
  recorded({{"PASTA_SAMPLE", "1:500"}}, 1, [] {
    load(1);
    const char* const name = "nameless";
    struct {
      uintptr_t kernel;
      unsigned grid[3];
    } const operands{handle(1, name), {1, 1, 1}};
    driver_call(SANITIZER_CBID_DRIVER_API_cuLaunchKernel, SANITIZER_API_ENTER, &operands, name);
    end(begin(1, kDefaultStream, name));
    driver_call(SANITIZER_CBID_DRIVER_API_cuLaunchKernel, SANITIZER_API_EXIT, &operands, name);
    launch(1, 1, kDefaultStream, name);  // by cuLaunchKernelEx, whose name is not known before
    CHECK(module(1).patchings == 1);
  });
}

// A launch of the module, by this thread.
struct Call {
  Call(Instrumenter& instrumenter, uintptr_t number, bool wanted, fake::Stream in = kDefaultStream)
      : instrumenter_(instrumenter) {
    instrumenter.call_begins(kContext, module_handle(number), wanted);
    measured = instrumenter.begin(kContext, module_handle(number), in, wanted).measured;
  }
  ~Call() { instrumenter_.call_ends(); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  bool measured;

 private:
  Instrumenter& instrumenter_;
};

bool measures(Instrumenter& instrumenter, uintptr_t number, bool wanted, fake::Stream in = kDefaultStream) {
  return Call(instrumenter, number, wanted, in).measured;
}

// What runs may wait for what the program does next.
void test_a_launch_is_not_kept_waiting() {
  recorded({}, 0, [] {
    Instrumenter instrumenter(Selection::from_environment(), true, kPatience);
    instrumenter.loaded(kContext, module_handle(1)), instrumenter.loaded(kContext, module_handle(2));
    measures(instrumenter, 2, false, stream(2));
    fake::g_gpu.stuck.insert(stream(2));
    CHECK(!measures(instrumenter, 1, true) && !measures(instrumenter, 1, true));
    fake::g_gpu.stuck.clear();
    CHECK(measures(instrumenter, 1, true) && module(1).patchings == 1);
    fake::g_gpu.stuck.insert(stream(2));
    for (int i = 0; i < kMany; ++i) measures(instrumenter, 1, false);
    CHECK(module(1).removals == 0 && measures(instrumenter, 1, true));
  }, 2);  // of two launches, and that nothing is waited for
}

// What a copy or a fill waits for runs, too; and what is in a stream that has been destroyed.
void test_all_streams_are_waited_for() {
  recorded({{"PASTA_SAMPLE", "1"}}, 1, [] {
    load(1);
    auto copy = zeroed<Sanitizer_MemcpyData>();
    copy.apiContext = kContext, copy.hApiStream = stream(1);
    callback(SANITIZER_CB_DOMAIN_MEMCPY, SANITIZER_CBID_MEMCPY_STARTING, &copy);
    auto fill = zeroed<Sanitizer_MemsetData>();
    fill.context = kContext, fill.hStream = stream(2);
    callback(SANITIZER_CB_DOMAIN_MEMSET, SANITIZER_CBID_MEMSET_STARTING, &fill);
    const int waits = fake::g_gpu.waits;
    launch(1);
    CHECK(fake::g_gpu.waits == waits + 2);
  });
  recorded({}, 0, [] {
    Instrumenter instrumenter(Selection::from_environment(), true, kPatience);
    instrumenter.loaded(kContext, module_handle(1));
    measures(instrumenter, 1, false, stream(1));
    fake::g_gpu.stuck.insert(stream(1));
    instrumenter.stream_destroyed(kContext, stream(1));
    CHECK(!measures(instrumenter, 1, true));
    fake::g_gpu.stuck.clear();
    fake::run(stream(1));
    CHECK(measures(instrumenter, 1, true));
    const int waits = fake::g_gpu.waits;
    instrumenter.stream_destroyed(kContext, stream(2));  // there was nothing in it
    CHECK(fake::g_gpu.waits == waits);
  }, 2);
}

// Older libraries tell of a stream otherwise.
void test_a_stream_that_goes_is_left_behind() {
  recorded({{"PASTA_SAMPLE", "2:5000"}}, 2, [] {
    load(1);
    launch(1, 1, stream(1)), launch(1, 1, stream(2));
    const struct {
      CUcontext context;
      CUstream stream;
      fake::Stream handle;
      uint64_t other;
    } data{kContext, nullptr, stream(1), 5};
    const auto goes = [&](int version, bool known) {
      auto& library = const_cast<pasta::sanitizer::Library&>(pasta::sanitizer::library());
      library.version = version, library.version_known = known;
      callback(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_STREAM_DESTROY_STARTING, &data);
    };
    const int waits = fake::g_gpu.waits;
    stream_goes(stream(2));
    CHECK(fake::g_gpu.waits == waits + 1);
    goes(0, false);
    CHECK(fake::g_gpu.waits == waits + 1);
    goes(13000, true);
    CHECK(fake::g_gpu.waits == waits + 2);
  });
}

// The library waits for them, which may wait in turn: for a place in a stream, say.
void test_launches_of_other_threads_are_over_before_code_changes() {
  recorded({}, 0, [] {
    Instrumenter instrumenter(Selection::from_environment(), true, kPatience);
    instrumenter.loaded(kContext, module_handle(1));
    std::promise<void> in_a_call, tried;
    std::thread other([&] {
      const Call call(instrumenter, 1, false);
      in_a_call.set_value();
      tried.get_future().wait();
    });
    in_a_call.get_future().wait();
    CHECK(!measures(instrumenter, 1, true) && module(1).patchings == 0);
    tried.set_value();
    other.join();
    CHECK(measures(instrumenter, 1, true));
  }, 2);
}

void test_launches_wait_while_code_changes() {
  recorded({}, 0, [] {
    Instrumenter instrumenter(Selection::from_environment(), true);
    instrumenter.loaded(kContext, module_handle(1));
    std::future<void> other;
    fake::g_gpu.while_patching = [&] {
      other = std::async(std::launch::async, [&] { measures(instrumenter, 1, false, stream(2)); });
      CHECK(other.wait_for(kPatience) == std::future_status::timeout);
    };
    measures(instrumenter, 1, true);
    other.wait();
    fake::g_gpu.while_patching = nullptr;
  });
}

// Each of eight kernels in a module of its own and two that all share.
void test_threads_patch_and_remove_at_once() {
  recorded({{"PASTA_SAMPLE", "3:200"}}, 8 * 2 * (3 + 4), [] {
    for (uintptr_t number = 1; number <= 10; ++number) load(number);
    std::vector<std::thread> workers;
    for (uintptr_t t = 1; t <= 8; ++t) {
      workers.emplace_back([t] {
        const std::string own = "own" + std::to_string(t), shared = "shared" + std::to_string(t);
        const fake::Stream in = t % 2 == 0 ? kDefaultStream : stream(static_cast<int>(t));
        for (int i = 0; i < 1000; ++i) {
          launch(t, 1, in, own.c_str());
          launch(9 + t % 2, 1, in, shared.c_str());
          if (i % 16 == 0) wait_for(in);
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    int removals = 0;  // of each module several, unless its patches took 20 ms
    for (uintptr_t t = 1; t <= 8; ++t) removals += module(t).removals;
    CHECK(removals >= 1);
  });
}

}  // namespace

int main() {
  test_patches_come_and_go();
  test_each_kernel_counts_for_its_module();
  test_all_is_patched_when_all_is_measured();
  test_filters_patch_what_they_select();
  test_graphs_keep_patches();
  test_graphs_keep_code_without_patches();
  test_code_stays_as_it_is_from_a_capture_on();
  test_patches_come_and_go_in_created_streams();
  test_launches_of_modules_without_patches_have_no_slot();
  test_launches_by_other_calls_are_measured_where_there_are_patches();
  test_older_drivers();
  test_a_launch_is_not_kept_waiting();
  test_all_streams_are_waited_for();
  test_a_stream_that_goes_is_left_behind();
  test_launches_of_other_threads_are_over_before_code_changes();
  test_launches_wait_while_code_changes();
  test_threads_patch_and_remove_at_once();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
