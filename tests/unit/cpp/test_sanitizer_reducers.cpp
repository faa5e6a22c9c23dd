// The device reducers on the CPU, lane by lane: counts against closed forms and against a count made access by access.
#include "check.h"

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "device/nvidia/full_reducer.h"
#include "device/nvidia/object_reducer.h"
#include "device/nvidia/site_reducer.h"
#include "device/nvidia/tensor_map_reducer.h"
#include "device/nvidia/trace_writer.h"
#include "warp_emulator.h"

using namespace pasta::nvidia;

namespace {

constexpr uint32_t kFull = 0xffffffff;
constexpr uint64_t kMiB = 1 << 20;

// Room for hot counters: none, too little for the larger tests, enough.
size_t g_hot_capacity = 0;

// A slot in host memory over the given objects (begin, bytes).
struct TestSlot {
  std::vector<Range> ranges;
  std::vector<ObjectCounters> objects;
  std::vector<uint32_t> pages;
  std::vector<uint64_t> blocks;
  std::vector<HotCounter> hot = std::vector<HotCounter>(g_hot_capacity);
  std::vector<SiteEntry> sites = std::vector<SiteEntry>(64);
  std::vector<TensorMapEntry> tensor_maps = std::vector<TensorMapEntry>(8);
  Totals totals{};
  SlotHeader header{};

  explicit TestSlot(const std::vector<std::pair<uint64_t, uint64_t>>& memory) {
    uint32_t word = 0, block = 0;
    for (const auto& [begin, bytes] : memory) {
      const uint32_t own_blocks = static_cast<uint32_t>(((bytes - 1) >> kBlockShift) + 1);
      ranges.push_back({begin, begin + bytes, word, own_blocks > 1 ? block : kUntracked});
      word += static_cast<uint32_t>(page_of(begin, begin + bytes - 1) / 32 + 1);
      if (own_blocks > 1) block += own_blocks;
    }
    objects.resize(ranges.size() + 1);
    pages.resize(word);
    blocks.resize(block);
    header.ranges = ranges.data(), header.range_count = static_cast<uint32_t>(ranges.size());
    header.totals = &totals;
    header.objects = objects.data(), header.pages = pages.data(), header.blocks = blocks.data();
    header.hot = hot.data(), header.hot_capacity = static_cast<uint32_t>(hot.size());
    header.sites = sites.data(), header.site_capacity = static_cast<uint32_t>(sites.size());
    header.tensor_maps = tensor_maps.data(), header.tensor_map_capacity = static_cast<uint32_t>(tensor_maps.size());
    header.features = kObjects | kSites | kBlocks;
  }
  // Adds the hot counters to those that they stand for, as the host does.
  TestSlot& fold() {
    for (const HotCounter& counter : hot) {
      if (counter.key == 0) continue;
      const uint64_t name = hot_name(counter.key);
      if (hot_kind(counter.key) == HotKind::object) {
        (&objects[name / kCountersOfObject].lanes[0][0])[name % kCountersOfObject] += counter.count;
      } else if (hot_kind(counter.key) == HotKind::block) {
        blocks[name] += counter.count;
      } else {
        const SiteShape shape = SiteShape::of(name);
        SiteEntry* const site = find_entry(sites.data(), header.site_capacity, site_key(shape.pc, MemorySpace::global));
        CHECK(site != nullptr);
        site->kind = static_cast<uint32_t>(shape.kind);
        site->executions += counter.count;
        site->lanes += counter.count * shape.lanes;
        site->bytes += counter.count * shape.bytes();
        site->sectors += counter.count * shape.sectors;
        site->ideal_sectors += counter.count * shape.ideal_sectors();
        site->lane_counts |= 1u << (shape.lanes - 1);
      }
    }
    std::fill(hot.begin(), hot.end(), HotCounter{});
    return *this;
  }
  uint64_t lanes(size_t object, AccessKind kind, uint32_t bytes) const {
    return objects[object].lanes[static_cast<uint32_t>(kind)][size_class(bytes)];
  }
  uint64_t in_block(size_t object, uint64_t block) const {
    if (ranges[object].first_block != kUntracked) return blocks[ranges[object].first_block + block];
    uint64_t sum = 0;  // its only block
    for (const auto& kind : objects[object].lanes) {
      for (const uint64_t lanes : kind) sum += lanes;
    }
    return sum;
  }
  uint64_t first(size_t object) const { return ~objects[object].inverted_first; }
  uint64_t last(size_t object) const { return objects[object].end - 1; }
  int pages_set() const {
    int set = 0;
    for (const uint32_t word : pages) set += __builtin_popcount(word);
    return set;
  }
  const SiteEntry* site(uint64_t pc, MemorySpace space) const {
    for (const SiteEntry& entry : sites) {
      if (entry.key == site_key(pc, space)) return &entry;
    }
    return nullptr;
  }
};

void access(TestSlot& slot, uint32_t active, uint64_t pc, const std::function<uint64_t(uint32_t)>& address,
            uint32_t bytes, AccessKind kind) {
  warp::g_multiprocessor += 5;
  warp::run(active, [&](uint32_t lane) { reduce_all(slot.header, active, pc, address(lane), bytes, kind); });
}

void test_lookup_checks_both_ends() {
  const TestSlot slot({{0x1000, 0x100}, {0x2000, 0x1000}, {0x3000, 0x10}});
  const auto index = [&](uint64_t address) { return find_range(slot.ranges.data(), 3, address).index; };
  CHECK(index(0xfff) == 3);
  CHECK(index(0x1000) == 0 && index(0x10ff) == 0);
  CHECK(index(0x1100) == 3 && index(0x1fff) == 3);  // past the end: nobody's, not the object before
  CHECK(index(0x2000) == 1 && index(0x2fff) == 1);
  CHECK(index(0x3000) == 2 && index(0x3010) == 3 && index(UINT64_MAX) == 3);
  const Found gap = find_range(slot.ranges.data(), 3, 0x1800);
  CHECK(gap.begin == 0x1100 && gap.end == 0x2000);
  CHECK(find_range(nullptr, 0, 5).index == 0);
}

// c[i] = a[i] + b[i] over 4,096 floats: 128 warps, 3 accesses of 4 bytes a thread, each array touched whole. Done
// twice: the second time nothing but the counts is new.
void test_vector_add() {
  constexpr uint64_t kN = 4096, a = 64 * kMiB, b = 80 * kMiB, c = 96 * kMiB;
  TestSlot slot({{a, kN * 4}, {b, kN * 4}, {c, kN * 4}});
  for (uint64_t at = 0; at < 2 * kN; at += 32) {
    const uint64_t i = at % kN;
    access(slot, kFull, 0x10, [&](uint32_t lane) { return a + (i + lane) * 4; }, 4, AccessKind::load);
    access(slot, kFull, 0x20, [&](uint32_t lane) { return b + (i + lane) * 4; }, 4, AccessKind::load);
    access(slot, kFull, 0x30, [&](uint32_t lane) { return c + (i + lane) * 4; }, 4, AccessKind::store);
  }
  slot.fold();
  for (size_t object = 0; object < 3; ++object) {
    CHECK(slot.lanes(object, object == 2 ? AccessKind::store : AccessKind::load, 4) == 2 * kN);
    CHECK(slot.first(object) == 0 && slot.last(object) == kN * 4 - 1);
    CHECK(slot.in_block(object, 0) == 2 * kN);
  }
  CHECK(slot.pages_set() == 3 * 4);  // 16 KiB each
  const SiteEntry* site = slot.site(0x10, MemorySpace::global);
  CHECK(site != nullptr);
  CHECK(site->executions == 256 && site->lanes == 2 * kN && site->bytes == 2 * kN * 4);
  CHECK(site->sectors == 256 * 4 && site->ideal_sectors == 256 * 4);  // 128 bytes a warp
  CHECK(site->lane_counts == 1u << 31);
}

// Lanes `stride` floats apart: each sector of 8 floats is shared by 8 / stride lanes.
void test_strides() {
  for (const uint32_t stride : {1, 2, 4, 8, 16, 32}) {
    TestSlot slot({{kMiB, kMiB}});
    access(slot, kFull, 0x10, [&](uint32_t lane) { return kMiB + lane * stride * 4; }, 4, AccessKind::load);
    const SiteEntry* site = slot.fold().site(0x10, MemorySpace::global);
    CHECK(site->sectors == (stride < 8 ? 4 * stride : 32));
    CHECK(site->ideal_sectors == 4);
  }
}

void test_broadcast_needs_one_sector() {
  TestSlot slot({{kMiB, kMiB}});
  access(slot, kFull, 0x10, [](uint32_t) { return kMiB + 64; }, 8, AccessKind::load);
  const SiteEntry* site = slot.fold().site(0x10, MemorySpace::global);
  CHECK(site->sectors == 1 && site->ideal_sectors == 1 && site->lanes == 32 && site->bytes == 256);
}

void test_unknown_addresses_are_nobodys() {
  TestSlot slot({{kMiB, 4096}});
  access(slot, kFull, 0x10, [](uint32_t lane) { return kMiB + 4096 - 64 + lane * 4; }, 4, AccessKind::store);
  slot.fold();
  CHECK(slot.lanes(0, AccessKind::store, 4) == 16);
  CHECK(slot.lanes(1, AccessKind::store, 4) == 16);
  CHECK(slot.last(0) == 4095);
}

// The last byte grows with an access that begins where the one before ended, and with one that reaches further.
void test_extremes_of_neighbours() {
  TestSlot slot({{kMiB, 4096}});
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint32_t>{64, 8}, {72, 8}, {72, 16}, {60, 4}}) {
    access(slot, 1, 0x10, [&, offset = offset](uint32_t) { return kMiB + offset; }, bytes, AccessKind::load);
  }
  CHECK(slot.first(0) == 60 && slot.last(0) == 87);
}

// A page's bit is that of the address space: an object that begins within a page shares it.
void test_pages_of_unaligned_object() {
  TestSlot slot({{kMiB + 4000, 200}});
  access(slot, 0b11, 0x10, [](uint32_t lane) { return kMiB + 4000 + lane * 100; }, 4, AccessKind::load);
  CHECK(slot.pages_set() == 2);
}

void test_span_clips_to_its_object() {
  TestSlot slot({{kMiB, 3 * 4096}});
  warp::run(1, [&](uint32_t) { reduce_span<true>(slot.header, 0x10, kMiB + 4096, 100 * 4096, AccessKind::load); });
  CHECK(slot.objects[0].odd_count[0] == 1 && slot.objects[0].odd_bytes[0] == 100 * 4096);
  CHECK(slot.first(0) == 4096 && slot.last(0) == 3 * 4096 - 1);
  CHECK(slot.pages_set() == 2);
}

// Random warps over random objects against a count that goes access by access and shares no code.
void test_random_against_plain_count() {
  std::mt19937_64 random(7);
  std::vector<std::pair<uint64_t, uint64_t>> memory;
  uint64_t at = kMiB;
  for (int i = 0; i < 40; ++i) {
    const uint64_t bytes = 16 + random() % (3 * kMiB) / 16 * 16;
    memory.emplace_back(at, bytes);
    at += (bytes + random() % 8192) / 16 * 16 + 16;
  }
  TestSlot slot(memory), objects_alone(memory);
  struct Count {
    std::map<std::pair<int, uint32_t>, uint64_t> lanes;
    std::set<uint64_t> pages;
    std::map<uint64_t, uint64_t> blocks;
    uint64_t first = UINT64_MAX, last = 0;
  };
  std::map<size_t, Count> expected;
  struct SiteCount {
    uint64_t executions = 0, lanes = 0, bytes = 0, sectors = 0, ideal = 0;
    uint32_t lane_counts = 0;
  };
  std::map<uint64_t, SiteCount> expected_sites;
  for (int round = 0; round < 2000; ++round) {
    const uint32_t active = static_cast<uint32_t>(random()) | 1u << (random() % 32);
    const uint32_t bytes = 1u << (random() % 5);
    const int kind = static_cast<int>(random() % 3);
    std::array<uint64_t, 32> addresses;
    for (uint64_t& address : addresses) {
      const auto& [begin, size] = memory[random() % (round % 2 == 0 ? 2 : memory.size())];
      address = (begin + random() % size) / bytes * bytes;
    }
    access(slot, active, 16 * (round % 50), [&](uint32_t lane) { return addresses[lane]; }, bytes,
           static_cast<AccessKind>(kind));
    warp::run(active, [&](uint32_t lane) {
      reduce_objects(objects_alone.header, active, 16 * (round % 50), addresses[lane], bytes,
                     static_cast<AccessKind>(kind));
    });
    SiteCount& site = expected_sites[16 * (round % 50)];
    std::set<uint64_t> sectors;
    for (uint32_t lane = 0; lane < 32; ++lane) {
      if ((active >> lane & 1) == 0) continue;
      sectors.insert(addresses[lane] / 32);
      ++site.lanes;
      size_t object = memory.size();
      for (size_t i = 0; i < memory.size(); ++i) {
        const bool inside = addresses[lane] >= memory[i].first && addresses[lane] < memory[i].first + memory[i].second;
        if (inside) object = i;
      }
      Count& count = expected[object];
      ++count.lanes[{kind, bytes}];
      if (object == memory.size()) continue;
      const uint64_t offset = addresses[lane] - memory[object].first;
      count.pages.insert(addresses[lane] / 4096);
      ++count.blocks[offset / (2 * kMiB)];
      count.first = std::min(count.first, offset);
      count.last = std::max(count.last, offset + bytes - 1);
    }
    const uint64_t lanes = static_cast<uint64_t>(__builtin_popcount(active));
    ++site.executions;
    site.bytes += lanes * bytes;
    site.sectors += sectors.size();
    site.ideal += std::min<uint64_t>((lanes * bytes + 31) / 32, sectors.size());
    site.lane_counts |= 1u << (lanes - 1);
  }
  slot.fold();
  for (const auto& [pc, count] : expected_sites) {
    const SiteEntry* site = slot.site(pc, MemorySpace::global);
    CHECK(site->executions == count.executions && site->lanes == count.lanes && site->bytes == count.bytes);
    CHECK(site->sectors == count.sectors && site->ideal_sectors == count.ideal);
    CHECK(site->lane_counts == count.lane_counts);
  }
  for (const auto& [object, count] : expected) {
    for (const auto& [key, lanes] : count.lanes) {
      CHECK(slot.lanes(object, static_cast<AccessKind>(key.first), key.second) == lanes);
    }
    if (object == memory.size()) continue;
    CHECK(slot.first(object) == count.first && slot.last(object) == count.last);
    for (const auto& [block, accesses] : count.blocks) {
      CHECK(slot.in_block(object, block) == accesses);
    }
    for (const uint64_t page : count.pages) {
      const uint64_t bit = page - memory[object].first / 4096;
      CHECK((slot.pages[slot.ranges[object].page_word + bit / 32] >> (bit % 32) & 1) == 1);
    }
  }
  objects_alone.fold();
  for (size_t i = 0; i <= memory.size(); ++i) {
    CHECK(std::memcmp(&slot.objects[i], &objects_alone.objects[i], sizeof(ObjectCounters)) == 0);
  }
  CHECK(slot.pages == objects_alone.pages);
  size_t pages = 0;
  for (const auto& [object, count] : expected) pages += count.pages.size();
  CHECK(static_cast<size_t>(slot.pages_set()) == pages);
}

uint32_t passes(uint32_t active, const std::function<uint32_t(uint32_t)>& address, uint32_t bytes) {
  uint32_t result = 0;
  warp::run(active, [&](uint32_t lane) { result = shared_passes(active, address(lane), bytes); });
  return result;
}

// Shared memory has 32 banks of 4 bytes; lanes that ask for the same word share it.
void test_bank_conflicts() {
  for (const uint32_t stride : {1, 2, 4, 8, 16, 32}) {
    CHECK(passes(kFull, [&](uint32_t lane) { return lane * stride * 4; }, 4) == stride);
  }
  CHECK(passes(kFull, [](uint32_t lane) { return lane * 33 * 4; }, 4) == 1);  // a padded column
  CHECK(passes(kFull, [](uint32_t) { return 128u; }, 4) == 1);                 // broadcast
  CHECK(passes(kFull, [](uint32_t lane) { return lane; }, 1) == 1);            // bytes of 8 words
  CHECK(passes(kFull, [](uint32_t lane) { return lane * 8; }, 8) == 2);        // 256 bytes
  CHECK(passes(kFull, [](uint32_t lane) { return lane * 16; }, 16) == 4);      // 512 bytes
  CHECK(passes(0xff, [](uint32_t lane) { return lane * 128; }, 16) == 8);      // 8 rows in one bank group
  CHECK(passes(0b11, [](uint32_t lane) { return lane * 128; }, 4) == 2);
}

void test_shared_site_counts_extra_passes() {
  TestSlot slot({});
  warp::run(kFull, [&](uint32_t lane) {
    reduce_shared_site(slot.header, kFull, 0x40, lane * 8 * 4, 4, AccessKind::store);
  });
  const SiteEntry* site = slot.site(0x40, MemorySpace::shared);
  CHECK(site != nullptr && site->bank_conflicts == 7 && site->sectors == 0);
  CHECK(site->executions == 1 && site->lanes == 32 && site->bytes == 128);
  CHECK(site->kind == static_cast<uint32_t>(AccessKind::store));
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
  trace.access(kFull, [](uint32_t lane) { return kMiB - 8 * lane; });
  trace.access(0b1000, [](uint32_t) { return 5 * kMiB; });
  warp::run(1u << 7, [&](uint32_t) { trace_span(trace.header, 0x50, 9, 1 << 20, AccessKind::load); });
  CHECK(trace.totals.trace_wanted == 5 && trace.totals.trace_lost == 0);
  const TraceRecord& uneven = trace.records[0];
  CHECK(traced_scattered(uneven.what) && uneven.lanes == active && traced_pc(uneven.what) == 0x1230);
  CHECK(traced_kind(uneven.what) == AccessKind::store && traced_space(uneven.what) == MemorySpace::global);
  const uint64_t* const addresses = reinterpret_cast<const uint64_t*>(&trace.records[1]);
  CHECK(addresses[0] == kMiB - 100 && addresses[1] == kMiB - 200 && addresses[2] == kMiB - 400);
  const TraceRecord& even = trace.records[2];
  CHECK(!traced_scattered(even.what) && even.lanes == kFull && even.address == kMiB && even.stride == -8);
  CHECK(even.bytes == 4 && trace.records[3].lanes == 0b1000 && trace.records[3].stride == 0);
  CHECK(trace.records[4].lanes == 1u << 7 && trace.records[4].bytes == 1 << 20 && trace.records[4].address == 9);
}

// 9 records of a warp whose lanes are anywhere, into room for 20: two fit, the third ends the trace, and later ones
// that would fit are lost too.
void test_trace_that_is_full() {
  Traced trace(20);
  for (int i = 0; i < 3; ++i) trace.access(kFull, [](uint32_t lane) { return kMiB + lane * lane * 4; });
  trace.access(1, [](uint32_t) { return kMiB; });
  CHECK(trace.totals.trace_wanted == 28 && trace.totals.trace_lost == 2);
  CHECK(trace.records[9].lanes == kFull && trace.records[18].lanes == 0);
}

void test_sites_that_do_not_fit_are_counted() {
  TestSlot slot({});
  for (uint64_t pc = 0; pc < 100 * 16; pc += 16) {  // 64 places
    warp::run(1, [&](uint32_t) { reduce_plain_site(slot.header, 1, pc, MemorySpace::local, 4, AccessKind::load); });
  }
  uint64_t found = 0;
  for (const SiteEntry& entry : slot.sites) found += entry.executions;
  CHECK(found == 64 && slot.totals.lost_sites == 36);
  // pc 0 has a key too, and keys give their parts back.
  CHECK(site_key(0, MemorySpace::global) != 0);
  CHECK(site_pc(site_key(0x1230, MemorySpace::local)) == 0x1230);
  CHECK(site_space(site_key(0x1230, MemorySpace::local)) == MemorySpace::local);
}

void test_tensor_loads_keep_their_extremes() {
  TestSlot slot({});
  uint64_t map[16] = {1, 2, 3};
  uint64_t other[16] = {1, 2, 4};
  CHECK(tensor_map_hash(map) != tensor_map_hash(other));
  for (const int32_t row : {64, -3, 128}) {
    const int32_t at[kTensorRank] = {0, row, 0, 0, 0};
    warp::run(1, [&](uint32_t) { reduce_tensor_load(slot.header, 0x50, map, at, 0); });
  }
  const TensorMapEntry* entry = nullptr;
  for (const TensorMapEntry& candidate : slot.tensor_maps) {
    if (candidate.key != 0) entry = &candidate;
  }
  CHECK(entry != nullptr && entry->executions == 3 && entry->hash == tensor_map_hash(map) && entry->pc == 0x50);
  CHECK(coordinate_of(entry->highest[1]) == 128 && coordinate_of(~entry->inverted_lowest[1]) == -3);
  CHECK(coordinate_of(entry->highest[0]) == 0 && coordinate_of(~entry->inverted_lowest[0]) == 0);
}

}  // namespace

int main() {
  test_lookup_checks_both_ends();
  for (const size_t capacity : {0, 16, 4096}) {
    g_hot_capacity = capacity;
    test_vector_add();
    test_strides();
    test_broadcast_needs_one_sector();
    test_unknown_addresses_are_nobodys();
    test_random_against_plain_count();
  }
  test_extremes_of_neighbours();
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
