// Slots of the memory pass on CUDA, read back: their rows.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "backends/sanitizer/decode.h"
#include "backends/sanitizer/normalize.h"
#include "backends/sanitizer/objects.h"
#include "backends/sanitizer/page_counts.h"
#include "backends/sanitizer/slot_layout.h"
#include "backends/sanitizer/slots.h"
#include "backends/sanitizer/tensor_maps.h"
#include "device/nvidia/hot_counters.h"
#include "device/nvidia/quick.h"
#include "device/nvidia/site_reducer.h"
#include "device/nvidia/tensor_map_reducer.h"
#include "device/nvidia/trace_writer.h"
#include "host_slot.h"
#include "patched.h"
#include "warp_emulator.h"

using namespace pasta;
using namespace pasta::sanitizer;
using nvidia::AccessKind;
using nvidia::MemorySpace;

namespace {

constexpr uint64_t kMiB = 1 << 20;

void test_pages_of_each_size() {
  uint32_t bitmap[64] = {};
  // The object begins in the last 4 KiB page of a 64 KiB page: bit 0 is alone there, bits 1 and 2 are in the next.
  const uint64_t begin = 2 * kMiB - 4096, end = begin + 4 * kMiB;
  bitmap[0] = 0b111;
  bitmap[33] = 1;  // page 1056, 4.1 MiB after 2 MiB's start: beyond the next 2 MiB
  PageCounts pages;
  pages.add(bitmap, begin, end + 4 * kMiB);
  CHECK(pages.small == 4 && pages.medium == 3 && pages.large == 3);
}

// Two ranges meet within a page, and within larger ones.
void test_pages_of_neighbours_are_counted_once() {
  PageCounts pages;
  const uint32_t first = 0b101, second = 0b1101;
  pages.add(&first, 2 * kMiB, 2 * kMiB + 2 * 4096 + 512);
  pages.add(&second, 2 * kMiB + 2 * 4096 + 512, 2 * kMiB + 6 * 4096);
  CHECK(pages.small == 4 && pages.medium == 1 && pages.large == 1);
  std::vector<uint32_t> all(32, UINT32_MAX);  // 4 MiB
  PageCounts many;
  many.add(all.data(), 4 * kMiB, 8 * kMiB);
  many.add(all.data(), 8 * kMiB, 12 * kMiB);
  CHECK(many.small == 2048 && many.medium == 128 && many.large == 4);
}

// A slot filled by hand, read back.
struct Filled {
  MemoryObjects objects{1 << 20};
  std::shared_ptr<const Snapshot> snapshot;
  HostSlot slot;
  nvidia::SlotHeader header{};
  TensorMaps maps;
  uint32_t features;

  explicit Filled(uint32_t more_features = 0) {
    objects.add(object(5, 4 * kMiB, 3 * kMiB));
    objects.add(object(6, 16 * kMiB, kMiB));
    features = nvidia::kObjects | nvidia::kSites | nvidia::kBlocks | more_features;
    reset();
  }
  DecodedSlot decode() { return slot.decode(*snapshot, maps); }
  void reset() {
    snapshot = objects.snapshot();
    slot = HostSlot(*snapshot->cuts, SlotLayout::of(*snapshot->cuts, features, 4096));
    header = slot.header();
  }
};

void test_empty_slot_has_no_rows() {
  Filled slot;
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.objects.empty() && decoded.sites.empty() && decoded.blocks.empty());
}

void test_counters_become_rows() {
  Filled slot;
  nvidia::ObjectCounters& counters = slot.header.objects[0];
  counters.count[0] = 111, counters.bytes[0] = 400 + 160 + 48;
  counters.count[1] = 7, counters.bytes[1] = 56;
  counters.count[2] = 3, counters.bytes[2] = 12;
  counters.end = 2 * kMiB + 4096;
  counters.inverted_first = ~uint64_t{4096};
  slot.header.pages[slot.snapshot->cuts->ranges[0].page_word] = 0b10;
  slot.header.pages[slot.snapshot->cuts->ranges[0].page_word + 16] = 0b1;  // page 512: the second 2 MiB
  slot.header.blocks[0] = 90, slot.header.blocks[1] = 31;
  slot.header.objects[slot.header.range_count].count[1] = 2;  // at addresses that nobody holds
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.objects.size() == 2);
  const AccessObjectRecord& row = decoded.objects[0];
  CHECK(row.launch_id == 77 && row.object_id == 5 && row.space == Space::global);
  CHECK(row.loads == 111 && row.load_bytes == 400 + 160 + 48);
  CHECK(row.stores == 7 && row.store_bytes == 56 && row.atomics == 3 && row.atomic_bytes == 12);
  CHECK(row.first_offset == 4096 && row.last_offset == static_cast<int64_t>(2 * kMiB + 4095));
  CHECK(row.pages_4k == 2 && row.pages_64k == 2 && row.pages_2m == 2 && row.lines == kNullI64);
  CHECK(decoded.objects[1].object_id == kNullI64 && decoded.objects[1].stores == 2);
  CHECK(decoded.objects[1].first_offset == kNullI64 && decoded.objects[1].pages_4k == kNullI64);
  CHECK(decoded.blocks.size() == 2);
  CHECK(decoded.blocks[0].offset == 0 && decoded.blocks[0].accesses == 90);
  CHECK(decoded.blocks[0].bytes == static_cast<int64_t>(2 * kMiB) && decoded.blocks[0].start_ns == 1234);
  CHECK(decoded.blocks[1].offset == static_cast<int64_t>(2 * kMiB));
  CHECK(decoded.blocks[1].bytes == static_cast<int64_t>(kMiB) && decoded.blocks[1].accesses == 31);
}

void test_tensors_have_rows_of_their_own() {
  Filled slot;
  slot.objects.add_tensor(50, 4 * kMiB + 4096, 4096);
  slot.reset();
  for (const size_t piece : {0, 1, 2}) {  // before the tensor, it, after it
    nvidia::ObjectCounters& counters = slot.header.objects[piece];
    counters.count[0] = 10 * (piece + 1);
    counters.end = 8, counters.inverted_first = ~uint64_t{4};
    slot.header.pages[slot.snapshot->cuts->ranges[piece].page_word] = 1;
  }
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.objects.size() == 2);
  const AccessObjectRecord &rest = decoded.objects[0], &tensor = decoded.objects[1];
  CHECK(rest.object_id == 5 && rest.tensor_id == kNullI64 && rest.loads == 40 && rest.pages_4k == 2);
  CHECK(rest.first_offset == 4 && rest.last_offset == 8192 + 7);
  CHECK(tensor.object_id == 5 && tensor.tensor_id == 50 && tensor.loads == 20 && tensor.pages_4k == 1);
  CHECK(tensor.first_offset == 4096 + 4 && tensor.last_offset == 4096 + 7);
}

// The same rows, whether memory was cut only where its tensors are now or also where there were others before.
void test_old_cuts_change_no_rows() {
  std::mt19937 random(7);
  const auto dice = [&](uint64_t below) { return random() % below; };
  size_t objects_seen = 0, blocks_seen = 0;
  for (int round = 0; round < 40; ++round) {
    MemoryObjects then(1 << 20), now(1 << 20);
    for (MemoryObjects* objects : {&then, &now}) {
      objects->add(object(1, 2 * kMiB, 3 * kMiB));
      objects->add(object(2, 64 * kMiB, 64 * kMiB), true);  // a reservation
    }
    std::map<uint64_t, uint64_t> tensors;  // bytes by address
    const auto gone = [&](uint64_t address) { then.take_tensor(address), tensors.erase(address); };
    for (int i = 0; i < 60; ++i) {
      const uint64_t begin = (dice(2) == 0 ? 2 * kMiB : 64 * kMiB) + 512 * dice(4000), bytes = 512 * (1 + dice(2000));
      for (auto tensor = tensors.begin(); tensor != tensors.end();) {
        const auto [address, size] = *tensor++;
        if ((address < begin + bytes && begin < address + size) || dice(4) == 0) gone(address);
      }
      then.add_tensor(static_cast<int64_t>(begin), begin, bytes);
      tensors[begin] = bytes;
      then.snapshot();
    }
    for (const auto& [address, bytes] : tensors) now.add_tensor(static_cast<int64_t>(address), address, bytes);
    std::array<std::shared_ptr<const Snapshot>, 2> snapshots = {then.snapshot(), now.snapshot()};
    std::array<HostSlot, 2> slots;
    for (size_t k = 0; k < 2; ++k) {
      const Cuts& cuts = *snapshots[k]->cuts;
      slots[k] = HostSlot(cuts, SlotLayout::of(cuts, nvidia::kObjects | nvidia::kBlocks));
    }
    CHECK(snapshots[0]->cuts->ranges.size() > snapshots[1]->cuts->ranges.size());
    for (int i = 0; i < 200; ++i) {
      const uint64_t address = (dice(2) == 0 ? 2 * kMiB : 64 * kMiB) + 16 * dice(64 << 10);
      const uint64_t bytes = 16 * (1 + dice(1000));
      const bool span = dice(4) == 0 && tensors.upper_bound(address) != tensors.begin() &&
                        address + bytes <= std::prev(tensors.upper_bound(address))->first +
                                               std::prev(tensors.upper_bound(address))->second;
      for (HostSlot& slot : slots) {
        const nvidia::SlotHeader& header = slot.header();
        warp::run(span ? 1 : UINT32_MAX, [&](uint32_t lane) {
          if (span) nvidia::reduce_span<true>(header, address, bytes, AccessKind::load);
          else patched::all(header, 0x10, address + lane * 16, 16, AccessKind::store);
        });
      }
    }
    std::array<DecodedSlot, 2> decoded;
    for (size_t k = 0; k < 2; ++k) decoded[k] = slots[k].decode(*snapshots[k], TensorMaps(), true);
    CHECK(decoded[0].objects.size() == decoded[1].objects.size());
    objects_seen += decoded[0].objects.size();
    for (size_t i = 0; i < std::min(decoded[0].objects.size(), decoded[1].objects.size()); ++i) {
      CHECK(std::memcmp(&decoded[0].objects[i], &decoded[1].objects[i], sizeof(AccessObjectRecord)) == 0);
    }
    std::array<std::map<std::pair<int64_t, int64_t>, std::pair<int64_t, int64_t>>, 2> blocks;  // of tensors
    std::array<int64_t, 2> accesses{};
    for (size_t k = 0; k < 2; ++k) {
      for (const AccessBlockRecord& row : decoded[k].blocks) {
        if (row.object_id == 1) accesses[k] += row.accesses;
        const uint64_t at = static_cast<uint64_t>(row.offset) + (row.object_id == 1 ? 2 : 64) * kMiB;
        if (tensors.count(at) != 0) blocks[k][{row.object_id, row.offset}] = {row.bytes, row.accesses};
      }
    }
    CHECK(blocks[0] == blocks[1]);
    blocks_seen += blocks[0].size();
    CHECK(accesses[0] == accesses[1]);
  }
  CHECK(objects_seen > 3 * 40 && blocks_seen > 40);
}

void test_sites_become_rows() {
  Filled slot;
  slot.header.sites[5] = {nvidia::site_key(0x700, MemorySpace::global), 10, 320, 1280, 80, 40, 0, 1, 1u << 31};
  slot.header.sites[9] = {nvidia::site_key(0x300, MemorySpace::shared), 4, 128, 512, 0, 0, 28, 0, 0};
  slot.header.sites[1] = {nvidia::site_key(0x900, MemorySpace::local), 2, 64, 256, 0, 0, 0, 0, 0};
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.sites.size() == 3);
  CHECK(decoded.sites[0].pc == 0x300 && decoded.sites[1].pc == 0x700 && decoded.sites[2].pc == 0x900);
  const AccessSiteRecord& shared = decoded.sites[0].row;
  CHECK(shared.space == Space::shared && shared.bank_conflicts == 28 && shared.sectors == kNullI64);
  const AccessSiteRecord& global = decoded.sites[1].row;
  CHECK(global.kind == AccessSiteKind::store && global.space == Space::global && global.executions == 10);
  CHECK(global.lanes == 320 && global.bytes == 1280 && global.sectors == 80 && global.ideal_sectors == 40);
  CHECK(global.bank_conflicts == kNullI64);
  CHECK(decoded.sites[2].row.sectors == kNullI64 && decoded.sites[2].row.bytes == 256);
  CHECK(global.min_lanes == 32 && global.max_lanes == 32 && shared.max_lanes == kNullI32);
}

// What was counted apart is added to the counters that all share.
void test_quick_and_hot_counters_are_added_up() {
  Filled slot;
  auto* const quick = reinterpret_cast<uint64_t*>(slot.slot.parts().front + nvidia::kQuickFull.counters_at);
  auto* const keys = reinterpret_cast<uint64_t*>(slot.slot.parts().front + nvidia::kQuickFull.keys_at);
  keys[9] = nvidia::quick_key(0x7f00777770, 0, 2);  // loads of 4 bytes of object 5
  quick[9 * nvidia::kQuickFull.row + 3] = 6, quick[9 * nvidia::kQuickFull.row + 31] = 1;  // with 4 and 32 sectors
  slot.header.objects[1].count[1] = 5, slot.header.objects[1].bytes[1] = 20;  // stores to object 6, which has one block
  slot.header.objects[1].end = 4;
  slot.header.objects[0].end = 4;
  slot.header.blocks[1] = 11;
  const nvidia::SiteShape full{0x7f00123450, AccessKind::store, 2, 32, 4}, part{0x7f00123450, AccessKind::store, 2, 3, 1};
  const uint32_t counter = 1 * nvidia::kSizeClasses + 2;
  const std::vector<nvidia::HotCounter> hot = {
      {nvidia::hot_key(nvidia::HotKind::object, nvidia::object_name(1, counter), 0), 32},
      {nvidia::hot_key(nvidia::HotKind::object, nvidia::object_name(1, counter), 7), 64},
      {nvidia::hot_key(nvidia::HotKind::part, nvidia::part_name(9, 5, 2), 3), 10},  // by 5 lanes, with 2 sectors
      {nvidia::hot_key(nvidia::HotKind::site, full.name(), 2), 2},
      {nvidia::hot_key(nvidia::HotKind::site, full.name(), 3), 1},
      {nvidia::hot_key(nvidia::HotKind::site, part.name(), 3), 1},
  };
  for (size_t i = 0; i < hot.size(); ++i) slot.header.hot[i * 7] = hot[i];
  slot.header.sites[5] = {nvidia::site_key(full.pc, MemorySpace::global), 1, 7, 28, 7, 1, 0, 1, 1u << 6};
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.objects.size() == 2 && decoded.objects[1].stores == 101 && decoded.objects[1].store_bytes == 404);
  CHECK(decoded.objects[0].object_id == 5 && decoded.objects[0].loads == 7 * 32 + 10 * 5);
  CHECK(decoded.blocks.size() == 2);
  CHECK(decoded.blocks[0].object_id == 5 && decoded.blocks[0].accesses == 11);
  CHECK(decoded.blocks[1].object_id == 6 && decoded.blocks[1].accesses == 101);
  CHECK(decoded.sites.size() == 2 && decoded.sites[0].pc == full.pc && decoded.sites[1].pc == 0x7f00777770);
  const AccessSiteRecord &site = decoded.sites[0].row, &loads = decoded.sites[1].row;
  CHECK(loads.executions == 7 + 10 && loads.sectors == 6 * 4 + 32 + 10 * 2 && loads.ideal_sectors == 7 * 4 + 10);
  CHECK(loads.lanes == decoded.objects[0].loads && loads.min_lanes == 5 && loads.max_lanes == 32);
  CHECK(site.kind == AccessSiteKind::store && site.executions == 5 && site.lanes == 3 * 32 + 3 + 7);
  CHECK(site.bytes == 4 * site.lanes && site.sectors == 3 * 4 + 1 + 7 && site.ideal_sectors == 3 * 4 + 1 + 1);
  CHECK(site.min_lanes == 3 && site.max_lanes == 32);
}

// As if a kernel had written over them.
void test_counters_that_make_no_sense_are_left_out() {
  Filled slot;
  auto* const keys = slot.slot.quick_keys();
  auto* const quick = reinterpret_cast<uint64_t*>(slot.slot.parts().front + nvidia::kQuickFull.counters_at);
  for (uint32_t i = 0; i < nvidia::kQuickFull.keys; ++i) {
    keys[i] = UINT64_MAX - 64 * i, quick[i * nvidia::kQuickFull.row] = 1;
  }
  for (uint32_t i = 0; i < slot.header.hot_capacity; ++i) {
    const auto kind = i % 2 == 0 ? nvidia::HotKind::object : nvidia::HotKind::part;
    slot.header.hot[i] = {nvidia::hot_key(kind, (uint64_t{1} << 58) + i, 0), 1};
  }
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.objects.empty() && decoded.damaged == nvidia::kQuickFull.keys + slot.header.hot_capacity);
}

void test_trace_becomes_rows() {
  Filled slot(nvidia::kTrace);
  const auto access = [&](uint32_t active, const std::function<uint64_t(uint32_t)>& address) {
    warp::run(active, [&](uint32_t lane) {
      nvidia::trace_warp(slot.header, active, 0x700, MemorySpace::global, address(lane), 8, AccessKind::load);
    });
  };
  access(0xffffffff, [](uint32_t lane) { return 4096 + 8 * lane; });
  access(0b11110110, [](uint32_t lane) { return lane < 4 ? 100 * lane : 5000 - 8 * lane; });
  const DecodedSlot decoded = slot.decode();
  struct Row {
    int64_t execution, lanes, address, stride;
  };
  // Lanes 1 and 2 are 100 bytes apart, lanes 4 to 7 follow downwards.
  const std::vector<Row> expected = {{0, 0xffffffff, 4096, 8}, {1, 0b110, 100, 100}, {1, 0b11110000, 4968, -8}};
  CHECK(decoded.accesses.size() == expected.size());
  for (size_t i = 0; i < expected.size() && i < decoded.accesses.size(); ++i) {
    const AccessRecord& row = decoded.accesses[i].row;
    CHECK(row.execution == expected[i].execution && row.lanes == expected[i].lanes);
    CHECK(row.address == expected[i].address && row.stride == expected[i].stride);
    CHECK(row.launch_id == 77 && row.bytes == 8 && decoded.accesses[i].pc == 0x700);
    CHECK(row.kind == AccessSiteKind::load && row.space == Space::global);
  }
  CHECK(decoded.lost_accesses == 0);
}

void test_full_trace_says_what_is_lost() {
  Filled slot(nvidia::kTrace);  // 128 records
  for (int i = 0; i < 200; ++i) {
    warp::run(1, [&](uint32_t) { nvidia::trace_span(slot.header, 0x700, 64, 4, AccessKind::load); });
  }
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.accesses.size() == 128 && decoded.lost_accesses == 72);
}

void load_tile(Filled& slot, const uint64_t (&map)[16], int32_t x, int32_t y) {
  const int32_t at[nvidia::kTensorRank] = {x, y, 0, 0, 0};
  warp::run(1, [&](uint32_t) { nvidia::reduce_tensor_load(slot.header, 0x50, map, at, 0); });
}

// A matrix of 256 rows of 512 halves in rows of 4,096 bytes, in tiles of 64 x 32.
EncodeTiledOperands matrix(uint64_t address) {
  static const cuuint64_t dimensions[] = {512, 256}, strides[] = {4096};
  static const cuuint32_t box[] = {64, 32}, steps[] = {1, 1};
  return {nullptr, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, reinterpret_cast<void*>(address), dimensions, strides, box,
          steps, CU_TENSOR_MAP_INTERLEAVE_NONE};
}

void test_tensor_loads_are_the_objects() {
  Filled slot;
  const uint64_t map[16] = {11, 22};
  const TensorMap described = to_tensor_map(matrix(4 * kMiB + kMiB));
  CHECK(described.box_bytes == 64 * 32 * 2 && described.strides[1] == 4096 && described.tiled);
  slot.maps.add(map, described);
  for (int32_t x = 0; x < 512; x += 64) {
    for (int32_t y = 0; y < 256; y += 32) load_tile(slot, map, x, y);
  }
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.unknown_tensor_maps == 0 && decoded.coarse_tensor_maps == 0 && decoded.objects.size() == 1);
  const AccessObjectRecord& row = decoded.objects[0];
  CHECK(row.object_id == 5 && row.loads == 64 && row.load_bytes == 512 * 256 * 2);
  CHECK(row.first_offset == static_cast<int64_t>(kMiB));
  CHECK(row.last_offset == static_cast<int64_t>(kMiB) + 255 * 4096 + 1023);
  CHECK(row.pages_4k == 256 && row.pages_64k == 16);  // a row a page
  CHECK(decoded.sites.size() == 1 && decoded.sites[0].pc == 0x50 && decoded.sites[0].row.executions == 64);
  CHECK(decoded.sites[0].row.bytes == 512 * 256 * 2);
}

void test_tiles_are_clipped_to_the_tensor() {
  const uint64_t map[16] = {1};
  Filled slot;
  slot.maps.add(map, to_tensor_map(matrix(4 * kMiB)));
  load_tile(slot, map, 480, 250);  // 32 columns and 6 rows are inside
  load_tile(slot, map, -1000, 0);  // wholly outside, yet it stretches the box to the left
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.objects[0].pages_4k == 256);
  CHECK(decoded.objects[0].last_offset == 255 * 4096 + 1023);
}

void test_unknown_tensor_maps_are_said() {
  Filled slot;
  load_tile(slot, {9, 9}, 0, 0);
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.unknown_tensor_maps == 1 && decoded.objects.size() == 1);
  CHECK(decoded.objects[0].object_id == kNullI64 && decoded.objects[0].loads == 1);
  CHECK(decoded.sites[0].row.bytes == kNullI64);
}

// Libraries make maps by themselves: the object is known, by the address in the map, and not how much of it is read.
void test_unknown_tensor_maps_tell_their_object() {
  Filled slot;
  load_tile(slot, {16 * kMiB + 256, 9}, 0, 0);
  load_tile(slot, {16 * kMiB + 256, 9}, 64, 0);
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.unknown_tensor_maps == 2 && decoded.objects.size() == 1);
  CHECK(decoded.objects[0].object_id == 6 && decoded.objects[0].loads == 2 && decoded.objects[0].load_bytes == 0);
  CHECK(decoded.objects[0].pages_4k == kNullI64 && decoded.objects[0].first_offset == kNullI64);
  slot.reset();
  slot.maps.add({11, 22}, to_tensor_map(matrix(4 * kMiB)));  // a driver whose maps begin with something else
  load_tile(slot, {16 * kMiB + 256, 9}, 0, 0);
  CHECK(slot.decode().objects[0].object_id == kNullI64);
}

void test_too_many_runs_are_one_span() {
  const TensorMap map = to_tensor_map(matrix(kMiB));
  nvidia::TensorMapEntry entry{};
  for (uint32_t i = 0; i < nvidia::kTensorRank; ++i) {
    entry.highest[i] = nvidia::ordered(i == 1 ? 224 : 0), entry.inverted_lowest[i] = ~nvidia::ordered(0);
  }
  std::vector<std::pair<uint64_t, uint64_t>> runs;
  const auto note = [&](uint64_t begin, uint64_t end) { runs.emplace_back(begin, end); };
  CHECK(!visit_runs(map, entry, 100, note));
  CHECK(runs.size() == 1 && runs[0].first == kMiB && runs[0].second == kMiB + 255 * 4096 + 128);
  runs.clear();
  CHECK(visit_runs(map, entry, 256, note));
  CHECK(runs.size() == 256 && runs[1].first == kMiB + 4096 && runs[1].second == kMiB + 4096 + 128);
}
}  // namespace

int main() {
  test_pages_of_each_size();
  test_pages_of_neighbours_are_counted_once();
  test_empty_slot_has_no_rows();
  test_counters_become_rows();
  test_tensors_have_rows_of_their_own();
  test_old_cuts_change_no_rows();
  test_sites_become_rows();
  test_quick_and_hot_counters_are_added_up();
  test_counters_that_make_no_sense_are_left_out();
  test_trace_becomes_rows();
  test_full_trace_says_what_is_lost();
  test_tensor_loads_are_the_objects();
  test_tiles_are_clipped_to_the_tensor();
  test_unknown_tensor_maps_are_said();
  test_unknown_tensor_maps_tell_their_object();
  test_too_many_runs_are_one_span();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
