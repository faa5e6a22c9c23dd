// The whole host side of the memory pass over a fake Sanitizer: callbacks in, rows in the shard out. Kernels are the
// real reducers, run on the CPU when their stream moves.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <numeric>
#include <thread>

#include "backends/sanitizer/collector.h"
#include "device/nvidia/full_reducer.h"
#include "device/nvidia/trace_writer.h"
#include "fake_sanitizer.h"
#include "session/memory_parts.h"
#include "session/session.h"
#include "shard_rows.h"
#include "warp_emulator.h"

using namespace pasta;
using sanitizer::Collector;

namespace {

constexpr uint64_t kMiB = 1 << 20;
const CUcontext kContext = reinterpret_cast<CUcontext>(0xc0);

void callback(Sanitizer_CallbackDomain domain, Sanitizer_CallbackId id, const void* data) {
  Collector::instance().on_callback(domain, id, data);
}

fake::Stream stream(int number) { return reinterpret_cast<fake::Stream>(0x500 + number); }

template <class Data>
Data zeroed() {
  Data data;
  std::memset(&data, 0, sizeof(data));
  return data;
}

void memory(Sanitizer_CallbackIdResource id, uint64_t address, uint64_t bytes) {
  auto data = zeroed<Sanitizer_ResourceMemoryData>();
  data.address = address, data.size = bytes, data.context = kContext;
  callback(SANITIZER_CB_DOMAIN_RESOURCE, id, &data);
}
void allocate(uint64_t address, uint64_t bytes) {
  memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_ALLOC, address, bytes);
}
void release(uint64_t address) { memory(SANITIZER_CBID_RESOURCE_DEVICE_MEMORY_FREE, address, 0); }

// One warp that loads 32 floats from `address`.
void enqueue_kernel(fake::Stream in, void* slot, uint64_t address) {
  std::lock_guard lock(fake::g_gpu.mutex);
  fake::g_gpu.streams[in].push_back([=] {
    if (slot == nullptr) return;
    const auto& header = *static_cast<const nvidia::SlotHeader*>(slot);
    const auto reduce =
        header.site_capacity == 0 ? nvidia::reduce_objects : nvidia::reduce_all;  // as the patches
    warp::run(0xffffffff, [&](uint32_t lane) {
      reduce(header, 0xffffffff, 0x1040, address + lane * 4, 4, nvidia::AccessKind::load);
      if ((header.features & nvidia::kTrace) != 0) {
        nvidia::trace_warp(header, 0xffffffff, 0x1040, nvidia::MemorySpace::global, address + lane * 4, 4,
                           nvidia::AccessKind::load);
      }
    });
  });
}

Sanitizer_LaunchData launch_data(fake::Stream in, const char* name) {
  static std::atomic<uintptr_t> launches{1};
  auto data = zeroed<Sanitizer_LaunchData>();
  data.context = kContext, data.hStream = data.hApiStream = in, data.functionName = name;
  data.gridDim_x = data.gridDim_y = data.gridDim_z = 1, data.blockDim_x = 32;
  data.hLaunch = reinterpret_cast<Sanitizer_LaunchHandle>(launches.fetch_add(1));
  return data;
}

void launch(fake::Stream in, uint64_t address, const char* name = "_Z4loadPf") {
  const Sanitizer_LaunchData data = launch_data(in, name);
  callback(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN, &data);
  enqueue_kernel(in, fake::slot_of(data.hLaunch), address);
  callback(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_END, &data);
}

void wait_for(fake::Stream of) {
  fake::run(of);
  auto data = zeroed<Sanitizer_SynchronizeData>();
  data.context = kContext, data.hStream = of;
  callback(SANITIZER_CB_DOMAIN_SYNCHRONIZE, SANITIZER_CBID_SYNCHRONIZE_STREAM_SYNCHRONIZED, &data);
}

int64_t sum(const Columns& columns, const char* name) {
  const auto column = columns.find(name);
  return column == columns.end() ? 0 : std::accumulate(column->second.begin(), column->second.end(), int64_t{0});
}
size_t rows(const Columns& columns, const char* name) {
  const auto column = columns.find(name);
  return column == columns.end() ? 0 : column->second.size();
}

// Runs `program` in a process of its own, recorded, and `check` on the directory that it leaves.
template <class Program, class Check>
void recorded(const char* memory, const char* buffer, Program program, Check check) {
  std::string directory = std::filesystem::temp_directory_path() / "pasta-test-XXXXXX";
  CHECK(mkdtemp(directory.data()) != nullptr);
  const std::string output = directory + "/t.pasta";
  const pid_t child = fork();
  if (child == 0) {
    setenv("PASTA_OUTPUT", output.c_str(), 1);
    setenv("PASTA_MEMORY", memory, 1);
    setenv("PASTA_MEMORY_BUFFER", buffer, 1);
    setenv("PASTA_SANITIZER_PATH", "/nonexistent", 1);
    fake::install();
    CHECK(Collector::instance().start());
    program();
    pasta::flush(2'000'000'000);
    _exit(g_failures == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  check(output);
  std::filesystem::remove_all(directory);
}

void test_launches_in_two_streams() {
  recorded(
      "objects,sites,blocks", "16M",
      [] {
        allocate(64 * kMiB, kMiB);
        launch(stream(1), 64 * kMiB);
        allocate(80 * kMiB, kMiB);  // the second stream needs the new table, the first launch keeps its own
        launch(stream(2), 80 * kMiB);
        launch(stream(1), 80 * kMiB + 4096);
        release(64 * kMiB);
        launch(stream(2), 64 * kMiB);  // nobody's now
        wait_for(stream(2));
        wait_for(stream(1));
      },
      [](const std::string& output) {
        Columns objects = read_table(output, TableId::access_object);
        CHECK(rows(objects, "loads") == 4 && sum(objects, "loads") == 128 && sum(objects, "load_bytes") == 512);
        int unknown = 0;
        for (const int64_t id : objects["object_id"]) unknown += id == kNullI64;
        CHECK(unknown == 1);
        Columns kernels = read_table(output, TableId::kernel);
        CHECK(rows(kernels, "launch_id") == 4 && kernels["block_x"][0] == 32);
        CHECK(kernels["start_ns"][0] == kNullI64 && kernels["queued_ns"][0] != kNullI64);
        Columns allocs = read_table(output, TableId::alloc);
        CHECK(rows(allocs, "object_id") == 3 && allocs["object_id"][0] == allocs["object_id"][2]);
        Columns sites = read_table(output, TableId::access_site);
        CHECK(sum(sites, "executions") == 4 && sum(sites, "sectors") == 16);
        Columns lines = read_table(output, TableId::line);  // one instruction of one kernel
        CHECK(rows(lines, "site_id") == 1 && lines["pc"][0] == 0x40);
        CHECK(sites["site_id"][0] == lines["site_id"][0]);
        CHECK(sum(read_table(output, TableId::access_block), "accesses") == 96);
        CHECK(rows(read_table(output, TableId::loss), "cause") == 0);
      });
}

// What an allocator gives out, gives out again and takes back while launches are in the stream.
void test_tensors_of_the_moment_of_the_launch() {
  recorded(
      "objects", "16M",
      [] {
        const MemoryParts& parts = *memory_parts.load();
        allocate(64 * kMiB, 2 * kMiB);
        const int64_t first = parts.made(64 * kMiB, 512);
        const int64_t second = parts.made(64 * kMiB + 4096, 512);
        launch(stream(1), 64 * kMiB);
        launch(stream(1), 64 * kMiB + 4096);
        CHECK(parts.gone(64 * kMiB) == first);  // its kernel has not run yet
        const int64_t third = parts.made(64 * kMiB, 1024);
        launch(stream(1), 64 * kMiB + 512);
        CHECK(parts.gone(64 * kMiB) == third && parts.gone(64 * kMiB + 4096) == second);
        launch(stream(1), 64 * kMiB);
        CHECK(third != first && parts.gone(64 * kMiB) == kNullI64);
        wait_for(stream(1));
      },
      [](const std::string& output) {
        Columns objects = read_table(output, TableId::access_object);
        const std::vector<int64_t>& tensors = objects["tensor_id"];
        CHECK(tensors.size() == 4 && tensors[3] == kNullI64);
        CHECK((std::set<int64_t>(tensors.begin(), tensors.end()).size() == 4));
        CHECK((std::set<int64_t>(objects["object_id"].begin(), objects["object_id"].end()).size() == 1));
        CHECK(sum(objects, "loads") == 4 * 32 && objects["first_offset"][2] == 512);
        CHECK(rows(read_table(output, TableId::loss), "cause") == 0);
      });
}

// Far more launches than slots, and no synchronisation of the program's own.
void test_slots_are_used_again() {
  recorded(
      "objects", "1M",
      [] {
        allocate(64 * kMiB, 8 * kMiB);
        for (int i = 0; i < 3000; ++i) launch(stream(1), 64 * kMiB);
        CHECK(fake::g_gpu.allocated < 9 * kMiB + kMiB / 4);  // 8 MiB of it on the host
      },
      [](const std::string& output) {
        Columns objects = read_table(output, TableId::access_object);
        CHECK(rows(objects, "loads") == 3000 && sum(objects, "loads") == 3000 * 32);
        CHECK(sum(objects, "pages_4k") == 3000);  // slots were clean again
        CHECK(rows(read_table(output, TableId::loss), "cause") == 0);
      });
}

// One warp a launch: one row of the trace each, beside what is reduced.
void test_trace_keeps_each_access() {
  recorded(
      "trace,objects", "1M",
      [] {
        allocate(64 * kMiB, kMiB);
        for (int i = 0; i < 100; ++i) launch(stream(1), 64 * kMiB + 128 * static_cast<uint64_t>(i));
        wait_for(stream(1));
      },
      [](const std::string& output) {
        Columns rows_of = read_table(output, TableId::access);
        CHECK(rows(rows_of, "address") == 100 && rows(read_table(output, TableId::access_object), "loads") == 100);
        std::set<int64_t> addresses(rows_of["address"].begin(), rows_of["address"].end());
        CHECK(addresses.size() == 100 && *addresses.begin() == static_cast<int64_t>(64 * kMiB));
        CHECK(rows_of["lanes"][0] == 0xffffffff && rows_of["stride"][0] == 4 && rows_of["bytes"][0] == 4);
        CHECK(rows_of["execution"][0] == 0);
        Columns lines = read_table(output, TableId::line);
        CHECK(rows(lines, "site_id") == 1 && lines["site_id"][0] == rows_of["site_id"][0] && lines["pc"][0] == 0x40);
        CHECK(rows(read_table(output, TableId::loss), "cause") == 0);
      });
}

// The nodes of a graph get their slots before any of them is in the stream.
void test_graph_nodes_wait_for_their_graph() {
  recorded(
      "objects", "16M",
      [] {
        allocate(64 * kMiB, kMiB);
        for (int replay = 0; replay < 5; ++replay) {
          std::vector<void*> slots;
          for (uintptr_t node = 1; node <= 40; ++node) {
            auto data = zeroed<Sanitizer_GraphNodeLaunchData>();
            data.graphExec = reinterpret_cast<CUgraphExec>(0x9);
            data.node = reinterpret_cast<CUgraphNode>(node);
            data.nodeType = CU_GRAPH_NODE_TYPE_KERNEL;
            data.launchData = launch_data(stream(1), "node");
            callback(SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN, &data);
            slots.push_back(fake::slot_of(data.launchData.hLaunch));
          }
          std::thread([] { wait_for(stream(1)); }).join();  // another thread's wait ends before the graph begins
          for (void* slot : slots) enqueue_kernel(stream(1), slot, 64 * kMiB);
          const auto end = zeroed<Sanitizer_GraphLaunchData>();
          callback(SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_LAUNCH_END, &end);
        }
        wait_for(stream(1));
      },
      [](const std::string& output) {
        CHECK(sum(read_table(output, TableId::access_object), "loads") == 5 * 40 * 32);
        Columns kernels = read_table(output, TableId::kernel);
        CHECK(rows(kernels, "launch_id") == 200);
        CHECK((std::set<int64_t>(kernels["graph_node_id"].begin(), kernels["graph_node_id"].end()).size() == 40));
      });
}

void test_fault_keeps_what_was_read() {
  recorded(
      "objects", "16M",
      [] {
        allocate(64 * kMiB, kMiB);
        for (int i = 0; i < 25; ++i) launch(stream(1), 64 * kMiB);
        wait_for(stream(1));
        launch(stream(1), 64 * kMiB);
        fake::g_gpu.faulted = true;
      },
      [](const std::string& output) {
        CHECK(rows(read_table(output, TableId::access_object), "loads") == 25);
        CHECK(rows(read_table(output, TableId::kernel), "launch_id") == 26);
        CHECK(sum(read_table(output, TableId::loss), "records") == 1);
      });
}

void test_kernel_that_never_ends_is_left_alone() {
  recorded(
      "objects", "16M",
      [] {
        allocate(64 * kMiB, kMiB);
        launch(stream(1), 64 * kMiB);
        fake::g_gpu.before_waiting = [] {
          std::mutex mutex;
          std::unique_lock lock(mutex);
          std::condition_variable().wait(lock, [] { return false; });
        };
        const int64_t before = now_ns();
        Collector::instance().harvest(before + 50'000'000);
        CHECK(now_ns() >= before + 50'000'000);  // and it did come back
      },
      [](const std::string& output) {
        CHECK(rows(read_table(output, TableId::kernel), "launch_id") == 1);
        CHECK(rows(read_table(output, TableId::loss), "cause") >= 1);
      });
}

void test_threads_with_a_stream_each() {
  recorded(
      "objects", "4M",
      [] {
        allocate(64 * kMiB, kMiB);
        std::vector<std::thread> workers;
        for (int t = 0; t < 8; ++t) {
          workers.emplace_back([t] {
            for (int i = 0; i < 200; ++i) {
              launch(stream(t), 64 * kMiB);
              if (i % 50 == 49) wait_for(stream(t));
            }
          });
        }
        for (std::thread& worker : workers) worker.join();
      },
      [](const std::string& output) {
        CHECK(sum(read_table(output, TableId::access_object), "loads") == 8 * 200 * 32);
        CHECK(rows(read_table(output, TableId::loss), "cause") == 0);
      });
}

void test_module_gets_the_patches_of_its_depth() {
  recorded(
      "objects", "1M",
      [] {
        auto module = zeroed<Sanitizer_ResourceModuleData>();
        module.context = kContext;
        callback(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED, &module);
        CHECK(fake::g_gpu.patches.count("pasta_objects_global") == 1);
        CHECK(fake::g_gpu.patches.count("pasta_objects_memcpy_async") == 1);
        CHECK(fake::g_gpu.patches.count("pasta_full_shared") == 0);
      },
      [](const std::string& output) { CHECK(rows(read_table(output, TableId::build), "log") == 1); });
  recorded(
      "all", "1M",
      [] {
        auto module = zeroed<Sanitizer_ResourceModuleData>();
        module.context = kContext;
        callback(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED, &module);
        CHECK(fake::g_gpu.patches.count("pasta_full_global") == 1);
        CHECK(fake::g_gpu.patches.count("pasta_full_shared") == 1 && fake::g_gpu.patches.count("pasta_local") == 1);
      },
      [](const std::string&) {});
}

// Of two modules with one binary and one that nobody launches, one file is left; lines name it and the symbol.
void test_binaries_of_measured_kernels_are_left_beside_the_shards() {
  recorded(
      "objects,sites", "1M",
      [] {
        for (uintptr_t number = 1; number <= 3; ++number) {
          auto module = zeroed<Sanitizer_ResourceModuleData>();
          module.context = kContext, module.module = reinterpret_cast<CUmodule>(number);
          std::string content = number == 3 ? "never launched" : "the binary";
          module.pCubin = content.data(), module.cubinSize = content.size();
          callback(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED, &module);
          content.assign(content.size(), '?');  // it is the library's only during the call
        }
        allocate(64 * kMiB, kMiB);
        for (const uintptr_t number : {1, 2}) {
          Sanitizer_LaunchData data = launch_data(stream(1), number == 1 ? "_Z4loadPf" : "plain");
          data.module = reinterpret_cast<CUmodule>(number), data.function = reinterpret_cast<CUfunction>(number);
          callback(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_BEGIN, &data);
          enqueue_kernel(stream(1), fake::slot_of(data.hLaunch), 64 * kMiB);
          callback(SANITIZER_CB_DOMAIN_LAUNCH, SANITIZER_CBID_LAUNCH_END, &data);
        }
        wait_for(stream(1));
      },
      [](const std::string& output) {
        std::vector<std::string> files;
        for (const auto& entry : std::filesystem::directory_iterator(output)) {
          const std::string name = entry.path().filename();
          if (name.rfind("cubin-", 0) == 0) files.push_back(name);
        }
        CHECK(files.size() == 1 && files[0] == sanitizer::cubin_name("the binary", 10));
        CHECK(files.size() == 1 && std::filesystem::file_size(output + "/" + files[0]) == 10);
        Columns lines = read_table(output, TableId::line);
        CHECK(rows(lines, "binary") == 2 && lines["binary"][0] != 0 && lines["binary"][0] == lines["binary"][1]);
        CHECK(lines["symbol"][0] != 0 && lines["symbol"][0] != lines["symbol"][1]);
        CHECK(rows(read_table(output, TableId::loss), "cause") == 0);
      });
}

}  // namespace

int main() {
  test_binaries_of_measured_kernels_are_left_beside_the_shards();
  test_launches_in_two_streams();
  test_tensors_of_the_moment_of_the_launch();
  test_slots_are_used_again();
  test_trace_keeps_each_access();
  test_graph_nodes_wait_for_their_graph();
  test_fault_keeps_what_was_read();
  test_kernel_that_never_ends_is_left_alone();
  test_threads_with_a_stream_each();
  test_module_gets_the_patches_of_its_depth();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
