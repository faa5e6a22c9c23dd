// Patches on demand: which modules are patched when launches are left out, over the fake Sanitizer. A launch that is
// measured while its module has no patches finds nothing there, and to change code in the callback of a launch into a
// created stream ends the program, for the hang that this is on a GPU.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

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
  {
    std::lock_guard lock(fake::g_gpu.mutex);
    fake::g_gpu.streams[in].push_back([module = data.module] {
      fake::g_gpu.launched.erase(fake::g_gpu.launched.find(module));
    });
  }
  if (!module(reinterpret_cast<uintptr_t>(data.module)).patched) return;
  const uint64_t pc = fake::pc_of(data.module) + 0x40;
  fake::enqueue(in, fake::slot_of(data.hLaunch), [pc](const nvidia::SlotHeader& slot) {
    const auto reduce = slot.site_capacity == 0 ? patched::objects : patched::all;
    warp::run(0xffffffff, [&](uint32_t lane) { reduce(slot, pc, kData + lane * 4, 4, nvidia::AccessKind::load); });
  });
}

Sanitizer_LaunchData begin(uintptr_t number, fake::Stream in, const char* kernel) {
  Sanitizer_LaunchData data = fake::launch_data(in, kernel);
  data.module = module_handle(number);
  data.function = reinterpret_cast<CUfunction>(std::hash<std::string>{}(kernel) + number);
  callback(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN, &data);
  std::lock_guard lock(fake::g_gpu.mutex);
  fake::g_gpu.launched.insert(data.module);
  return data;
}

void end(const Sanitizer_LaunchData& data) {
  run(data.hStream, data);
  callback(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_END, &data);
}

void launch(uintptr_t number, int times = 1, fake::Stream in = kDefaultStream, const char* kernel = "sampled") {
  for (int i = 0; i < times; ++i) end(begin(number, in, kernel));
}

void stream_comes_or_goes(Sanitizer_CallbackIdResource id, fake::Stream in) {
  auto data = zeroed<Sanitizer_ResourceStreamData>();
  data.context = kContext, data.hStream = in;
  callback(SANITIZER_CB_DOMAIN_RESOURCE, id, &data);
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
  fake::g_gpu.launched.insert(node.launchData.module);
  run(stream(1), node.launchData);
  const auto done = zeroed<Sanitizer_GraphLaunchData>();
  callback(SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_LAUNCH_END, &done);
}

constexpr size_t kAny = SIZE_MAX;

// Records `program` with the variables set. Then the accesses must be 32 loads in each of so many launches, or these must
// be counted as lost, by one instruction, with so many causes of losses and rows about patching. No code may have changed
// while launches of it were on their way.
template <class Program>
void recorded(std::vector<std::pair<const char*, const char*>> variables, size_t measured, Program program,
              size_t losses = 0, size_t builds = 0) {
  const fake::Directory directory;
  const std::string output = directory.output();
  for (const auto& [name, value] : variables) setenv(name, value, 1);
  fake::record(output, "objects,sites", "16M", [&] {
    allocate(kData, kMiB);
    program();
    CHECK(fake::g_gpu.dangers == 0);
  });
  for (const auto& [name, value] : variables) unsetenv(name);
  Columns objects = read_table(output, TableId::access_object);
  Columns lost = read_table(output, TableId::loss);
  if (losses == kAny) {
    for (const int64_t records : lost["records"]) measured -= records == kNullI64 ? 0 : static_cast<size_t>(records);
  }
  CHECK(objects["loads"] == std::vector<int64_t>(measured, 32));
  const std::vector<int64_t>& launches = objects["launch_id"];
  CHECK((std::set<int64_t>(launches.begin(), launches.end()).size() == measured));
  Columns lines = read_table(output, TableId::line);
  for (const int64_t pc : lines["pc"]) CHECK(pc == 0x40);
  CHECK((std::set<int64_t>(lines["kernel"].begin(), lines["kernel"].end()).size() == lines["site_id"].size()));
  CHECK(losses == kAny || lost["cause"].size() == losses);
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
    launch(1, kMany - kFew);
    CHECK(!module(1).patched && module(1).removals == 1 && module(1).patchings == 1 && fake::g_gpu.waits == waits + 1);
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

void test_code_stays_as_it_is_in_created_streams() {
  recorded({{"PASTA_SAMPLE", "2:500"}}, 3, [] {
    load(1);
    launch(1, 502, stream(1));
    CHECK(module(1).patchings == 0);
  }, kAny);  // all of the three
}

// What is loaded while there are created streams is patched then, for it may be launched into them. It may lose its
// patches in the default stream.
void test_modules_are_patched_as_they_load_once_streams_are_created() {
  recorded({{"PASTA_SAMPLE", "2:5000"}}, 2 + 2 + 2, [] {
    stream_comes_or_goes(SANITIZER_CBID_RESOURCE_STREAM_CREATED, kDefaultStream);  // as it were
    load(1);
    CHECK(!module(1).patched);
    stream_comes_or_goes(SANITIZER_CBID_RESOURCE_STREAM_CREATED, stream(1));
    load(2), load(3);
    CHECK(!module(1).patched && module(2).patched && module(3).patched);
    launch(2, 2 + kMany, kDefaultStream, "second");
    CHECK(!module(2).patched);
    launch(3, 2 + kMany, stream(1), "third");
    CHECK(module(3).patched);
    wait_for(stream(1));
    stream_comes_or_goes(SANITIZER_CBID_RESOURCE_STREAM_DESTROY_STARTING, stream(1));
    launch(1, 2, kDefaultStream, "first");
    CHECK(module(1).patched);
  });
}

// Theirs tell of a stream otherwise.
void test_streams_of_older_libraries() {
  recorded({{"PASTA_SAMPLE", "2:5000"}}, 0, [] {
    const struct {
      CUcontext context;
      CUstream stream;
      fake::Stream handle;
      uint64_t other;
    } data{kContext, nullptr, stream(1), 5};
    const auto comes_and_goes = [&](int version, bool known) {
      auto& library = const_cast<pasta::sanitizer::Library&>(pasta::sanitizer::library());
      library.version = version, library.version_known = known;
      callback(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_STREAM_CREATED, &data);
      callback(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_STREAM_DESTROY_STARTING, &data);
    };
    comes_and_goes(13000, true);
    load(1);
    CHECK(!module(1).patched);
    comes_and_goes(0, false);  // it is not known which one has gone
    load(2);
    CHECK(module(2).patched);
  });
}

// Later modules are patched as they are loaded, this one with its next launch into the default stream that it can be.
void test_created_streams_keep_patches() {
  recorded({{"PASTA_SAMPLE", "2:5000"}}, 2 + 1, [] {
    load(1);
    launch(1, 1, stream(1));  // is lost
    load(2);
    CHECK(module(2).patched);
    launch(2, 2 + kMany, stream(2), "later");
    wait_for(stream(2));
    launch(2, kMany, kDefaultStream, "later");
    launch(1, 1, kDefaultStream, "later");
    CHECK(!module(1).patched);  // the lost one may be running
    wait_for(stream(1));
    launch(1, kMany, kDefaultStream, "later");
    CHECK(module(1).patched);
    launch(1, 1, stream(1));
    for (uintptr_t number : {1, 2}) CHECK(module(number).patchings == 1 && module(number).removals == 0);
  }, 1);
}

void test_launches_of_modules_without_patches_have_no_slot() {
  recorded({{"PASTA_SAMPLE", "2:50"}}, 1, [] {
    fake::g_gpu.unpatchable.insert(module_handle(1));
    load(1), load(2);
    for (int i = 0; i < 2; ++i) {
      const Sanitizer_LaunchData data = begin(1, kDefaultStream, "sampled");
      CHECK(fake::slot_of(data.hLaunch) == nullptr);
      end(data);
    }
    launch(2, 1, kDefaultStream, "other");
  }, 2);  // of the module, and of two launches
}

// Launches of two streams: neither knows whether the other's have ended, until somebody waits for them.
void test_patches_stay_while_other_streams_may_need_them() {
  recorded({{"PASTA_SAMPLE", "1:1000"}}, 1, [] {
    load(1);
    launch(1);
    launch(1, kMany, stream(2));
    launch(1);
    CHECK(module(1).patched);
    wait_for(stream(2));
    const int waits = fake::g_gpu.waits;
    launch(1);
    CHECK(!module(1).patched && fake::g_gpu.waits == waits + 1);
  });
}

// One thread waits for the stream, and another launches before that is told.
void test_a_wait_of_the_program_does_not_suffice() {
  recorded({{"PASTA_KERNELS", "^wanted$"}}, 1, [] {
    load(1);
    launch(1);
    fake::synchronized(kDefaultStream);
    launch(1, 1, kDefaultStream, "wanted");
  });
}

// The others may wait for what this thread does next, and are not waited for: what cannot be measured is lost.
void test_code_is_not_changed_while_other_streams_may_run_it() {
  recorded({{"PASTA_KERNELS", "^wanted$"}}, 2 + 2, [] {
    load(1);
    fake::g_gpu.stuck.insert(stream(2));
    launch(1, 1, stream(2));
    launch(1, 2, kDefaultStream, "wanted");
    CHECK(!module(1).patched);
    fake::g_gpu.stuck.clear();
    wait_for(stream(2));
    launch(1);  // is not measured, but the next of the wanted must not be lost
    CHECK(module(1).patched);
    launch(1, 2, kDefaultStream, "wanted");
    launch(1, kMany);
    CHECK(module(1).patched && module(1).patchings == 1);
  }, kAny);
}

// Nobody can wait for one that is destroyed before its launches have run.
void test_a_stream_that_is_gone_may_still_run_code() {
  recorded({{"PASTA_KERNELS", "^wanted$"}}, 1 + 1, [] {
    load(1);
    launch(1, 1, stream(1));
    stream_comes_or_goes(SANITIZER_CBID_RESOURCE_STREAM_DESTROY_STARTING, stream(1));
    launch(1, 1, kDefaultStream, "wanted");
    wait_for(stream(1)), wait_for(kDefaultStream);
    CHECK(!module(1).patched);
    auto all = zeroed<Sanitizer_SynchronizeData>();
    all.context = kContext;
    callback(SANITIZER_CB_DOMAIN_SYNCHRONIZE, SANITIZER_CBID_SYNCHRONIZE_CONTEXT_SYNCHRONIZED, &all);
    launch(1, 1, kDefaultStream, "wanted");
  }, kAny);
}

// The kernel before it waits for what the program does after the launch.
void test_a_launch_is_not_kept_waiting() {
  recorded({}, 0, [] {
    Instrumenter instrumenter(Selection::from_environment(), true, kPatience);
    instrumenter.loaded(kContext, module_handle(1));
    const auto begin = [&](fake::Stream in, bool measured) {
      instrumenter.begin(kContext, module_handle(1), in, false, measured);
      return measured;
    };
    begin(kDefaultStream, false);
    fake::g_gpu.stuck.insert(kDefaultStream);
    CHECK(!begin(kDefaultStream, true) && !begin(kDefaultStream, true));
    const int waits = fake::g_gpu.waits;
    fake::g_gpu.stuck.clear();
    CHECK(!begin(kDefaultStream, true));  // nor is it tried again
    CHECK(fake::g_gpu.waits == waits);
    instrumenter.synchronized(kDefaultStream);
    CHECK(begin(kDefaultStream, true) && module(1).patched);
  }, 2);  // of three launches, and that nothing is waited for
}

// A launch holds a lock of the driver that another thread needs to patch the module.
void test_threads_do_not_wait_for_each_other() {
  recorded({}, 0, [] {
    Instrumenter instrumenter(Selection::from_environment(), true, kPatience);
    instrumenter.loaded(kContext, module_handle(1));
    std::mutex driver;
    std::atomic<bool> held{false}, patches{false};
    fake::g_gpu.while_patching = [&] {
      patches = true;
      std::lock_guard lock(driver);
    };
    std::thread launches([&] {
      std::lock_guard lock(driver);
      held = true;
      while (!patches) std::this_thread::yield();
      bool measured = true;
      instrumenter.begin(kContext, module_handle(1), stream(2), false, measured);
      CHECK(!measured);
    });
    while (!held) std::this_thread::yield();
    bool measured = true;
    instrumenter.begin(kContext, module_handle(1), kDefaultStream, false, measured);
    CHECK(measured && module(1).patched);
    launches.join();
    fake::g_gpu.while_patching = nullptr;
  }, 2);  // of one launch, and that nothing is waited for
}

void test_launches_wait_while_code_changes() {
  recorded({}, 0, [] {
    Instrumenter instrumenter(Selection::from_environment(), true);
    instrumenter.loaded(kContext, module_handle(1));
    std::future<void> other;
    fake::g_gpu.while_patching = [&] {
      other = std::async(std::launch::async, [&] {
        bool measured = false;
        instrumenter.begin(kContext, module_handle(1), stream(2), false, measured);
      });
      CHECK(other.wait_for(kPatience) == std::future_status::timeout);
    };
    bool measured = true;
    instrumenter.begin(kContext, module_handle(1), kDefaultStream, false, measured);
    other.wait();
    fake::g_gpu.while_patching = nullptr;
  });
}

// A thread has been given a slot and has not launched yet.
void test_patches_stay_until_a_launch_is_in_its_stream() {
  recorded({{"PASTA_SAMPLE", "1:1000"}}, 2, [] {
    load(1);
    launch(1, 1);
    Sanitizer_LaunchData data;
    std::thread([&] {
      data = begin(1, kDefaultStream, "other");
      std::thread([] {
        launch(1, kMany);
        wait_for(kDefaultStream);
        launch(1);
      }).join();
      CHECK(module(1).patched);
      end(data);
    }).join();
    launch(1, kMany);
    CHECK(!module(1).patched);
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
        for (int i = 0; i < 1000; ++i) {
          launch(t, 1, kDefaultStream, own.c_str());
          launch(9 + t % 2, 1, kDefaultStream, shared.c_str());
          if (i % 16 == 0) wait_for(kDefaultStream);
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    int removals = 0;  // of each module several, unless its patches took 20 ms
    for (uintptr_t t = 1; t <= 8; ++t) removals += module(t).removals;
    CHECK(removals >= 1);
  }, kAny);  // another thread's launch may keep a shared module from getting its patches again
}

}  // namespace

int main() {
  test_patches_come_and_go();
  test_each_kernel_counts_for_its_module();
  test_all_is_patched_when_all_is_measured();
  test_filters_patch_what_they_select();
  test_graphs_keep_patches();
  test_graphs_keep_code_without_patches();
  test_code_stays_as_it_is_in_created_streams();
  test_modules_are_patched_as_they_load_once_streams_are_created();
  test_streams_of_older_libraries();
  test_created_streams_keep_patches();
  test_launches_of_modules_without_patches_have_no_slot();
  test_code_is_not_changed_while_other_streams_may_run_it();
  test_a_stream_that_is_gone_may_still_run_code();
  test_a_launch_is_not_kept_waiting();
  test_threads_do_not_wait_for_each_other();
  test_launches_wait_while_code_changes();
  test_patches_stay_while_other_streams_may_need_them();
  test_a_wait_of_the_program_does_not_suffice();
  test_patches_stay_until_a_launch_is_in_its_stream();
  test_threads_patch_and_remove_at_once();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
