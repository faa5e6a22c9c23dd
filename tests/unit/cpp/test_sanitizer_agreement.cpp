// Random kernels through the whole memory pass, reduced and traced at once:
//   test_sanitizer_agreement OUTPUT    records them there; test_sanitizer_agreement.py compares the two
// Without a path the recording is made and thrown away.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <random>
#include <vector>

#include "device/nvidia/trace_writer.h"
#include "fake_program.h"
#include "patched.h"
#include "warp_emulator.h"

using namespace pasta::nvidia;
using fake::kMiB;

namespace {

std::mt19937_64 g_random(11);
uint64_t dice(uint64_t sides) { return g_random() % sides; }

struct Access {
  uint32_t active;
  uint64_t pc;
  MemorySpace space;
  AccessKind kind;
  uint32_t bytes;
  std::array<uint64_t, 32> addresses;
};

// As the patches of depth `trace`.
void perform(const SlotHeader& slot, const Access& access) {
  warp::g_multiprocessor = static_cast<uint32_t>(dice(132));
  warp::run(access.active, [&](uint32_t lane) {
    const uint64_t address = access.addresses[lane];
    if (access.space == MemorySpace::shared) {
      reduce_shared_site(slot, access.active, access.pc, static_cast<uint32_t>(address), access.bytes, access.kind);
    } else if (!has_size_class(access.bytes)) {
      reduce_span<true>(slot, address, access.bytes, access.kind);
      reduce_span_site(slot, access.pc, address, access.bytes, access.kind);
      trace_span(slot, access.pc, address, access.bytes, access.kind);
      return;
    } else {
      patched::all(slot, access.pc, address, access.bytes, access.kind);
    }
    trace_warp(slot, access.active, access.pc, access.space, address, access.bytes, access.kind);
  });
}

struct Object {
  uint64_t begin, bytes;
};

Access any_access(const std::vector<Object>& memory) {
  Access access{};
  access.active = dice(3) == 0 ? static_cast<uint32_t>(g_random()) | 1u << dice(32) : 0xffffffff;
  access.kind = static_cast<AccessKind>(dice(3));
  access.bytes = 1u << dice(5);
  // An instruction does one thing.
  access.pc = 0x1000 + 16 * (static_cast<uint64_t>(access.kind) * 8 + dice(8));
  const Object& object = memory[dice(memory.size())];
  const uint64_t start = dice(object.bytes), stride = access.bytes * dice(5);
  for (uint64_t lane = 0; lane < 32; ++lane) {
    const Object& other = memory[dice(memory.size())];
    const bool scattered = access.pc % 64 == 0;
    const uint64_t address = scattered ? other.begin + dice(other.bytes + 64) : object.begin + start + lane * stride;
    access.addresses[lane] = address / access.bytes * access.bytes;
  }
  if (dice(8) == 0) {
    access.pc += 0x400, access.space = MemorySpace::shared;
    for (uint64_t& address : access.addresses) address %= 48 << 10;
  } else if (dice(8) == 0) {
    access.pc += 0x800, access.active = 1u << dice(32);
    access.bytes = 48 + 16 * static_cast<uint32_t>(dice(2000));
    for (uint64_t& address : access.addresses) address = address / 16 * 16;
  }
  return access;
}

void program() {
  std::vector<Object> memory;
  uint64_t at = 64 * kMiB;
  const auto add = [&](uint64_t bytes) {
    memory.push_back({at, bytes});
    fake::allocate(at, bytes);
    at += (bytes + dice(100'000)) / 16 * 16 + 16;
  };
  for (int i = 0; i < 12; ++i) add(16 + dice(5 * kMiB) / 16 * 16);
  for (int launch = 0; launch < 12; ++launch) {
    std::vector<Access> accesses;
    for (int i = 0; i < 300; ++i) accesses.push_back(any_access(memory));
    fake::launch(fake::stream(1), [accesses](const SlotHeader& slot) {
      for (const Access& access : accesses) perform(slot, access);
    });
    fake::release(memory.front().begin);
    memory.erase(memory.begin());
    add(16 + dice(3 * kMiB) / 16 * 16);
    if (launch % 3 == 2) fake::wait_for(fake::stream(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const fake::Directory directory;
  fake::record(argc < 2 ? directory.output() : argv[1], "objects,sites,blocks,shared,trace", "64M", program);
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
