#include "backends/opencl/allocations.h"

#include "backends/opencl/dispatch.h"
#include "backends/opencl/guard.h"
#include "backends/opencl/query.h"
#include "session/session.h"

namespace pasta::opencl {
namespace {

void emit_alloc(AllocAction action, const MemoryObject& object, const ApiCall* call) {
  AllocRecord row;
  row.start_ns = call != nullptr ? call->start_ns() : now_ns();
  row.thread_id = thread_id();
  row.device_id = object.device_id;
  row.context_id = object.context_id;
  if (call != nullptr) {
    row.correlation_id = call->correlation_id();
    row.op_id = call->op_id();
  }
  row.action = action;
  row.object_id = object.object_id;
  row.parent_object_id = object.parent_id;
  row.address = object.address;
  row.bytes = object.bytes;
  row.kind = object.kind;
  row.allocator = intern(entry_name(object.allocator));
  emit(row);
}

void CL_CALLBACK on_destruction(cl_mem handle, void*) {
  if (!recording()) return;
  guard([&] {
    if (const auto object = state().memory.take(handle))
      emit_alloc(AllocAction::free, *object, nullptr);
  });
}

int64_t address_of(const void* pointer) {
  return pointer == nullptr ? kNullI64 : static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace

void add_memory(Entry allocator, const ApiCall& call, cl_context context, cl_mem handle) {
  const auto info = next(handle).clGetMemObjectInfo;
  const auto type = query<cl_mem_object_type>(info, handle, CL_MEM_TYPE, 0);
  // A sub-buffer's buffer, or the buffer that an image is a view of.
  const auto parent = query<cl_mem>(info, handle, CL_MEM_ASSOCIATED_MEMOBJECT, nullptr);
  MemoryObject object;
  object.object_id = next_id();
  object.bytes = to_signed(query<size_t>(info, handle, CL_MEM_SIZE, 0));
  object.kind = memory_kind(type, parent);
  object.allocator = allocator;
  if (object.kind == MemoryKind::image) {
    object.element_bytes = static_cast<uint32_t>(
        query<size_t>(next(handle).clGetImageInfo, handle, CL_IMAGE_ELEMENT_SIZE, 0));
  }
  // With CL_MEM_USE_HOST_PTR the object is the program's memory; elsewhere the API tells no
  // address.
  const auto flags = query<cl_mem_flags>(info, handle, CL_MEM_FLAGS, 0);
  if (flags & CL_MEM_USE_HOST_PTR)
    object.address = address_of(query<void*>(info, handle, CL_MEM_HOST_PTR, nullptr));
  if (parent != nullptr) object.parent_id = find_memory(parent).object_id;
  if (const auto known = find_context(context)) {
    object.context_id = known->id;
    object.device_id = known->device_id;
  }
  emit_alloc(AllocAction::alloc, object, &call);
  // Known before the driver can tell us of its end.
  state().memory.set(handle, object);
  if (next(handle).clSetMemObjectDestructorCallback(handle, on_destruction, nullptr) !=
      CL_SUCCESS) {
    report_loss("opencl", "alloc", 1, "the driver does not tell when a memory object is destroyed");
  }
}

void add_pointer(Entry allocator, const ApiCall& call, cl_context context, cl_device_id device,
                 MemoryKind kind, const void* pointer, size_t bytes) {
  MemoryObject object;
  object.object_id = next_id();
  object.address = address_of(pointer);
  object.bytes = to_signed(bytes);
  object.kind = kind;
  object.allocator = allocator;
  if (const auto known = find_context(context)) {
    object.context_id = known->id;
    object.device_id = known->device_id;
  }
  if (device != nullptr) object.device_id = find_device(device)->id;
  emit_alloc(AllocAction::alloc, object, &call);
  state().pointers.add(reinterpret_cast<uintptr_t>(pointer), bytes, object);
}

void free_pointer(const ApiCall& call, const void* pointer) {
  const auto object = state().pointers.take(reinterpret_cast<uintptr_t>(pointer));
  if (object) emit_alloc(AllocAction::free, *object, &call);
}

}  // namespace pasta::opencl
