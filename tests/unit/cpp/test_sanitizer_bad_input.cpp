// What a memory pass does where something is missing or refused, over a fake Sanitizer: the program runs on, kernels
// are recorded, and `loss` says what is not.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include "fake_program.h"
#include "patched.h"
#include "shard_rows.h"
#include "warp_emulator.h"

using namespace pasta;
using fake::Directory;
using fake::kMiB;

namespace {

sanitizer::Functions& library_calls() {
  return const_cast<sanitizer::Library&>(sanitizer::library()).call;
}

void launch() {
  fake::launch(fake::stream(1), [](const nvidia::SlotHeader& slot) {
    warp::run(0xffffffff, [&](uint32_t lane) {
      patched::objects(slot, 0x1040, 64 * kMiB + lane * 4, 4, nvidia::AccessKind::load);
    });
  });
}

void load_module() {
  auto module = fake::zeroed<Sanitizer_ResourceModuleData>();
  module.context = fake::kContext;
  fake::callback(SANITIZER_CB_DOMAIN_RESOURCE, SANITIZER_CBID_RESOURCE_MODULE_LOADED, &module);
}

size_t rows(const Directory& directory, TableId table, const char* column) {
  const Columns columns = read_table(directory.output(), table);
  const auto found = columns.find(column);
  return found == columns.end() ? 0 : found->second.size();
}

int64_t lost(const Directory& directory) {
  int64_t sum = 0;
  Columns losses = read_table(directory.output(), TableId::loss);
  for (const int64_t records : losses["records"]) {
    if (records != kNullI64) sum += records;
  }
  return sum;
}

void test_no_device_memory_for_slots() {
  const Directory directory;
  fake::record(directory.output(), "objects", "1M", [] {
    library_calls().sanitizerAlloc = [](CUcontext, void**, size_t) { return SANITIZER_ERROR_OUT_OF_MEMORY; };
    fake::allocate(64 * kMiB, kMiB);
    for (int i = 0; i < 5; ++i) launch();
    fake::wait_for(fake::stream(1));
  });
  CHECK(rows(directory, TableId::kernel, "launch_id") == 5);
  CHECK(rows(directory, TableId::access_object, "loads") == 0 && lost(directory) == 5);
}

// Room for the table of memory objects, and for none of the slots.
void test_device_memory_that_runs_out() {
  const Directory directory;
  fake::record(directory.output(), "objects", "1M", [] {
    library_calls().sanitizerAlloc = [](CUcontext context, void** memory, size_t bytes) {
      return bytes > 64 << 10 ? SANITIZER_ERROR_OUT_OF_MEMORY : fake::alloc(context, memory, bytes);
    };
    fake::allocate(64 * kMiB, kMiB);
    for (int i = 0; i < 5; ++i) launch();
    fake::wait_for(fake::stream(1));
  });
  CHECK(rows(directory, TableId::kernel, "launch_id") == 5 && lost(directory) == 5);
}

void test_patches_that_do_not_load() {
  const Directory directory;
  fake::record(directory.output(), "objects", "1M", [] {
    library_calls().sanitizerAddPatches = [](const void*, CUcontext) { return SANITIZER_ERROR_UNKNOWN; };
    load_module();
    fake::allocate(64 * kMiB, kMiB);
    launch();
    fake::wait_for(fake::stream(1));
  });
  CHECK(rows(directory, TableId::kernel, "launch_id") == 1);
  CHECK(rows(directory, TableId::loss, "cause") >= 1);
}

void test_module_that_cannot_be_patched() {
  const Directory directory;
  fake::record(directory.output(), "objects", "1M", [] {
    library_calls().sanitizerPatchModule = [](CUmodule) { return SANITIZER_ERROR_UNKNOWN; };
    load_module();
    fake::allocate(64 * kMiB, kMiB);
    launch();
    fake::wait_for(fake::stream(1));
  });
  CHECK(rows(directory, TableId::kernel, "launch_id") == 1);
  CHECK(rows(directory, TableId::loss, "cause") >= 1);
}

// Runs where starting fails: in a process of its own, which goes on.
template <class Prepare>
void refused(const Directory& directory, Prepare prepare) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("PASTA_OUTPUT", directory.output().c_str(), 1);
    setenv("PASTA_MEMORY", "objects", 1);
    setenv("PASTA_SANITIZER_PATH", "/nonexistent", 1);
    prepare();
    CHECK(!sanitizer::Collector::instance().start());
    launch();  // callbacks that come all the same do nothing
    pasta::flush(2'000'000'000);
    _exit(g_failures == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(rows(directory, TableId::loss, "cause") == 1 && rows(directory, TableId::kernel, "launch_id") == 0);
}

void test_no_library() {
  const Directory directory;
  refused(directory, [] {});
}

void test_another_tool_in_the_process() {
  const Directory directory;
  refused(directory, [] {
    fake::install();
    library_calls().sanitizerSubscribe = [](Sanitizer_SubscriberHandle*, Sanitizer_CallbackFunc, void*) {
      return SANITIZER_ERROR_MAX_LIMIT_REACHED;
    };
  });
}

void test_driver_that_the_library_does_not_know() {
  const Directory directory;
  refused(directory, [] {
    fake::install();
    library_calls().sanitizerEnableDomain = [](uint32_t, Sanitizer_SubscriberHandle, Sanitizer_CallbackDomain) {
      return SANITIZER_ERROR_NOT_SUPPORTED;
    };
  });
}

}  // namespace

int main() {
  test_no_device_memory_for_slots();
  test_device_memory_that_runs_out();
  test_patches_that_do_not_load();
  test_module_that_cannot_be_patched();
  test_no_library();
  test_another_tool_in_the_process();
  test_driver_that_the_library_does_not_know();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
