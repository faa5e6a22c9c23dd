// What --memory, --sample and --memory-buffer mean to OpenCL programs.
#include "check.h"

#if __has_include(<CL/cl.h>)
#include "backends/opencl/memory_options.h"

using pasta::opencl::MemoryOptions;

namespace {

void test_words() {
  const MemoryOptions none = MemoryOptions::parse("", "", "");
  CHECK(!none.measures_anything() && !none.asks_for_anything);
  const MemoryOptions usual = MemoryOptions::parse("objects,sites,lines,blocks", "", "");
  CHECK(usual.objects && usual.sites && usual.lines && !usual.shared && !usual.trace);
  const MemoryOptions all = MemoryOptions::parse("all", "", "");
  CHECK(all.objects && all.sites && all.lines && all.blocks && all.shared && !all.trace);
  CHECK(all.coalescing && all.divergence && all.compares_lanes());
  CHECK(usual.blocks && !usual.compares_lanes());
  const MemoryOptions lanes = MemoryOptions::parse("divergence", "", "");
  CHECK(lanes.measures_sites() && lanes.measures_anything() && !lanes.coalescing);
  // Words of other devices are not an error, but nothing is measured.
  const MemoryOptions other = MemoryOptions::parse("floor,shared", "", "");
  CHECK(!other.measures_anything() && other.asks_for_anything);
  CHECK(MemoryOptions::parse(",,trace,", "", "").trace);
}

void test_samples() {
  CHECK(MemoryOptions::parse("sites", "", "").sampling.first == INT64_MAX);
  const MemoryOptions first = MemoryOptions::parse("sites", "3", "");
  CHECK(first.sampling.first == 3 && first.sampling.every == 1000);
  const MemoryOptions both = MemoryOptions::parse("sites", "2:7", "");
  CHECK(both.sampling.first == 2 && both.sampling.every == 7);
  for (const char* bad : {"x", "-1", "0", ":", "99999999999999999999"}) {
    CHECK(MemoryOptions::parse("sites", bad, "").sampling.first == INT64_MAX);
  }
}

void test_sizes() {
  CHECK(MemoryOptions::parse("sites", "", "").buffer_bytes == size_t{256} << 20);
  CHECK(MemoryOptions::parse("sites", "", "8M").buffer_bytes == size_t{8} << 20);
  CHECK(MemoryOptions::parse("sites", "", "1").buffer_bytes == size_t{1} << 20);
}

}  // namespace

int main() {
  test_words();
  test_samples();
  test_sizes();
  return g_failures == 0 ? 0 : 1;
}
#else
int main() { return 77; }
#endif
