// The host's side of the memory pass on CUDA: options, memory objects, slots, and the records of calls.
#include "check.h"

#if __has_include(<sanitizer.h>)

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "backends/sanitizer/launch_calls.h"
#include "backends/sanitizer/normalize.h"
#include "backends/sanitizer/objects.h"
#include "backends/sanitizer/sampling.h"
#include "backends/sanitizer/selection.h"
#include "backends/sanitizer/slot_layout.h"
#include "backends/sanitizer/slots.h"
#include "backends/sanitizer/work_queue.h"
#include "host_slot.h"

using namespace pasta;
using namespace pasta::sanitizer;

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
  const Hinted own{kernels, cuts};
  for (const int i : {7, 9}) CHECK(pool.take(sizes, own).parts().front == slots[i].parts().front);
  CHECK(pool.take(sizes, own).slab == nullptr);
  for (const int i : {6, 5}) CHECK(pool.take(sizes, own, true).parts().front == slots[i].parts().front);
  CHECK(pool.recut(sizes).empty() && pool.retire(sizes).empty());
  // Larger slots: the idle slabs are cut anew, the one in use stays. Too large ones: they go.
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i != 0) pool.give(slots[i]);
  }
  const SlotSizes larger{4 * kMiB, kMiB / 2, 3 * kMiB / 8, kMiB / 2, kMiB / 8};
  CHECK(pool.reserve(larger) == 0);
  CHECK(pool.recut(larger).size() == 7 && pool.retire(larger).empty() && pool.bytes() == 64 * kMiB);
  std::vector<Slot> larger_slots;
  for (Slot slot = pool.take(larger); slot.slab != nullptr; slot = pool.take(larger)) {
    CHECK(slot.slab->fresh[slot.index] && slot.slab->of_slot.front == 4 * kMiB);
    larger_slots.push_back(slot);
  }
  CHECK(larger_slots.size() == 7);
  for (const Slot& slot : larger_slots) pool.give(slot);
  const SlotSizes largest{9 * kMiB, kMiB / 2, 3 * kMiB / 8, kMiB / 2, kMiB / 8};
  CHECK(pool.reserve(largest) == 0 && pool.recut(largest).empty());
  CHECK(pool.retire(largest).size() == 7 && pool.bytes() == 8 * kMiB);
  CHECK(grow(largest) && pool.take(largest).slab != nullptr);
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

// The operands are those of the driver's functions, in their order (cuda.h).
void test_launch_operands() {
  const auto kernel = reinterpret_cast<CUfunction>(0x70);
  const struct {
    CUfunction kernel;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    CUstream stream;
    void **operands, **extra;
  } launch{kernel, 4, 5, 6, 128, 1, 1, 0, nullptr, nullptr, nullptr};
  CUlaunchConfig config{};
  config.gridDimX = 4, config.gridDimY = 5, config.gridDimZ = 6, config.blockDimX = 128;
  const struct {
    const CUlaunchConfig* config;
    CUfunction kernel;
    void **operands, **extra;
  } extended{&config, kernel, nullptr, nullptr};
  const std::pair<Sanitizer_CallbackId, const void*> calls[] = {
      {SANITIZER_CBID_DRIVER_API_cuLaunchKernel_ptsz, &launch},
      {SANITIZER_CBID_DRIVER_API_cuLaunchCooperativeKernel, &launch},
      {SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx, &extended},
  };
  for (const auto& [id, operands] : calls) {
    const std::optional<LaunchOperands> found = to_launch(id, operands);
    CHECK(found && found->kernel == kernel && found->grid == (std::array<uint32_t, 3>{4, 5, 6}));
    CHECK(is_among(kLaunchCalls, id) && !to_launch(id, nullptr));
  }
  CHECK(!to_launch(SANITIZER_CBID_DRIVER_API_cuLaunch, &launch));
  CHECK(!to_launch(SANITIZER_CBID_DRIVER_API_cuLaunchKernelEx, std::vector<void*>(4).data()));
  CHECK(is_among(kCaptureCalls, SANITIZER_CBID_DRIVER_API_cuStreamBeginCapture_v2));
}

void test_work_is_done_in_order_on_another_thread() {
  WorkQueue queue(kMiB);
  std::vector<int> done;
  std::thread::id worker;
  for (int i = 0; i < 100; ++i) {
    queue.add(1, [&, i] { done.push_back(i), worker = std::this_thread::get_id(); });
  }
  queue.finish();
  CHECK(done.size() == 100 && std::is_sorted(done.begin(), done.end()));
  CHECK(worker != std::thread::id() && worker != std::this_thread::get_id());
  queue.finish();  // with nothing to do
}

void test_work_waits_for_room() {
  WorkQueue queue(10);
  std::atomic<bool> may_end{false};
  std::atomic<int> begun{0}, added{0};
  const auto work = [&] {
    ++begun;
    while (!may_end) std::this_thread::yield();
  };
  std::thread program([&] {
    for (const size_t bytes : {6, 4, 1}) queue.add(bytes, work), ++added;  // the third is one byte too many
    queue.add(100, work), ++added;                                         // more than there is room for: alone
  });
  while (begun == 0 || added < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(added == 2 && begun == 1);
  may_end = true;
  program.join();
  queue.finish();
  CHECK(added == 4 && begun == 4);
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
  test_the_largest_objects_go_without_pages();
  test_slots_are_given_within_the_bound();
  test_ranges_end_at_multiples_of_4_gib();
  test_records();
  test_launch_operands();
  test_work_is_done_in_order_on_another_thread();
  test_work_waits_for_room();
  return g_failures == 0 ? 0 : 1;
}

#else
int main() { return 77; }
#endif
