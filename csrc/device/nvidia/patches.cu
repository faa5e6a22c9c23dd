// The functions that the Sanitizer calls before each instrumented instruction: they sort out what the instruction
// does and hand it to the reducers. Compiled with nvcc --compile-as-tools-patch.
//
// There is a set of patches for each depth of analysis: `floor` does nothing, and so measures what instrumentation
// itself costs; `objects` is short, because its registers add to those of every kernel; `full` counts all
// there is, also where less was asked for; `trace` keeps every access besides. A launch without a slot is not measured.
#include <sanitizer_patching.h>

#include <type_traits>

#include "device/nvidia/full_reducer.h"
#include "device/nvidia/layout.h"
#include "device/nvidia/object_reducer.h"
#include "device/nvidia/site_reducer.h"
#include "device/nvidia/tensor_map_reducer.h"
#include "device/nvidia/trace_writer.h"

using namespace pasta::nvidia;

namespace {

enum class Depth { objects, full, trace };

PASTA_DEVICE AccessKind kind_of(uint32_t flags) {
  constexpr uint32_t kBoth = SANITIZER_MEMORY_DEVICE_FLAG_READ | SANITIZER_MEMORY_DEVICE_FLAG_WRITE;
  constexpr uint32_t kAtomicWriteOnly = 1u << 8;  // SANITIZER_MEMORY_DEVICE_FLAG_ATOMIC_WRITE_ONLY, since 13.1
  constexpr uint32_t kAtomic = SANITIZER_MEMORY_DEVICE_FLAG_ATOMSYS | kAtomicWriteOnly;
  if ((flags & kBoth) == kBoth || (flags & kAtomic) != 0) return AccessKind::atomic;
  return (flags & SANITIZER_MEMORY_DEVICE_FLAG_WRITE) != 0 ? AccessKind::store : AccessKind::load;
}

PASTA_DEVICE bool leads(uint32_t active) { return lanes::index() == lanes::first(active); }

constexpr uint32_t kRead = SANITIZER_MEMORY_DEVICE_FLAG_READ;

template <Depth kDepth>
constexpr bool kFull = kDepth != Depth::objects;
// Patches for objects alone do with the low half of a pc.
template <Depth kDepth>
using Pc = std::conditional_t<kFull<kDepth>, uint64_t, uint32_t>;

template <Depth kDepth>
PASTA_DEVICE_APART void leave_hint_apart(const SlotHeader& slot, Pc<kDepth> pc, uint64_t address, uint32_t shape,
                                         uint32_t counter) {
  leave_hint<kFull<kDepth>>(slot, pc, address, shape, counter);
}

// cp.async, whose lanes may differ in what they read: calls of(lanes, bytes) in those of one size, for each size.
template <class Of>
PASTA_DEVICE void by_size(uint32_t active, uint32_t bytes, const Of& of) {
  for (uint32_t pending = active; pending != 0;) {
    const uint32_t size = lanes::broadcast(active, bytes, lanes::first(pending));
    const uint32_t group = lanes::ballot(active, bytes == size);
    pending &= ~group;
    if (bytes == size) of(group, size);
  }
}

// What the quick way does not count.
template <Depth kDepth>
PASTA_DEVICE_APART void reduce_apart(const SlotHeader& slot, Pc<kDepth> pc, uint64_t address, uint32_t bytes,
                                     uint32_t flags, uint32_t active) {
  by_size(active, bytes, [&](uint32_t group, uint32_t size) {
    if constexpr (kFull<kDepth>) reduce_all_slowly(slot, group, pc, address, size, kind_of(flags));
    else reduce_objects_slowly(slot, group, address, size, kind_of(flags));
  });
}
PASTA_DEVICE_APART void count_outside_apart(const SlotHeader& slot, uint32_t bytes, uint32_t flags) {
  by_size(lanes::active(), bytes,
          [&](uint32_t group, uint32_t size) { count_outside(slot, group, size, kind_of(flags)); });
}

// Consecutive bytes, of any number, by one lane.
template <Depth kDepth>
PASTA_DEVICE_APART void on_span(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes,
                                AccessKind kind) {
  reduce_span<kDepth != Depth::objects>(slot, address, bytes, kind);
  if (kDepth != Depth::objects) reduce_span_site(slot, pc, address, bytes, kind);
  if (kDepth == Depth::trace) trace_span(slot, pc, address, bytes, kind);
}

}  // namespace

// What the quick way has not counted: counted with the hint of the area, with a new hint, or slowly. For objects alone
// lanes go their own ways; an instruction is counted for its warp, all of `active`. Copies may be of any number of
// bytes.
PASTA_DEVICE_ASIDE void pasta_count_objects_again(const SlotHeader& slot, uint32_t pc_low, uint64_t address,
                                                  uint32_t shape) {
  const uint32_t bytes = bytes_of_shape(shape), flags = flags_of_shape(shape);
  if ((flags & SANITIZER_MEMORY_DEVICE_FLAG_PREFETCH) != 0) return;
  if (!has_size_class(bytes)) {
    on_span<Depth::objects>(slot, pc_low, address, bytes, kind_of(flags));
    return;
  }
  if (is_outside(slot, address)) return count_outside_apart(slot, bytes, flags);
  const Hint* const of_area = leaders_area_hint(slot, lanes::active(), pc_low, address);
  if (count_objects_quickly(slot, of_area, address, bytes, shape)) {
    return follow_area(slot, lanes::active(), pc_low, of_area);
  }
  const uint32_t group = lanes::active();
  if (leads(group)) {
    leave_hint_apart<Depth::objects>(slot, pc_low, address, shape, counter_of(kind_of(flags), bytes));
  }
  const Hint* const left = leaders_area_hint(slot, group, pc_low, address);
  lanes::meet(group);
  if (count_objects_quickly<true>(slot, left, address, bytes, shape)) return;
  reduce_apart<Depth::objects>(slot, pc_low, address, bytes, flags, lanes::active());
}
PASTA_DEVICE_ASIDE void pasta_count_all_again(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t shape,
                                              uint32_t active) {
  const uint32_t bytes = bytes_of_shape(shape), flags = flags_of_shape(shape);
  if ((flags & SANITIZER_MEMORY_DEVICE_FLAG_PREFETCH) != 0) return;
  const uint32_t group = lanes::ballot(active, has_size_class(bytes));
  if (!has_size_class(bytes)) return on_span<Depth::full>(slot, pc, address, bytes, kind_of(flags));
  if (lanes::ballot(group, is_outside(slot, address)) == 0) {
    const uint32_t pc_low = static_cast<uint32_t>(pc);
    const Hint* const of_area = leaders_area_hint(slot, group, pc_low, address);
    if (count_all_quickly(slot, group, of_area, pc, address, bytes, shape)) {
      return follow_area(slot, group, pc_low, of_area);
    }
    if (leads(group)) leave_hint_apart<Depth::full>(slot, pc, address, shape, counter_of(kind_of(flags), bytes));
    lanes::meet(group);
    if (count_all_quickly<true>(slot, group, of_area, pc, address, bytes, shape)) return;
  }
  reduce_apart<Depth::full>(slot, pc, address, bytes, flags, group);
}
// Likewise, of parts of warps, and warps whose lanes have parted.
PASTA_DEVICE_ASIDE void pasta_count_part(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t shape,
                                         uint32_t active) {
  const Hint* const hint = hint_of(slot, static_cast<uint32_t>(pc));
  if (count_part_quickly(slot, active, hint, pc, address, bytes_of_shape(shape), shape)) return;
  pasta_count_all_again(slot, pc, address, shape, active);
}

namespace {

// Counts an access.
PASTA_DEVICE void count_objects(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes, uint32_t flags) {
  const uint32_t pc_low = static_cast<uint32_t>(pc), shape = shape_of(flags, bytes);
  if (!count_objects_quickly(slot, hint_of(slot, pc_low), address, bytes, shape)) {
    pasta_count_objects_again(slot, pc_low, address, shape);
  }
}
// Likewise, of the lanes in `active`.
PASTA_DEVICE void count_all(const SlotHeader& slot, uint32_t active, uint64_t pc, uint64_t address, uint32_t bytes,
                            uint32_t flags) {
  const uint32_t shape = shape_of(flags, bytes);
  if (active != kWarp) return pasta_count_part(slot, pc, address, shape, active);
  const Hint* const hint = hint_of(slot, static_cast<uint32_t>(pc));
  if (!count_whole_quickly(slot, hint, pc, address, bytes, shape)) {
    pasta_count_all_again(slot, pc, address, shape, kWarp);
  }
}

PASTA_DEVICE_APART void keep(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes, uint32_t flags,
                             uint32_t active, MemorySpace space) {
  if ((flags & SANITIZER_MEMORY_DEVICE_FLAG_PREFETCH) != 0) return;
  trace_warp(slot, active, pc, space, address, bytes, kind_of(flags));
}
PASTA_DEVICE_APART void keep_copies(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes,
                                    uint32_t active) {
  by_size(active, bytes, [&](uint32_t group, uint32_t size) {
    trace_warp(slot, group, pc, MemorySpace::global, address, size, AccessKind::load);
  });
}

// Each active lane accesses `bytes` (a size class) at its own `address`.
template <Depth kDepth>
PASTA_DEVICE void on_global(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes, uint32_t flags) {
  if constexpr (kFull<kDepth>) {
    const uint32_t active = lanes::active();
    count_all(slot, active, pc, address, bytes, flags);
    if (kDepth == Depth::trace) keep(slot, pc, address, bytes, flags, active, MemorySpace::global);
  } else {
    count_objects(slot, pc, address, bytes, flags);
  }
}

// One instruction of a whole warp, whose lanes have the same operands.
template <Depth kDepth>
PASTA_DEVICE void on_bulk(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes, AccessKind kind) {
  if (leads(__activemask())) on_span<kDepth>(slot, pc, address, bytes, kind);
}

// cp.async: `zeros` of the `bytes` written to shared memory are not read from anywhere.
template <Depth kDepth>
PASTA_DEVICE void on_async_copy(const SlotHeader& slot, uint64_t pc, uint64_t address, uint32_t bytes,
                                uint32_t zeros) {
  const uint32_t moved = zeros < bytes ? bytes - zeros : 0;
  if (moved == 0) return;
  if constexpr (kFull<kDepth>) {
    if (kDepth == Depth::trace && !has_size_class(moved)) {
      on_span<kDepth>(slot, pc, address, moved, AccessKind::load);
      return;
    }
    const uint32_t active = lanes::active();
    count_all(slot, active, pc, address, moved, kRead);
    if (kDepth == Depth::trace) keep_copies(slot, pc, address, moved, active);
  } else {
    count_objects(slot, pc, address, moved, kRead);
  }
}

template <Depth kDepth>
PASTA_DEVICE void on_shared(const SlotHeader& slot, uint64_t pc, uint32_t address, uint32_t bytes, uint32_t flags) {
  const uint32_t active = __activemask();
  reduce_shared_site(slot, active, pc, address, bytes, kind_of(flags));
  if (kDepth == Depth::trace) keep(slot, pc, address, bytes, flags, active, MemorySpace::shared);
}

PASTA_DEVICE void on_plain(const SlotHeader& slot, uint64_t pc, MemorySpace space, uint32_t bytes, AccessKind kind) {
  reduce_plain_site(slot, __activemask(), pc, space, bytes, kind);
}

constexpr uint32_t kBulkBlockBytes = 16;
constexpr uint32_t kBulkCount = 0xffff;  // the number of 16-byte blocks; above it are a mask's bits

}  // namespace

#define PATCH extern "C" __device__ __noinline__ SanitizerPatchResult SANITIZERAPI
#define SLOT_OR_RETURN                                                 \
  if (userdata == nullptr) return SANITIZER_PATCH_SUCCESS;             \
  const SlotHeader& slot = *static_cast<const SlotHeader*>(userdata)
// That the patch has the type which the header asks for.
#define OF_TYPE(name, type) static_assert(std::is_same<decltype(&name), type>::value, #type)

// Bulk stores have an operand more in newer headers; an older library leaves it undefined.
#ifdef PASTA_SANITIZER_TMA
#define BULK_MASK_OPERAND , uint32_t has_mask
#define BULK_MASK ((slot.features & kBulkMasks) != 0 ? has_mask : 0)
#else
#define BULK_MASK_OPERAND
#define BULK_MASK 0
#endif

// -- Device memory: a patch of each depth ----------------------------------------------------------

#define GLOBAL_PATCHES(depth)                                                                                         \
  PATCH pasta_##depth##_global(void* userdata, uint64_t pc, void* address, uint32_t bytes, uint32_t flags,            \
                               const void*) {                                                                         \
    SLOT_OR_RETURN;                                                                                                   \
    on_global<Depth::depth>(slot, pc, reinterpret_cast<uint64_t>(address), bytes, flags);                             \
    return SANITIZER_PATCH_SUCCESS;                                                                                   \
  }                                                                                                                   \
  PATCH pasta_##depth##_memcpy_async_before_13_5(void* userdata, uint64_t pc, void* source, uint32_t,                 \
                                                 uint32_t bytes) {                                                    \
    SLOT_OR_RETURN;                                                                                                   \
    on_async_copy<Depth::depth>(slot, pc, reinterpret_cast<uint64_t>(source), bytes, 0);                              \
    return SANITIZER_PATCH_SUCCESS;                                                                                   \
  }                                                                                                                   \
  PATCH pasta_##depth##_bulk_load(void* userdata, uint64_t pc, uint64_t source, uint32_t, uint32_t, uint32_t size,    \
                                  uint32_t) {                                                                         \
    SLOT_OR_RETURN;                                                                                                   \
    on_bulk<Depth::depth>(slot, pc, source, (size & kBulkCount) * kBulkBlockBytes, AccessKind::load);                 \
    return SANITIZER_PATCH_SUCCESS;                                                                                   \
  }                                                                                                                   \
  PATCH pasta_##depth##_bulk_reduction(void* userdata, uint64_t pc, uint64_t target, uint32_t, uint32_t blocks) {     \
    SLOT_OR_RETURN;                                                                                                   \
    on_bulk<Depth::depth>(slot, pc, target, (blocks & kBulkCount) * kBulkBlockBytes, AccessKind::atomic);             \
    return SANITIZER_PATCH_SUCCESS;                                                                                   \
  }                                                                                                                   \
  OF_TYPE(pasta_##depth##_global, SanitizerCallbackMemoryAccess);                                                     \
  OF_TYPE(pasta_##depth##_bulk_load, SanitizerCallbackBulkCopyGlobalToShared);                                        \
  OF_TYPE(pasta_##depth##_bulk_reduction, SanitizerCallbackBulkReductionSharedToGlobal)

GLOBAL_PATCHES(objects);
GLOBAL_PATCHES(full);
GLOBAL_PATCHES(trace);

// The library tells since 13.5 how many bytes are zeros. To ask the slot for it would be a load more for each copy.
#ifdef PASTA_SANITIZER_ZERO_FILL
#define ASYNC_COPY_PATCH(depth)                                                                                       \
  PATCH pasta_##depth##_memcpy_async(void* userdata, uint64_t pc, void* source, uint32_t, uint32_t bytes,             \
                                     uint32_t zeros) {                                                                \
    SLOT_OR_RETURN;                                                                                                   \
    on_async_copy<Depth::depth>(slot, pc, reinterpret_cast<uint64_t>(source), bytes, zeros);                          \
    return SANITIZER_PATCH_SUCCESS;                                                                                   \
  }                                                                                                                   \
  OF_TYPE(pasta_##depth##_memcpy_async, SanitizerCallbackMemcpyAsync)

ASYNC_COPY_PATCH(objects);
ASYNC_COPY_PATCH(full);
ASYNC_COPY_PATCH(trace);
#else
OF_TYPE(pasta_objects_memcpy_async_before_13_5, SanitizerCallbackMemcpyAsync);
OF_TYPE(pasta_full_memcpy_async_before_13_5, SanitizerCallbackMemcpyAsync);
OF_TYPE(pasta_trace_memcpy_async_before_13_5, SanitizerCallbackMemcpyAsync);
#endif

#define BULK_STORE_PATCH(depth)                                                                                    \
  PATCH pasta_##depth##_bulk_store(void* userdata, uint64_t pc, uint64_t target, uint32_t,                         \
                                   uint32_t size BULK_MASK_OPERAND) {                                              \
    SLOT_OR_RETURN;                                                                                                \
    const uint32_t of_each = BULK_MASK != 0 ? lanes::count(size >> 16) : kBulkBlockBytes;                          \
    on_bulk<Depth::depth>(slot, pc, target, (size & kBulkCount) * of_each, AccessKind::store);                        \
    return SANITIZER_PATCH_SUCCESS;                                                                                \
  }                                                                                                                \
  OF_TYPE(pasta_##depth##_bulk_store, SanitizerCallbackBulkCopySharedToGlobal)

BULK_STORE_PATCH(objects);
BULK_STORE_PATCH(full);
BULK_STORE_PATCH(trace);

// The depth does not matter to TMA: one execution moves a whole tile.
#ifdef PASTA_SANITIZER_TMA
PATCH pasta_tma_load(void* userdata, uint64_t pc, uint64_t map, uint32_t, uint32_t, int32_t c0, int32_t c1, int32_t c2,
                     int32_t c3, int32_t c4, uint32_t rank, uint32_t, uint32_t, uint32_t mode) {
  SLOT_OR_RETURN;
  if (!leads(__activemask()) || map == 0) return SANITIZER_PATCH_SUCCESS;
  const int32_t coordinates[kTensorRank] = {c0, rank > 1 ? c1 : 0, rank > 2 ? c2 : 0, rank > 3 ? c3 : 0,
                                            rank > 4 ? c4 : 0};
  reduce_tensor_load(slot, pc, reinterpret_cast<const uint64_t*>(map), coordinates, mode);
  return SANITIZER_PATCH_SUCCESS;
}
OF_TYPE(pasta_tma_load, SanitizerCallbackTensorMemoryLoad);
#endif

// -- Memory on the chip ----------------------------------------------------------------------------

#define SHARED_PATCH(depth)                                                                                           \
  PATCH pasta_##depth##_shared(void* userdata, uint64_t pc, void* address, uint32_t bytes, uint32_t flags,            \
                               const void*) {                                                                         \
    SLOT_OR_RETURN;                                                                                                   \
    const uint32_t place = static_cast<uint32_t>(reinterpret_cast<uint64_t>(address));                                \
    on_shared<Depth::depth>(slot, pc, place, bytes, flags);                                                           \
    return SANITIZER_PATCH_SUCCESS;                                                                                   \
  }                                                                                                                   \
  OF_TYPE(pasta_##depth##_shared, SanitizerCallbackMemoryAccess)

SHARED_PATCH(full);
SHARED_PATCH(trace);

PATCH pasta_remote_shared(void* userdata, uint64_t pc, void*, uint32_t bytes, uint32_t flags, const void*) {
  SLOT_OR_RETURN;
  on_plain(slot, pc, MemorySpace::shared, bytes, kind_of(flags));
  return SANITIZER_PATCH_SUCCESS;
}
OF_TYPE(pasta_remote_shared, SanitizerCallbackMemoryAccess);

// ldmatrix, stmatrix: `bytes` of a row for each lane that gives an address, 8 lanes a matrix.
PATCH pasta_matrix(void* userdata, uint64_t pc, uint32_t address, uint32_t bytes, uint32_t flags, uint32_t matrices,
                   const void*) {
  SLOT_OR_RETURN;
  const bool used = lanes::index() < 8 * matrices;
  const uint32_t addressing = __ballot_sync(__activemask(), used);
  if (!used) return SANITIZER_PATCH_SUCCESS;
  reduce_shared_site(slot, addressing, pc, address, bytes, kind_of(flags));
  return SANITIZER_PATCH_SUCCESS;
}
OF_TYPE(pasta_matrix, SanitizerCallbackMatrixMemoryAccess);

PATCH pasta_async_store(void* userdata, uint64_t pc, uint32_t, uint32_t, void*, uint32_t bytes) {
  SLOT_OR_RETURN;
  on_plain(slot, pc, MemorySpace::shared, bytes, AccessKind::store);
  return SANITIZER_PATCH_SUCCESS;
}
OF_TYPE(pasta_async_store, SanitizerCallbackAsyncStore);

PATCH pasta_async_reduction(void* userdata, uint64_t pc, uint32_t, uint32_t, uint32_t bytes) {
  SLOT_OR_RETURN;
  on_plain(slot, pc, MemorySpace::shared, bytes, AccessKind::atomic);
  return SANITIZER_PATCH_SUCCESS;
}
OF_TYPE(pasta_async_reduction, SanitizerCallbackAsyncReduction);

PATCH pasta_local(void* userdata, uint64_t pc, void*, uint32_t bytes, uint32_t flags, const void*) {
  SLOT_OR_RETURN;
  on_plain(slot, pc, MemorySpace::local, bytes, kind_of(flags));
  return SANITIZER_PATCH_SUCCESS;
}
OF_TYPE(pasta_local, SanitizerCallbackMemoryAccess);

// -- The floor: what instrumenting alone costs -----------------------------------------------------

PATCH pasta_floor_global(void*, uint64_t, void*, uint32_t, uint32_t, const void*) { return SANITIZER_PATCH_SUCCESS; }
#ifdef PASTA_SANITIZER_ZERO_FILL
PATCH pasta_floor_memcpy_async(void*, uint64_t, void*, uint32_t, uint32_t, uint32_t) { return SANITIZER_PATCH_SUCCESS; }
#else
PATCH pasta_floor_memcpy_async(void*, uint64_t, void*, uint32_t, uint32_t) { return SANITIZER_PATCH_SUCCESS; }
#endif
