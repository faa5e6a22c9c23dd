// What the injected library reads from its environment, and how output names expand.
#include "session/options.h"

#include <cstdlib>

#include <unistd.h>

#include "check.h"
#include "schema/tables.h"
#include "session/crc32.h"
#include "session/output.h"

using pasta::Options;
using pasta::TableId;

namespace {

bool traced(const Options& options, TableId table) {
  return (options.tables >> static_cast<uint16_t>(table) & 1) != 0;
}

void test_sizes() {
  CHECK(pasta::parse_bytes("4096", -1) == 4096);
  CHECK(pasta::parse_bytes("64M", -1) == 64LL << 20);
  CHECK(pasta::parse_bytes("2g", -1) == 2LL << 30);
  CHECK(pasta::parse_bytes("", -1) == -1);
  CHECK(pasta::parse_bytes("M", -1) == -1);
  CHECK(pasta::parse_bytes("1T", -1) == -1);
  CHECK(pasta::parse_bytes("99999999999999999999", -1) == -1);
  CHECK(pasta::parse_bytes("9223372036854775807K", -1) == -1);
}

void test_lists() {
  CHECK(pasta::in_list("", 7));
  CHECK(pasta::in_list("0,3-5", 0));
  CHECK(pasta::in_list("0,3-5", 4));
  CHECK(!pasta::in_list("0,3-5", 6));
  CHECK(!pasta::in_list("nonsense", 0));
}

void test_trace_groups() {
  setenv("PASTA_TRACE", "kernel,api=all", 1);
  const Options options = Options::from_environment();
  CHECK(traced(options, TableId::kernel));
  CHECK(traced(options, TableId::api));
  CHECK(options.all_api);
  CHECK(!traced(options, TableId::op));
  CHECK(!traced(options, TableId::memcpy));
  CHECK(traced(options, TableId::process));  // identity is never left out
  unsetenv("PASTA_TRACE");
  CHECK(traced(Options::from_environment(), TableId::op));
}

void test_ranges() {
  setenv("PASTA_CAPTURE_RANGE", "range", 1);
  setenv("PASTA_RANGE", "step@train", 1);
  setenv("PASTA_CAPTURE_RANGE_END", "repeat:3", 1);
  const Options options = Options::from_environment();
  CHECK(options.capture_range == Options::CaptureRange::range);
  CHECK(options.range_name == "step");
  CHECK(options.range_domain == "train");
  CHECK(options.range_repeats == 3);
}

void test_cuda() {
  CHECK(!Options::from_environment().whole_graphs && !Options::from_environment().latency_timestamps);
  setenv("PASTA_CUDA_GRAPH_TRACE", "node", 1);
  CHECK(!Options::from_environment().whole_graphs);
  setenv("PASTA_CUDA_GRAPH_TRACE", "graph", 1);
  setenv("PASTA_CUDA_LATENCY_TIMESTAMPS", "1", 1);
  CHECK(Options::from_environment().whole_graphs && Options::from_environment().latency_timestamps);
}

void test_expansion() {
  setenv("PASTA_TEST_VALUE", "v", 1);
  pasta::Identity identity{3, 1, 8, "node7", "cmd", "exe"};
  CHECK(pasta::expand_output("a-%p-%h-%r-%l-%q{PASTA_TEST_VALUE}-%%.pasta", identity, 42) ==
        "a-42-node7-3-1-v-%.pasta");
  identity.rank = pasta::kNullI32;
  CHECK(pasta::expand_output("a-%r-%q{PASTA_TEST_UNSET}", identity, 42) == "a--");
  CHECK(pasta::expand_output("100%", identity, 42) == "100%");
  CHECK(pasta::expand_output("%z%q{open", identity, 42) == "%z%q{open");
}

// Check value of CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms: "123456789" -> CBF43926.
void test_crc() {
  CHECK(pasta::crc32("123456789", 9) == 0xCBF43926u);
  CHECK(pasta::crc32("", 0) == 0);
}

}  // namespace

int main() {
  test_sizes();
  test_lists();
  test_trace_groups();
  test_ranges();
  test_cuda();
  test_expansion();
  test_crc();
  return g_failures == 0 ? 0 : 1;
}
