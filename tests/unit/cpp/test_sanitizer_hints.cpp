// The quick way of the patches on the CPU: what hints of instructions and areas serve, and that it counts the same.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <set>
#include <utility>
#include <vector>

#include "test_slot.h"

namespace {

// The same again and again: half a warp, and a warp across two blocks of 2 MiB.
void test_known_accesses_of_parts() {
  TestSlot slot({{64 * kMiB, 8 * kMiB}});
  for (int i = 0; i < 5; ++i) {
    access(slot, 0x0f0f0f0f, 0x10, [](uint32_t lane) { return 64 * kMiB + lane * 4; }, 4, AccessKind::load);
    access(slot, kWarp, 0x20, [](uint32_t lane) { return 66 * kMiB - 64 + lane * 4; }, 4, AccessKind::store);
    CHECK(patched::g_quick == (g_room == Room::quick && i > 0));
  }
  const auto row = slot.object(0);
  CHECK(row.loads == 5 * 16 && row.stores == 5 * 32 && row.pages_4k == 3);
  const auto half = slot.site(0x10), across = slot.site(0x20);
  CHECK(half.executions == 5 && half.lanes == 5 * 16 && half.sectors == 5 * 4 && half.ideal_sectors == 5 * 2);
  CHECK(half.min_lanes == 16 && half.max_lanes == 16 && across.executions == 5 && across.sectors == 5 * 4);
  const auto blocks = slot.decode().blocks;
  CHECK(blocks.size() == 2 && blocks[0].accesses == 5 * (16 + 16) && blocks[1].accesses == 5 * 16);
}

// Lanes in no order, each on a page of its own, at the end of a known range and then at its beginning.
void test_scattered_lanes_of_a_known_range() {
  constexpr uint64_t begin = 64 * kMiB, page = 4096;
  TestSlot slot({{begin, 128 * page}});
  access(slot, kWarp, 0x10, [](uint32_t lane) { return begin + 64 * page + lane * 4; }, 4, AccessKind::load);
  for (const uint64_t first : {90, 5}) {
    const auto address = [&](uint32_t lane) { return begin + (first + lane * 13 % 32) * page + lane * 4; };
    access(slot, kWarp, 0x10, address, 4, AccessKind::load);
    CHECK(patched::g_quick == (g_room == Room::quick));
  }
  const auto row = slot.object(0);
  CHECK(row.loads == 3 * 32 && row.pages_4k == 1 + 2 * 32);
  CHECK(row.first_offset == static_cast<int64_t>(5 * page));  // lane 0's; 13 * 27 % 32 == 31
  CHECK(row.last_offset == static_cast<int64_t>((90 + 31) * page + 27 * 4 + 3));
}

// Two objects in one page, one after the other by the same instruction: what is settled for one is not for the other.
void test_neighbours_in_a_page() {
  for (const uint32_t features : {uint32_t{kObjects}, kObjects | kSites}) {
    TestSlot slot({{kMiB, 512}, {kMiB + 512, 512}}, features);
    for (int i = 0; i < 10; ++i) {
      warp::run(kWarp, [&](uint32_t lane) {
        const uint64_t address = kMiB + (i % 4 == 3 ? 512 : 0) + lane * 8;
        (features == kObjects ? patched::objects : patched::all)(slot.header(), 0x10, address, 8, AccessKind::load);
      });
    }
    CHECK(slot.object(0).loads == 8 * 32 && slot.object(1).loads == 2 * 32);
    CHECK(slot.object(0).last_offset == 255 && slot.object(1).first_offset == 0);
  }
}

// One instruction that goes from range to range. In different areas each has a hint of its own: once both were seen
// none is looked up, and the instruction's hint stays until it follows that of an area. In one area they share one.
void test_hints_of_areas() {
  constexpr uint64_t a = 64 * kMiB, beside_a = a + 8192, b = 80 * kMiB;
  const bool room = g_room == Room::quick;
  for (const uint32_t features : {uint32_t{kObjects}, kObjects | kSites}) {
    for (const uint32_t active : {kWarp, 0x0f0f0f0fu}) {
      TestSlot slot({{a, 4096}, {beside_a, 4096}, {b, 4096}}, features);
      // Whether an access leaves a hint; `clock` is what lanes::any_number() says.
      const auto left = [&, active = active, objects = features == kObjects](uint64_t address, uint32_t clock = 1) {
        const int before = patched::g_hints_left;
        warp::g_multiprocessor = clock;
        warp::run(active, [&](uint32_t lane) {
          (objects ? patched::objects : patched::all)(slot.header(), 0x10, address + lane * 4, 4, AccessKind::load);
        });
        return patched::g_hints_left != before;
      };
      CHECK(left(a) && left(b));
      for (int i = 0; i < 5; ++i) {
        CHECK(left(a) != room && !patched::g_quick);  // b's is the instruction's hint
        CHECK(left(b) != room && patched::g_quick == room);
      }
      CHECK(left(a, kServedByArea) != room && !patched::g_quick);
      CHECK(left(a) != room && patched::g_quick == room);
      CHECK(left(b) != room && !patched::g_quick);
      for (int i = 0; i < 3; ++i) CHECK(left(beside_a) && left(a));
      const int lanes = __builtin_popcount(active);
      CHECK(slot.object(0).loads == (1 + 5 + 2 + 3) * lanes && slot.object(1).loads == 3 * lanes);
      CHECK(slot.object(2).loads == (1 + 5 + 1) * lanes);
      CHECK(slot.object(0).first_offset == 0 && slot.object(2).last_offset == (active == kWarp ? 127 : 111));
      if (features != kObjects) CHECK(slot.site(0x10).executions == 21 && slot.site(0x10).lanes == 21 * lanes);
    }
  }
}

// Each lane of a warp in an area of its own, of one range: the hint that one of them leaves serves all.
void test_one_hint_for_lanes_in_many_areas() {
  constexpr uint64_t a = 64 * kMiB, b = 256 * kMiB;
  for (const uint32_t features : {uint32_t{kObjects}, kObjects | kSites}) {
    TestSlot slot({{a, 64 * kMiB}, {b, 64 * kMiB}}, features);
    for (int i = 0; i < 6; ++i) {
      warp::run(kWarp, [&](uint32_t lane) {
        const uint64_t address = (i % 2 == 0 ? a : b) + lane * 2 * kMiB;
        (features == kObjects ? patched::objects : patched::all)(slot.header(), 0x10, address, 4, AccessKind::load);
      });
    }
    CHECK(slot.object(0).loads == 3 * 32 && slot.object(1).loads == 3 * 32);
    const Totals& totals = *slot.header().totals;  // which says that nothing was counted slowly
    CHECK((totals.tables_used == 0 && totals.objects_used == 0) == (g_room == Room::quick));
  }
}

// As many as a kernel that works on many tensors is in at once.
void test_neighbouring_areas_have_hints_of_their_own() {
  TestSlot slot({});
  for (const uint64_t step : {1, 2, 4, 16, 64}) {
    std::set<const Hint*> hints;
    for (uint64_t i = 0; i < 100; ++i) hints.insert(area_hint_of(slot.header(), 0x1230, (i * step + 7) * kMiB));
    CHECK(hints.size() == 100);
    for (const Hint* const hint : hints) {
      CHECK(hint >= hint_of(slot.header(), 0xff0) + 1);
      CHECK(reinterpret_cast<const uint64_t*>(hint + 1) <= slot.slot.quick_keys());
    }
  }
}

}  // namespace

int main() {
  in_every_room([] {
    test_known_accesses_of_parts();
    test_scattered_lanes_of_a_known_range();
    test_hints_of_areas();
    test_one_hint_for_lanes_in_many_areas();
  });
  test_neighbours_in_a_page();
  test_neighbouring_areas_have_hints_of_their_own();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
