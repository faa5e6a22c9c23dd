// The whole host side of the memory pass over a fake Sanitizer: callbacks in, rows in the shard out. Kernels are the
// real reducers, run on the CPU when their stream moves.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <condition_variable>
#include <filesystem>
#include <numeric>
#include <thread>

#include "backends/sanitizer/collector.h"
#include "backends/torch/tensors.h"
#include "device/nvidia/trace_writer.h"
#include "fake_program.h"
#include "session/memory_parts.h"
#include "session/session.h"
#include "shard_rows.h"
#include "patched.h"
#include "warp_emulator.h"

using namespace pasta;
using sanitizer::Collector;
using fake::allocate, fake::callback, fake::kContext, fake::kMiB, fake::launch_data, fake::release, fake::stream;
using fake::wait_for, fake::zeroed;

namespace {

// One warp that loads 32 floats from `address`.
fake::Kernel one_warp(uint64_t address) {
  return [=](const nvidia::SlotHeader& slot) {
    const auto reduce = slot.site_capacity == 0 ? patched::objects : patched::all;
    warp::run(0xffffffff, [&](uint32_t lane) {
      reduce(slot, 0x1040, address + lane * 4, 4, nvidia::AccessKind::load);
      if ((slot.features & nvidia::kTrace) != 0) {
        nvidia::trace_warp(slot, 0xffffffff, 0x1040, nvidia::MemorySpace::global, address + lane * 4, 4,
                           nvidia::AccessKind::load);
      }
    });
  };
}

void launch(fake::Stream in, uint64_t address) { fake::launch(in, one_warp(address)); }

int64_t sum(const Columns& columns, const char* name) {
  const auto column = columns.find(name);
  return column == columns.end() ? 0 : std::accumulate(column->second.begin(), column->second.end(), int64_t{0});
}
size_t rows(const Columns& columns, const char* name) {
  const auto column = columns.find(name);
  return column == columns.end() ? 0 : column->second.size();
}

// Runs `program`, recorded, and `check` on the directory that it leaves.
template <class Program, class Check>
void recorded(const char* memory, const char* buffer, Program program, Check check) {
  const fake::Directory directory;
  const std::string output = directory.output();
  fake::record(output, memory, buffer, program);
  check(output);
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

// A launch finds the hints that the last one of its kernel left, while the ranges of memory objects stay.
void test_hints_are_kept_for_the_same_ranges() {
  recorded(
      "objects", "16M",
      [] {
        std::vector<bool> quick;
        const auto run = [&quick](uint64_t address) {
          fake::launch(stream(1), [&quick, address](const nvidia::SlotHeader& slot) {
            one_warp(address)(slot);
            quick.push_back(patched::g_quick);
          });
          wait_for(stream(1));
          usleep(110'000);
          wait_for(stream(1));  // now its slot is read
        };
        allocate(64 * kMiB, kMiB);
        run(64 * kMiB);
        run(64 * kMiB + 512 * 1024);
        allocate(32 * kMiB, kMiB);  // the ranges have other numbers
        run(64 * kMiB + 512 * 1024);
        run(64 * kMiB);
        run(32 * kMiB);
        CHECK((quick == std::vector<bool>{false, true, false, true, false}));
      },
      [](const std::string& output) {
        Columns objects = read_table(output, TableId::access_object);
        CHECK(rows(objects, "loads") == 5 && sum(objects, "loads") == 5 * 32 && sum(objects, "pages_4k") == 5);
        CHECK(objects["object_id"][0] == objects["object_id"][3] && objects["object_id"][3] != objects["object_id"][4]);
        CHECK(objects["first_offset"][1] == 512 * 1024 && objects["last_offset"][3] == 127);
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

// As torch's allocators report them: on a GPU they get a number, on the CPU they are no part of any launch.
void test_torchs_tensors_are_those_of_the_launch() {
  recorded(
      "objects", "16M",
      [] {
        const auto report = [](uint64_t address, int64_t bytes, torch::Device device) {
          torch::report_memory_usage(reinterpret_cast<void*>(address), bytes, 0, 0, device);
        };
        allocate(64 * kMiB, 2 * kMiB);
        report(64 * kMiB, 512, {1, 0});
        report(32 * kMiB, 512, {0, -1});
        launch(stream(1), 64 * kMiB);
        report(64 * kMiB, -512, {1, 0});
        launch(stream(1), 64 * kMiB);
        wait_for(stream(1));
      },
      [](const std::string& output) {
        const std::vector<int64_t> tensors = read_table(output, TableId::tensor)["tensor_id"];
        CHECK(tensors.size() == 3 && tensors[0] != kNullI64 && tensors[1] == kNullI64 && tensors[2] == tensors[0]);
        const std::vector<int64_t> accessed = read_table(output, TableId::access_object)["tensor_id"];
        CHECK(accessed.size() == 2 && accessed[0] == tensors[0] && accessed[1] == kNullI64);
      });
}

// A step of training as the library sees it: each launch has an output where others were in the step before.
void step() {
  const MemoryParts& parts = *memory_parts.load();
  for (uint64_t i = 0; i < 90; ++i) {
    const uint64_t output = (64 + i % 8) * kMiB, bytes = i % 3 == 0 ? 700'000 : 100'000;
    parts.made(output, bytes);
    launch(stream(1), output + 4096);
    parts.gone(output);
  }
  wait_for(stream(1));
}

// Once a step is like the one before, a launch is one call, and what it left is read and cleared together with others.
void test_steady_launches_are_one_call_each() {
  for (const char* const memory : {"objects", "objects,sites,blocks"}) {
    recorded(
        memory, "256M",
        [] {
          const MemoryParts& parts = *memory_parts.load();
          allocate(64 * kMiB, 20 * kMiB);
          for (uint64_t i = 0; i < 200; ++i) {
            allocate((100 + i) * kMiB, kMiB / 2);
            parts.made((100 + i) * kMiB, 512);
          }
          step(), step();
          fake::Gpu& gpu = fake::g_gpu;
          gpu.waits = gpu.uploads = gpu.reads = gpu.fills = gpu.slots_set = 0;
          for (int i = 0; i < 3; ++i) step();
          CHECK(gpu.slots_set == 3 * 90);
          // The 90 slots are read in three runs at most, by the size of a slot: of each fronts, marks and tables are
          // read; the latter two are filled with zeros, and clean fronts uploaded. Then it is waited for once.
          const int runs = gpu.uploads / 3;
          CHECK(gpu.uploads % 3 == 0 && runs >= 1 && runs <= 3);
          CHECK(gpu.reads >= 2 * gpu.uploads && gpu.reads <= 3 * gpu.uploads);
          CHECK(gpu.fills == gpu.reads - gpu.uploads);
          CHECK(gpu.waits == 3);
        },
        [](const std::string& output) {
          Columns objects = read_table(output, TableId::access_object);
          CHECK(rows(objects, "loads") == 5 * 90 && sum(objects, "loads") == 5 * 90 * 32);
          CHECK((std::set<int64_t>(objects["tensor_id"].begin(), objects["tensor_id"].end()).size() == 5 * 90));
          CHECK(sum(objects, "first_offset") == 5 * (90 * 4096 + (11 * 28 + 1) * static_cast<int64_t>(kMiB)));
          CHECK(rows(read_table(output, TableId::loss), "cause") == 0);
        });
  }
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

// 300,000 accesses, of 80 bytes each, through a session's buffer of 1 MiB.
void test_trace_larger_than_the_buffer() {
  setenv("PASTA_BUFFER_SIZE", "1M", 1);
  recorded(
      "trace", "256M",
      [] {
        allocate(64 * kMiB, kMiB);
        fake::launch(stream(1), [](const nvidia::SlotHeader& slot) {
          for (int i = 0; i < 300'000; ++i) {
            warp::g_current = 0;  // a span is one lane's: no warp is needed
            nvidia::trace_span(slot, 0x1040, 64 * kMiB, 4, nvidia::AccessKind::load);
          }
        });
        wait_for(stream(1));
      },
      [](const std::string& output) {
        CHECK(rows(read_table(output, TableId::access), "address") == 300'000);
        CHECK(rows(read_table(output, TableId::loss), "cause") == 0);
      });
  unsetenv("PASTA_BUFFER_SIZE");
}

// A node of a graph in stream 1 gets its slot.
void* begin_node(uintptr_t node) {
  auto data = zeroed<Sanitizer_GraphNodeLaunchData>();
  data.graphExec = reinterpret_cast<CUgraphExec>(0x9);
  data.node = reinterpret_cast<CUgraphNode>(node);
  data.nodeType = CU_GRAPH_NODE_TYPE_KERNEL;
  data.launchData = launch_data(stream(1), "node");
  callback(SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_NODE_LAUNCH_BEGIN, &data);
  return fake::slot_of(data.launchData.hLaunch);
}

// The graph is in its stream.
void end_graph() {
  const auto end = zeroed<Sanitizer_GraphLaunchData>();
  callback(SANITIZER_CB_DOMAIN_GRAPHS, SANITIZER_CBID_GRAPHS_LAUNCH_END, &end);
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
            slots.push_back(begin_node(node));
          }
          std::thread([] { wait_for(stream(1)); }).join();  // another thread's wait ends before the graph begins
          for (void* slot : slots) fake::enqueue(stream(1), slot, one_warp(64 * kMiB));
          end_graph();
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

// A node keeps the ranges that it was given, though others are needed before it is in the stream.
void test_ranges_that_change_between_nodes_of_a_graph() {
  recorded(
      "objects", "16M",
      [] {
        const MemoryParts& parts = *memory_parts.load();
        allocate(64 * kMiB, 8 * kMiB);
        launch(stream(1), 64 * kMiB);
        std::vector<void*> slots;
        for (uintptr_t node = 1; node <= 3; ++node) {
          parts.made((64 + node) * kMiB, 512 * node);
          slots.push_back(begin_node(node));
        }
        for (uint64_t node = 1; node <= 3; ++node) {  // what lies where the last of the tensors is
          fake::enqueue(stream(1), slots[node - 1], one_warp(67 * kMiB));
        }
        end_graph();
        wait_for(stream(1));
      },
      [](const std::string& output) {
        Columns objects = read_table(output, TableId::access_object);
        CHECK(rows(objects, "tensor_id") == 4 && sum(objects, "loads") == 4 * 32);
        int without = 0;
        for (const int64_t id : objects["tensor_id"]) without += id == kNullI64;
        CHECK(without == 3 && sum(objects, "first_offset") == 3 * 3 * static_cast<int64_t>(kMiB));
        CHECK(rows(read_table(output, TableId::loss), "cause") == 0);
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
      "objects", "32M",  // more slots than 50 launches in each stream take
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
          fake::enqueue(stream(1), fake::slot_of(data.hLaunch), one_warp(64 * kMiB));
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
  test_hints_are_kept_for_the_same_ranges();
  test_tensors_of_the_moment_of_the_launch();
  test_torchs_tensors_are_those_of_the_launch();
  test_steady_launches_are_one_call_each();
  test_slots_are_used_again();
  test_trace_keeps_each_access();
  test_trace_larger_than_the_buffer();
  test_graph_nodes_wait_for_their_graph();
  test_ranges_that_change_between_nodes_of_a_graph();
  test_fault_keeps_what_was_read();
  test_kernel_that_never_ends_is_left_alone();
  test_threads_with_a_stream_each();
  test_module_gets_the_patches_of_its_depth();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
