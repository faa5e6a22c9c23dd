// The host's side of the memory pass without a GPU: options, memory objects, slots, and slots read back as rows.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "backends/sanitizer/decode.h"
#include "backends/sanitizer/normalize.h"
#include "backends/sanitizer/objects.h"
#include "backends/sanitizer/sampling.h"
#include "backends/sanitizer/selection.h"
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

void test_selection() {
  const Selection all = Selection::parse("all", "", "");
  CHECK(all.objects && all.sites && all.blocks && all.shared && all.local && !all.floor);
  const Selection some = Selection::parse("objects,divergence", "3:50", "64M");
  CHECK(some.objects && some.sites && !some.blocks && !some.shared);
  CHECK(some.sampling.first == 3 && some.sampling.every == 50 && some.buffer_bytes == 64 * kMiB);
  CHECK(Selection::parse("shared", "", "").sites);
  const Selection traced = Selection::parse("trace,shared", "", "");
  CHECK(traced.trace && traced.shared && !traced.sites && !traced.objects && traced.tells_instructions());
  CHECK(!Selection::parse("all", "", "").trace);
  CHECK(Selection::parse("objects,lines", "", "").unknown.empty());  // pasta record --memory
  const Selection odd = Selection::parse("sits,,objcts", "-4", "lots");
  CHECK(odd.nothing() && odd.unknown == "sits,objcts");
  CHECK(odd.sampling.first == INT64_MAX && odd.buffer_bytes == 256 * kMiB);
  CHECK(Selection::parse("", "", "").nothing());
}

void test_sampler_takes_the_first_and_then_every_kth() {
  Sampler sampler(Sampling{2, 3});
  std::vector<bool> taken;
  for (int i = 0; i < 8; ++i) taken.push_back(sampler.take(1, {4, 1, 1}));
  CHECK((taken == std::vector<bool>{true, true, false, false, true, false, false, true}));
  CHECK(sampler.take(1, {8, 1, 1}) && sampler.take(2, {4, 1, 1}));  // another grid, another kernel
}

MemoryObject object(int64_t id, uint64_t begin, uint64_t bytes) {
  return {id, begin, begin + bytes, MemoryKind::device, 0};
}

void test_objects_by_address() {
  MemoryObjects objects(1 << 20);
  objects.add(object(1, kMiB, 4096));
  CHECK(!objects.find(kMiB - 1) && objects.find(kMiB)->object_id == 1 && objects.find(kMiB + 4095)->object_id == 1);
  CHECK(!objects.find(kMiB + 4096));
  const auto before = objects.snapshot();
  CHECK(objects.snapshot() == before);  // nothing changed
  objects.add(object(2, kMiB + 2048, 4096));  // the end of 1 was not seen
  CHECK(!objects.find(kMiB) && objects.find(kMiB + 2048)->object_id == 2);
  CHECK(objects.snapshot() != before && before->cuts->places[0].object_id == 1);
  CHECK(!objects.take(kMiB) && objects.take(kMiB + 2048)->object_id == 2 && objects.snapshot()->cuts->ranges.empty());
}

// A reservation gives what no object in it takes.
void test_reservation_is_cut_around_objects() {
  MemoryObjects objects(1 << 20);
  objects.add(object(9, 10 * kMiB, 10 * kMiB), true);
  objects.add(object(1, kMiB, kMiB));
  objects.add(object(2, 12 * kMiB, kMiB));
  objects.add(object(3, 19 * kMiB, kMiB));
  const auto snapshot = objects.snapshot();
  const auto& ranges = snapshot->cuts->ranges;
  const std::vector<int64_t> ids = {1, 9, 2, 9, 3};
  CHECK(ranges.size() == ids.size());
  for (size_t i = 0; i < ids.size() && i < ranges.size(); ++i) {
    CHECK(snapshot->cuts->places[i].object_id == ids[i]);
    if (i > 0) CHECK(ranges[i].begin >= ranges[i - 1].end);
  }
  CHECK(ranges[3].begin == 13 * kMiB && ranges[3].end == 19 * kMiB && snapshot->cuts->places[3].offset == 3 * kMiB);
  CHECK(objects.find(15 * kMiB)->object_id == 9 && objects.find(12 * kMiB)->object_id == 2);
  // 4 KiB pages in words of 32, of the objects only: 1 MiB each, which is one block.
  CHECK(snapshot->cuts->page_words == 3 * 8 && snapshot->cuts->block_count == 0);
  CHECK(ranges[1].page_word == nvidia::kUntracked && ranges[2].page_word == 8 && !snapshot->cuts->pages_left_out);
}

// Tensors cut the ranges of what they lie in; where they end matters to nobody but a launch that comes then.
void test_tensors_cut_their_objects() {
  MemoryObjects objects(1 << 20);
  objects.add(object(1, 2 * kMiB, kMiB));
  objects.add_tensor(11, 2 * kMiB, 512);
  objects.add_tensor(12, 2 * kMiB + 4096, 8192);
  objects.add_tensor(13, 2 * kMiB + 12288, 512);  // next to 12
  objects.add_tensor(14, 9 * kMiB, 512);          // in no object that is known
  const auto before = objects.snapshot();
  const std::vector<int64_t> tensors = {11, kNullI64, 12, 13, kNullI64};
  CHECK(before->cuts->ranges.size() == tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& place = before->cuts->places[i];
    CHECK(place.object_id == 1 && before->tensors[i] == tensors[i]);
    CHECK(place.offset == before->cuts->ranges[i].begin - 2 * kMiB);
    CHECK(before->cuts->ranges[i].begin == (i == 0 ? 2 * kMiB : before->cuts->ranges[i - 1].end));
  }
  CHECK(before->cuts->ranges.back().end == 3 * kMiB);
  CHECK(objects.take_tensor(2 * kMiB + 4096) == 12 && objects.take_tensor(2 * kMiB + 4096) == kNullI64);
  const auto after = objects.snapshot();
  CHECK(after->cuts == before->cuts && after->tensors[2] == kNullI64 && after->tensors[1] == kNullI64);
  CHECK(before->tensors[2] == 12);         // a launch from then keeps what it was given
  objects.add_tensor(15, 2 * kMiB, kMiB);  // the ends of 11 and 13 were not seen
  CHECK(objects.snapshot()->tensors == std::vector<int64_t>(5, 15));
}

// What an allocator gives out where it gave out something before needs no new ranges.
void test_cuts_stay_while_tensors_come_and_go() {
  MemoryObjects objects(1 << 20);
  objects.add(object(1, 2 * kMiB, 16 * kMiB));
  objects.add_tensor(11, 2 * kMiB, 512);
  objects.add_tensor(12, 2 * kMiB + 512, kMiB);
  const auto cuts = objects.snapshot()->cuts;
  CHECK(cuts->ranges.size() == 3);
  objects.take_tensor(2 * kMiB), objects.take_tensor(2 * kMiB + 512);
  objects.add_tensor(13, 2 * kMiB, kMiB + 512);  // where both were
  const auto snapshot = objects.snapshot();
  CHECK(snapshot->cuts == cuts && (snapshot->tensors == std::vector<int64_t>{13, 13, kNullI64}));
  objects.take_tensor(2 * kMiB);
  objects.add_tensor(14, 2 * kMiB, 1024);  // in other places
  const auto others = objects.snapshot();
  CHECK((others->tensors == std::vector<int64_t>{14, 14, kNullI64, kNullI64}));
  CHECK(others->cuts->ranges[1].end == 2 * kMiB + 1024 && others->cuts->ranges[3].begin == 3 * kMiB + 512);
  objects.take_tensor(2 * kMiB);
  objects.add_tensor(15, 2 * kMiB, 4 * kMiB);  // larger than what may be several ranges
  const auto large = objects.snapshot();
  CHECK((large->tensors == std::vector<int64_t>{15, kNullI64}) && large->cuts->ranges[0].end == 6 * kMiB);
  CHECK(objects.take(2 * kMiB)->object_id == 1 && objects.snapshot()->cuts->ranges.empty());
}

// A program that repeats itself comes back to cuts that it had.
void test_cuts_are_known_again() {
  MemoryObjects objects(1 << 20);
  objects.add(object(1, 2 * kMiB, 64 * kMiB));
  std::vector<std::shared_ptr<const Cuts>> cuts;
  for (int64_t i = 0; i < 12; ++i) {
    objects.add_tensor(i, 2 * kMiB, (3 + i % 3) * kMiB);
    cuts.push_back(objects.snapshot()->cuts);
    CHECK(objects.snapshot()->tensors[0] == i);
    objects.take_tensor(2 * kMiB);
  }
  CHECK(cuts[6] != cuts[7] && cuts[7] != cuts[8]);
  for (size_t i = 6; i < 9; ++i) CHECK(cuts[i] == cuts[i + 3]);
  objects.take(2 * kMiB);
  objects.add(object(2, 2 * kMiB, 64 * kMiB));  // the same ranges, of another object
  CHECK(objects.snapshot()->cuts->places[0].object_id == 2);
}

// Shapes that never return do not make the slots of all launches larger and larger.
void test_old_cuts_do_not_pile_up() {
  MemoryObjects objects(1 << 20);
  objects.add(object(1, kMiB, 64 * kMiB));
  for (uint64_t i = 1; i < 2000; ++i) {
    objects.add_tensor(static_cast<int64_t>(i), kMiB, 512 * i);
    CHECK(objects.snapshot()->tensors[0] == static_cast<int64_t>(i));
    CHECK(objects.snapshot()->cuts->ranges.size() <= 2 * 2 + 256);
    objects.take_tensor(kMiB);
  }
}

// Memory of torch's expandable segments lies in a reservation: what the tensors do not take has no pages.
void test_tensors_in_a_reservation() {
  MemoryObjects objects(1 << 20);
  objects.add(object(9, 10 * kMiB, 4 * kMiB), true);
  objects.add_tensor(11, 11 * kMiB, kMiB);
  const auto snapshot = objects.snapshot();
  CHECK(snapshot->cuts->ranges.size() == 3 && snapshot->cuts->page_words == 8);
  CHECK(snapshot->cuts->ranges[0].page_word == nvidia::kUntracked && snapshot->cuts->ranges[1].page_word == 0);
  CHECK(snapshot->cuts->places[1].object_id == 9 && snapshot->cuts->places[1].offset == kMiB);
}

void test_too_many_tensors_leave_out_the_smallest() {
  MemoryObjects objects(1 << 24);
  const uint64_t count = MemoryObjects::kMostTensors + 10;
  objects.add(object(1, kMiB, count * 4096));
  for (uint64_t i = 0; i < count; ++i) objects.add_tensor(static_cast<int64_t>(i), kMiB + i * 4096, i < 20 ? 512 : 4096);
  const auto snapshot = objects.snapshot();
  size_t tensors = 0;
  for (const int64_t tensor : snapshot->tensors) tensors += tensor != kNullI64;
  CHECK(snapshot->cuts->tensors_left_out && tensors == count - 20 && tensors <= MemoryObjects::kMostTensors);
}

void test_the_largest_objects_go_without_pages() {
  MemoryObjects objects(10);  // words: room for 320 pages
  objects.add(object(1, kMiB, kMiB));        // 256 pages
  objects.add(object(2, 4 * kMiB, 64 * kMiB));
  const auto snapshot = objects.snapshot();
  CHECK(snapshot->cuts->pages_left_out && snapshot->cuts->page_words == 8);
  CHECK(snapshot->cuts->ranges[0].page_word == 0 && snapshot->cuts->ranges[1].page_word == nvidia::kUntracked);
}

void test_slots_are_given_within_the_bound() {
  SlotPool pool(64 * kMiB);
  CHECK(pool.take({1000, 0, 0, 0, 0}).slab == nullptr);
  std::vector<std::vector<uint8_t>> slabs;
  std::set<uint8_t*> places;
  const auto grow = [&](const SlotSizes& sizes) {
    const size_t slab = pool.reserve(sizes);
    if (slab == 0) return false;
    slabs.emplace_back(slab);
    pool.add(slabs.back().data(), slab);
    return true;
  };
  const SlotSizes sizes{kMiB, kMiB / 2, 3 * kMiB / 8, kMiB / 2, kMiB / 8};  // 2.5 MiB
  std::vector<Slot> slots;
  while (true) {
    Slot slot = pool.take(sizes);
    if (slot.slab == nullptr && grow(sizes)) slot = pool.take(sizes);
    if (slot.slab == nullptr) break;
    slots.push_back(slot);
    const SlotParts at = slot.parts();
    uint8_t* end = slot.slab->memory;  // parts of a kind lie side by side
    for (const auto& [part, size] : {std::pair(at.front, sizes.front), {at.marks, sizes.marks},
                                     {at.tables, sizes.tables}, {at.objects, sizes.objects}, {at.trace, sizes.trace}}) {
      CHECK(places.insert(part).second && part == end + slot.index * size);
      end += slot.slab->used.size() * size;
    }
    CHECK(end <= slot.slab->memory + slot.slab->bytes && slot.slab->fresh[slot.index]);
  }
  // Slabs of an eighth of the bound, 8 MiB, hold 3 slots of 2.5 MiB.
  CHECK(slots.size() == 24 && pool.bytes() == 64 * kMiB);
  pool.give(slots[3]);
  CHECK(pool.take(sizes).index == slots[3].index);
  // A launch gets the slot of its kernel and ranges, one that nobody had, one of its kernel, and one of another.
  const int kernels[2] = {};
  pool.give(slots[5]), pool.give(slots[7]), pool.give(slots[9]);
  const auto cuts = std::make_shared<Cuts>();
  const auto hinted = [&](int i) -> Hinted& { return slots[i].slab->hinted[slots[i].index]; };
  pool.give(slots[6]);
  hinted(5) = {kernels + 1, cuts}, hinted(6) = {kernels, nullptr}, hinted(7) = {kernels, cuts};
  const auto taken = [&](const int* kernel) { return pool.take(sizes, {kernel, cuts}).parts().front; };
  for (const int i : {7, 9, 6, 5}) CHECK(taken(kernels) == slots[i].parts().front);
  CHECK(pool.retire(sizes).empty());
  // Larger slots: the idle slabs go, the one in use stays.
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i != 0) pool.give(slots[i]);
  }
  const SlotSizes larger{4 * kMiB, kMiB / 2, 3 * kMiB / 8, kMiB / 2, kMiB / 8};
  CHECK(pool.reserve(larger) == 0);
  CHECK(pool.retire(larger).size() == 7 && pool.bytes() == 8 * kMiB);
  CHECK(grow(larger) && pool.take(larger).slab != nullptr);
  CHECK(pool.reserve({100 * kMiB, 0, 3 * kMiB / 8, 0, kMiB / 8}) == 0);
}

// Patches tell addresses of a range apart by their lower halves.
void test_ranges_end_at_multiples_of_4_gib() {
  MemoryObjects objects(1 << 24);
  const uint64_t k4GiB = uint64_t{1} << 32;
  objects.add(object(1, k4GiB - kMiB, 2 * k4GiB));
  const auto snapshot = objects.snapshot();
  CHECK(snapshot->cuts->ranges.size() == 3);
  CHECK(snapshot->cuts->ranges[1].begin == k4GiB && snapshot->cuts->ranges[1].end == 2 * k4GiB);
  const auto& places = snapshot->cuts->places;
  CHECK(places[1].object_id == 1 && places[1].offset == kMiB && places[2].offset == k4GiB + kMiB);
  for (const nvidia::Range& range : snapshot->cuts->ranges) CHECK(range.page_word != nvidia::kUntracked);
}

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
  counters.lanes[0][2] = 100;  // loads of 4 bytes
  counters.lanes[0][4] = 10;   // of 16
  counters.odd_count[0] = 1, counters.odd_bytes[0] = 48;
  counters.lanes[1][3] = 7;    // stores of 8
  counters.lanes[2][2] = 3;    // atomics of 4
  counters.end = 2 * kMiB + 4096;
  counters.inverted_first = ~uint64_t{4096};
  slot.header.pages[slot.snapshot->cuts->ranges[0].page_word] = 0b10;
  slot.header.pages[slot.snapshot->cuts->ranges[0].page_word + 16] = 0b1;  // page 512: the second 2 MiB
  slot.header.blocks[0] = 90, slot.header.blocks[1] = 31;
  slot.header.objects[slot.header.range_count].lanes[1][0] = 2;  // at addresses that nobody holds
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
    counters.lanes[0][2] = 10 * (piece + 1);
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
  slot.header.objects[1].lanes[1][2] = 5;  // of object 6, which has one block: stores of 4 bytes
  slot.header.objects[1].end = 4;
  slot.header.objects[0].end = 4;
  slot.header.blocks[1] = 1;
  const nvidia::SiteShape full{0x7f00123450, AccessKind::store, 2, 32, 4}, part{0x7f00123450, AccessKind::store, 2, 3, 1};
  const uint32_t counter = 1 * nvidia::kSizeClasses + 2;
  const std::vector<nvidia::HotCounter> hot = {
      {nvidia::hot_key(nvidia::HotKind::object, nvidia::object_name(1, counter), 0), 32},
      {nvidia::hot_key(nvidia::HotKind::object, nvidia::object_name(1, counter), 7), 64},
      {nvidia::hot_key(nvidia::HotKind::block, 1, 3), 10},
      {nvidia::hot_key(nvidia::HotKind::site, full.name(), 2), 2},
      {nvidia::hot_key(nvidia::HotKind::site, full.name(), 3), 1},
      {nvidia::hot_key(nvidia::HotKind::site, part.name(), 3), 1},
  };
  for (size_t i = 0; i < hot.size(); ++i) slot.header.hot[i * 7] = hot[i];
  slot.header.sites[5] = {nvidia::site_key(full.pc, MemorySpace::global), 1, 7, 28, 7, 1, 0, 1, 1u << 6};
  const DecodedSlot decoded = slot.decode();
  CHECK(decoded.objects.size() == 2 && decoded.objects[1].stores == 101 && decoded.objects[1].store_bytes == 404);
  CHECK(decoded.objects[0].object_id == 5 && decoded.objects[0].loads == 7 * 32);
  CHECK(decoded.blocks.size() == 2);
  CHECK(decoded.blocks[0].object_id == 5 && decoded.blocks[0].accesses == 11);
  CHECK(decoded.blocks[1].object_id == 6 && decoded.blocks[1].accesses == 101);
  CHECK(decoded.sites.size() == 2 && decoded.sites[0].pc == full.pc && decoded.sites[1].pc == 0x7f00777770);
  const AccessSiteRecord &site = decoded.sites[0].row, &loads = decoded.sites[1].row;
  CHECK(loads.executions == 7 && loads.sectors == 6 * 4 + 32 && loads.ideal_sectors == 7 * 4 && loads.min_lanes == 32);
  CHECK(site.kind == AccessSiteKind::store && site.executions == 5 && site.lanes == 3 * 32 + 3 + 7);
  CHECK(site.bytes == 4 * site.lanes && site.sectors == 3 * 4 + 1 + 7 && site.ideal_sectors == 3 * 4 + 1 + 1);
  CHECK(site.min_lanes == 3 && site.max_lanes == 32);
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

void test_records() {
  Sanitizer_LaunchData launch;
  std::memset(&launch, 0, sizeof(launch));
  launch.gridDim_x = 4, launch.gridDim_y = 5, launch.gridDim_z = 6, launch.blockDim_x = 128, launch.device = 1;
  const KernelRecord kernel = to_kernel(launch);
  CHECK(kernel.grid_x == 4 && kernel.grid_y == 5 && kernel.grid_z == 6 && kernel.block_x == 128);
  CHECK(kernel.device_id == 1 && kernel.cluster_x == kNullI32 && kernel.start_ns == kNullI64);

  Sanitizer_MemsetData fill;
  std::memset(&fill, 0, sizeof(fill));
  fill.width = 100, fill.height = 3, fill.elementSize = 4, fill.value = 9;
  CHECK(to_memset(fill).bytes == 1200 && to_memset(fill).value == 9);

  Sanitizer_MemcpyData copy;
  std::memset(&copy, 0, sizeof(copy));
  copy.size = 4096, copy.direction = SANITIZER_MEMCPY_DIRECTION_HOST_TO_DEVICE, copy.isAsync = 1;
  CHECK(to_memcpy(copy).bytes == 4096 && to_memcpy(copy).kind == MemcpyKind::h2d);
  CHECK(to_memcpy(copy).asynchronous == Bool::yes);
  copy.size = 0, copy.width = 64, copy.height = 2;
  CHECK(to_memcpy(copy).bytes == 128);

  Sanitizer_ResourceMemoryData memory;
  std::memset(&memory, 0, sizeof(memory));
  CHECK(to_alloc(memory).kind == MemoryKind::device);
  memory.flags = SANITIZER_MEMORY_FLAG_MANAGED | SANITIZER_MEMORY_FLAG_HOST_MAPPED;
  CHECK(to_alloc(memory).kind == MemoryKind::managed);
  memory.flags = SANITIZER_MEMORY_FLAG_HOST_PINNED;
  CHECK(to_alloc(memory).kind == MemoryKind::pinned);
}

}  // namespace

int main() {
  test_selection();
  test_sampler_takes_the_first_and_then_every_kth();
  test_objects_by_address();
  test_reservation_is_cut_around_objects();
  test_tensors_cut_their_objects();
  test_cuts_stay_while_tensors_come_and_go();
  test_cuts_are_known_again();
  test_old_cuts_do_not_pile_up();
  test_tensors_in_a_reservation();
  test_too_many_tensors_leave_out_the_smallest();
  test_tensors_have_rows_of_their_own();
  test_the_largest_objects_go_without_pages();
  test_slots_are_given_within_the_bound();
  test_ranges_end_at_multiples_of_4_gib();
  test_pages_of_each_size();
  test_pages_of_neighbours_are_counted_once();
  test_empty_slot_has_no_rows();
  test_counters_become_rows();
  test_old_cuts_change_no_rows();
  test_sites_become_rows();
  test_quick_and_hot_counters_are_added_up();
  test_trace_becomes_rows();
  test_full_trace_says_what_is_lost();
  test_tensor_loads_are_the_objects();
  test_tiles_are_clipped_to_the_tensor();
  test_unknown_tensor_maps_are_said();
  test_unknown_tensor_maps_tell_their_object();
  test_too_many_runs_are_one_span();
  test_records();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
