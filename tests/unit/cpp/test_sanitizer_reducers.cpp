// The device reducers on the CPU, lane by lane: counts against closed forms and against a count made access by access.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "device/nvidia/object_reducer.h"
#include "device/nvidia/site_reducer.h"
#include "device/nvidia/tensor_map_reducer.h"
#include "device/nvidia/trace_writer.h"
#include "test_slot.h"

namespace {

void test_lookup_checks_both_ends() {
  const TestSlot slot({{0x1000, 0x100}, {0x2000, 0x1000}, {0x3000, 0x10}});
  const Range* const ranges = slot.snapshot.cuts->ranges.data();
  const auto index = [&](uint64_t address) { return find_range(ranges, 3, address).index; };
  CHECK(index(0xfff) == 3);
  CHECK(index(0x1000) == 0 && index(0x10ff) == 0);
  CHECK(index(0x1100) == 3 && index(0x1fff) == 3);  // past the end: nobody's, not the object before
  CHECK(index(0x2000) == 1 && index(0x2fff) == 1);
  CHECK(index(0x3000) == 2 && index(0x3010) == 3 && index(UINT64_MAX) == 3);
  const Found gap = find_range(ranges, 3, 0x1800);
  CHECK(gap.begin == 0x1100 && gap.end == 0x2000);
  CHECK(find_range(nullptr, 0, 5).index == 0);
}

// c[i] = a[i] + b[i] over 4,096 floats: 128 warps, 3 accesses of 4 bytes a thread, each array touched whole. Done
// twice. Quick are all but the first execution of each instruction, also where they touch new pages.
void test_vector_add() {
  constexpr uint64_t kN = 4096, a = 64 * kMiB, b = 80 * kMiB, c = 96 * kMiB;
  TestSlot slot({{a, kN * 4}, {b, kN * 4}, {c, kN * 4}});
  int quick = 0;
  for (uint64_t at = 0; at < 2 * kN; at += 32) {
    const uint64_t i = at % kN;
    for (const auto& [pc, base, kind] : {std::tuple{0x10, a, AccessKind::load}, {0x20, b, AccessKind::load},
                                         {0x30, c, AccessKind::store}}) {
      access(slot, kWarp, pc, [&, base = base](uint32_t lane) { return base + (i + lane) * 4; }, 4, kind);
      quick += patched::g_quick;
    }
  }
  CHECK(quick == (g_room == Room::quick ? 3 * 255 : 0));
  for (int64_t id = 0; id < 3; ++id) {
    const auto row = slot.object(id);
    CHECK((id == 2 ? row.stores : row.loads) == 2 * kN && row.first_offset == 0 && row.last_offset == kN * 4 - 1);
    CHECK(row.load_bytes + row.store_bytes == 2 * kN * 4 && row.pages_4k == 4);  // 16 KiB
  }
  CHECK(slot.decode().blocks.size() == 3 && slot.decode().blocks[1].accesses == 2 * kN);
  const auto site = slot.site(0x10);
  CHECK(site.executions == 256 && site.lanes == 2 * kN && site.bytes == 2 * kN * 4);
  CHECK(site.sectors == 256 * 4 && site.ideal_sectors == 256 * 4);  // 128 bytes a warp
  CHECK(site.min_lanes == 32 && site.max_lanes == 32);
}

// Lanes `stride` floats apart: each sector of 8 floats is shared by 8 / stride lanes. And again, quickly.
void test_strides() {
  for (const uint32_t stride : {1, 2, 4, 8, 16, 32}) {
    TestSlot slot({{kMiB, kMiB}});
    for (int i = 0; i < 3; ++i) {
      access(slot, kWarp, 0x10, [&](uint32_t lane) { return kMiB + lane * stride * 4; }, 4, AccessKind::load);
    }
    const auto site = slot.site(0x10);
    CHECK(site.sectors == 3 * (stride < 8 ? 4 * stride : 32));
    CHECK(site.ideal_sectors == 3 * 4);
  }
}

void test_broadcast_needs_one_sector() {
  TestSlot slot({{kMiB, kMiB}});
  access(slot, kWarp, 0x10, [](uint32_t) { return kMiB + 64; }, 8, AccessKind::load);
  const auto site = slot.site(0x10);
  CHECK(site.sectors == 1 && site.ideal_sectors == 1 && site.lanes == 32 && site.bytes == 256);
}

void test_unknown_addresses_are_nobodys() {
  TestSlot slot({{kMiB, 4096}});
  access(slot, kWarp, 0x10, [](uint32_t lane) { return kMiB + 4096 - 64 + lane * 4; }, 4, AccessKind::store);
  CHECK(slot.object(0).stores == 16 && slot.object(pasta::kNullI64).stores == 16);
  CHECK(slot.object(0).last_offset == 4095);
}

// The last byte grows with an access that begins where the one before ended, and with one that reaches further.
void test_extremes_of_neighbours() {
  TestSlot slot({{kMiB, 4096}});
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint32_t>{64, 8}, {72, 8}, {72, 16}, {60, 4}}) {
    access(slot, 1, 0x10, [&, offset = offset](uint32_t) { return kMiB + offset; }, bytes, AccessKind::load);
  }
  CHECK(slot.object(0).first_offset == 60 && slot.object(0).last_offset == 87);
}

// An access may end beyond the object that it begins in: a vector load of the last of an odd number of elements.
void test_an_access_across_the_end() {
  TestSlot slot({{kMiB, 20}, {kMiB + 20, 492}});
  access(slot, 0b11, 0x10, [](uint32_t lane) { return kMiB + lane * 16; }, 16, AccessKind::load);
  const auto row = slot.object(0);
  CHECK(row.loads == 2 && row.first_offset == 0 && row.last_offset == 31 && row.pages_4k == 1);
  CHECK(slot.decode().objects.size() == 1 && slot.decode().damaged == 0);
}

// A page's bit is that of the address space: an object that begins within a page shares it.
void test_pages_of_unaligned_object() {
  TestSlot slot({{kMiB + 4000, 200}});
  access(slot, 0b11, 0x10, [](uint32_t lane) { return kMiB + 4000 + lane * 100; }, 4, AccessKind::load);
  CHECK(slot.object(0).pages_4k == 2);
}

void test_span_clips_to_its_object() {
  TestSlot slot({{kMiB, 3 * 4096}});
  warp::run(1, [&](uint32_t) { reduce_span<true>(slot.header(), kMiB + 4096, 100 * 4096, AccessKind::load); });
  const auto row = slot.object(0);
  CHECK(row.loads == 1 && row.load_bytes == 100 * 4096);
  CHECK(row.first_offset == 4096 && row.last_offset == 3 * 4096 - 1 && row.pages_4k == 2);
}

// Random warps over random objects against a count that goes access by access and shares no code.
void test_random_against_plain_count() {
  std::mt19937_64 random(7);
  std::vector<std::pair<uint64_t, uint64_t>> memory;
  uint64_t at = (uint64_t{3} << 32) - 40 * kMiB;  // on both sides of 12 GiB
  for (int i = 0; i < 40; ++i) {
    if (at < uint64_t{3} << 32 && at + 4 * kMiB > uint64_t{3} << 32) at = uint64_t{3} << 32;
    const uint64_t bytes = 16 + random() % (3 * kMiB) / 16 * 16;
    memory.emplace_back(at, bytes);
    at += (bytes + random() % 8192) / 16 * 16 + 16;
  }
  TestSlot slot(memory), objects_alone(memory, kObjects);
  struct Count {
    std::map<int, int64_t> lanes, bytes;  // by kind
    std::set<uint64_t> pages;
    std::map<uint64_t, int64_t> blocks;
    int64_t first = INT64_MAX, last = 0;
  };
  std::map<int64_t, Count> expected;
  struct SiteCount {
    int64_t executions = 0, lanes = 0, bytes = 0, sectors = 0, ideal = 0;
    int32_t fewest = 32, most = 0;
  };
  std::map<uint64_t, SiteCount> expected_sites;
  for (int round = 0; round < 3000; ++round) {
    const uint64_t pc = 16 * (round % 50);
    const uint32_t active = round % 3 == 0 ? static_cast<uint32_t>(random()) | 1u << (random() % 32) : kWarp;
    const uint32_t bytes = 1u << (round % 5);
    const int kind = round % 50 % 3;  // of the instruction
    std::array<uint64_t, 32> addresses;
    const auto& [begin, size] = memory[random() % (round % 2 == 0 ? 2 : memory.size())];
    const uint64_t start = random() % size;
    for (uint64_t lane = 0; lane < 32; ++lane) {
      const auto& other = memory[random() % memory.size()];
      const uint64_t address = round % 4 == 3 ? other.first + random() % other.second
                                              : begin + std::min(start + lane * bytes, size - 1);
      addresses[lane] = address / bytes * bytes;
    }
    access(slot, active, pc, [&](uint32_t lane) { return addresses[lane]; }, bytes, static_cast<AccessKind>(kind));
    warp::run(active, [&](uint32_t lane) {
      patched::objects(objects_alone.header(), pc, addresses[lane], bytes, static_cast<AccessKind>(kind));
    });
    SiteCount& site = expected_sites[pc];
    std::set<uint64_t> sectors;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if ((active >> lane & 1) == 0) continue;
      sectors.insert(addresses[lane] / 32);
      int64_t object = pasta::kNullI64;
      for (size_t i = 0; i < memory.size(); ++i) {
        const bool inside = addresses[lane] >= memory[i].first && addresses[lane] < memory[i].first + memory[i].second;
        if (inside) object = static_cast<int64_t>(i);
      }
      Count& count = expected[object];
      ++count.lanes[kind];
      count.bytes[kind] += bytes;
      if (object == pasta::kNullI64) continue;
      const uint64_t offset = addresses[lane] - memory[static_cast<size_t>(object)].first;
      count.pages.insert(addresses[lane] / 4096);
      ++count.blocks[offset / (2 * kMiB)];
      count.first = std::min(count.first, static_cast<int64_t>(offset));
      count.last = std::max(count.last, static_cast<int64_t>(offset + bytes - 1));
    }
    const int lanes = __builtin_popcount(active);
    ++site.executions;
    site.lanes += lanes;
    site.bytes += lanes * bytes;
    site.sectors += static_cast<int64_t>(sectors.size());
    site.ideal += std::min<int64_t>((lanes * bytes + 31) / 32, static_cast<int64_t>(sectors.size()));
    site.fewest = std::min(site.fewest, lanes), site.most = std::max(site.most, lanes);
  }
  const sanitizer::DecodedSlot decoded = slot.decode(), alone = objects_alone.decode();
  CHECK(decoded.sites.size() == expected_sites.size() && decoded.lost_sites == 0);
  for (const auto& [pc, row] : decoded.sites) {
    const SiteCount& count = expected_sites[pc];
    CHECK(row.executions == count.executions && row.lanes == count.lanes && row.bytes == count.bytes);
    CHECK(row.sectors == count.sectors && row.ideal_sectors == count.ideal);
    CHECK(row.min_lanes == count.fewest && row.max_lanes == count.most);
  }
  for (const auto* rows : {&decoded.objects, &alone.objects}) {
    CHECK(rows->size() == expected.size());
    for (const auto& row : *rows) {
      Count& count = expected[row.object_id];
      CHECK(row.loads == count.lanes[0] && row.stores == count.lanes[1] && row.atomics == count.lanes[2]);
      CHECK(row.load_bytes == count.bytes[0] && row.store_bytes == count.bytes[1]);
      CHECK(row.atomic_bytes == count.bytes[2]);
      if (row.object_id == pasta::kNullI64) continue;
      CHECK(row.first_offset == count.first && row.last_offset == count.last);
      CHECK(row.pages_4k == static_cast<int64_t>(count.pages.size()));
    }
  }
  size_t blocks = 0;
  for (const auto& [id, count] : expected) blocks += count.blocks.size();
  CHECK(decoded.blocks.size() == blocks);
  for (const auto& row : decoded.blocks) {
    CHECK(expected[row.object_id].blocks[static_cast<uint64_t>(row.offset) / (2 * kMiB)] == row.accesses);
  }
}

uint32_t passes(uint32_t active, const std::function<uint32_t(uint32_t)>& address, uint32_t bytes) {
  uint32_t result = 0;
  warp::run(active, [&](uint32_t lane) { result = shared_passes(active, address(lane), bytes); });
  return result;
}

// Shared memory has 32 banks of 4 bytes; lanes that ask for the same word share it.
void test_bank_conflicts() {
  for (const uint32_t stride : {1, 2, 4, 8, 16, 32}) {
    CHECK(passes(kWarp, [&](uint32_t lane) { return lane * stride * 4; }, 4) == stride);
  }
  CHECK(passes(kWarp, [](uint32_t lane) { return lane * 33 * 4; }, 4) == 1);  // a padded column
  CHECK(passes(kWarp, [](uint32_t) { return 128u; }, 4) == 1);                 // broadcast
  CHECK(passes(kWarp, [](uint32_t lane) { return lane; }, 1) == 1);            // bytes of 8 words
  CHECK(passes(kWarp, [](uint32_t lane) { return lane * 8; }, 8) == 2);        // 256 bytes
  CHECK(passes(kWarp, [](uint32_t lane) { return lane * 16; }, 16) == 4);      // 512 bytes
  CHECK(passes(0xff, [](uint32_t lane) { return lane * 128; }, 16) == 8);      // 8 rows in one bank group
  CHECK(passes(0b11, [](uint32_t lane) { return lane * 128; }, 4) == 2);
}

void test_shared_site_counts_extra_passes() {
  TestSlot slot({});
  warp::run(kWarp, [&](uint32_t lane) {
    reduce_shared_site(slot.header(), kWarp, 0x40, lane * 8 * 4, 4, AccessKind::store);
  });
  const auto site = slot.site(0x40);
  CHECK(site.bank_conflicts == 7 && site.sectors == pasta::kNullI64 && site.space == pasta::Space::shared);
  CHECK(site.executions == 1 && site.lanes == 32 && site.bytes == 128 && site.kind == pasta::AccessSiteKind::store);
}

void test_sites_that_do_not_fit_are_counted() {
  TestSlot slot({});
  slot.header().site_capacity = 64;
  for (uint64_t pc = 0; pc < 100 * 16; pc += 16) {
    warp::run(1, [&](uint32_t) { reduce_plain_site(slot.header(), 1, pc, MemorySpace::local, 4, AccessKind::load); });
  }
  int64_t found = 0;
  for (const auto& row : slot.decode().sites) found += row.row.executions;
  CHECK(found == 64 && slot.header().totals->lost_sites == 36);
  // pc 0 has a key too, and keys give their parts back.
  CHECK(site_key(0, MemorySpace::global) != 0);
  CHECK(site_pc(site_key(0x1230, MemorySpace::local)) == 0x1230);
  CHECK(site_space(site_key(0x1230, MemorySpace::local)) == MemorySpace::local);
}

// What one launch appends, read back lane by lane.
struct Traced {
  std::vector<TraceRecord> records;
  Totals totals{};
  SlotHeader header{};

  explicit Traced(size_t room) : records(room) {
    header.totals = &totals;
    header.trace = records.data(), header.trace_capacity = static_cast<uint32_t>(room);
  }
  void access(uint32_t active, const std::function<uint64_t(uint32_t)>& address) {
    warp::run(active, [&](uint32_t lane) {
      trace_warp(header, active, 0x1230, MemorySpace::global, address(lane), 4, AccessKind::store);
    });
  }
};

void test_trace_of_even_and_uneven_lanes() {
  Traced trace(32);
  const uint32_t active = 0b10110;
  trace.access(active, [](uint32_t lane) { return kMiB - 100 * lane; });  // 1, 2 and 4: no even spacing
  trace.access(kWarp, [](uint32_t lane) { return kMiB - 8 * lane; });
  trace.access(0b1000, [](uint32_t) { return 5 * kMiB; });
  warp::run(1u << 7, [&](uint32_t) { trace_span(trace.header, 0x50, 9, 1 << 20, AccessKind::load); });
  CHECK(trace.totals.trace_wanted == 5 && trace.totals.trace_lost == 0);
  const TraceRecord& uneven = trace.records[0];
  CHECK(traced_scattered(uneven.what) && uneven.lanes == active && traced_pc(uneven.what) == 0x1230);
  CHECK(traced_kind(uneven.what) == AccessKind::store && traced_space(uneven.what) == MemorySpace::global);
  const uint64_t* const addresses = reinterpret_cast<const uint64_t*>(&trace.records[1]);
  CHECK(addresses[0] == kMiB - 100 && addresses[1] == kMiB - 200 && addresses[2] == kMiB - 400);
  const TraceRecord& even = trace.records[2];
  CHECK(!traced_scattered(even.what) && even.lanes == kWarp && even.address == kMiB && even.stride == -8);
  CHECK(even.bytes == 4 && trace.records[3].lanes == 0b1000 && trace.records[3].stride == 0);
  CHECK(trace.records[4].lanes == 1u << 7 && trace.records[4].bytes == 1 << 20 && trace.records[4].address == 9);
}

// 9 records of a warp whose lanes are anywhere, into room for 20: two fit, the third ends the trace, and later ones
// that would fit are lost too.
void test_trace_that_is_full() {
  Traced trace(20);
  for (int i = 0; i < 3; ++i) trace.access(kWarp, [](uint32_t lane) { return kMiB + lane * lane * 4; });
  trace.access(1, [](uint32_t) { return kMiB; });
  CHECK(trace.totals.trace_wanted == 28 && trace.totals.trace_lost == 2);
  CHECK(trace.records[9].lanes == kWarp && trace.records[18].lanes == 0);
}

void test_tensor_loads_keep_their_extremes() {
  TestSlot slot({});
  uint64_t map[16] = {1, 2, 3};
  uint64_t other[16] = {1, 2, 4};
  CHECK(tensor_map_hash(map) != tensor_map_hash(other));
  for (const int32_t row : {64, -3, 128}) {
    const int32_t at[kTensorRank] = {0, row, 0, 0, 0};
    warp::run(1, [&](uint32_t) { reduce_tensor_load(slot.header(), 0x50, map, at, 0); });
  }
  const TensorMapEntry* entry = nullptr;
  for (uint32_t i = 0; i < slot.header().tensor_map_capacity; ++i) {
    if (slot.header().tensor_maps[i].key != 0) entry = slot.header().tensor_maps + i;
  }
  CHECK(entry != nullptr && entry->executions == 3 && entry->pc == 0x50);
  CHECK(std::equal(std::begin(map), std::end(map), entry->map));
  CHECK(coordinate_of(entry->highest[1]) == 128 && coordinate_of(~entry->inverted_lowest[1]) == -3);
  CHECK(coordinate_of(entry->highest[0]) == 0 && coordinate_of(~entry->inverted_lowest[0]) == 0);
}

}  // namespace

int main() {
  test_lookup_checks_both_ends();
  in_every_room([] {
    test_vector_add();
    test_strides();
    test_broadcast_needs_one_sector();
    test_unknown_addresses_are_nobodys();
    test_random_against_plain_count();
  });
  test_extremes_of_neighbours();
  test_an_access_across_the_end();
  test_pages_of_unaligned_object();
  test_span_clips_to_its_object();
  test_bank_conflicts();
  test_shared_site_counts_extra_passes();
  test_sites_that_do_not_fit_are_counted();
  test_trace_of_even_and_uneven_lanes();
  test_trace_that_is_full();
  test_tensor_loads_keep_their_extremes();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
