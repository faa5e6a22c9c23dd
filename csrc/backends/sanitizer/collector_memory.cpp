// Memory objects, copies and fills, as the Sanitizer calls back for them.
#include "backends/sanitizer/collector.h"
#include "backends/sanitizer/normalize.h"
#include "session/session.h"

namespace pasta::sanitizer {

void Collector::on_alloc(const Sanitizer_ResourceMemoryData& data, const char* allocator) {
  if ((data.flags & SANITIZER_MEMORY_FLAG_PEER) != 0) return;  // known where it was allocated
  AllocRecord row = to_alloc(data);
  row.start_ns = now_ns();
  row.thread_id = thread_id();
  row.context_id = names_.context(data.context, data.device);
  row.stream_id = names_.stream(data.hStream, row.context_id, data.device);
  row.op_id = current_op();
  row.action = AllocAction::alloc;
  row.object_id = next_id();
  row.allocator = intern((data.flags & SANITIZER_MEMORY_FLAG_MODULE) != 0 ? "module" : allocator);
  objects_.add({row.object_id, data.address, data.address + data.size, row.kind, row.device_id});
  if (traces(TableId::alloc)) emit(row);
}

void Collector::on_free(uint64_t address, bool reservation) {
  const std::optional<MemoryObject> object = objects_.take(address, reservation);
  if (!object || !traces(TableId::alloc)) return;
  AllocRecord row;
  row.start_ns = now_ns();
  row.thread_id = thread_id();
  row.device_id = object->device_id;
  row.op_id = current_op();
  row.action = AllocAction::free;
  row.object_id = object->object_id;
  row.address = static_cast<int64_t>(address);
  row.bytes = static_cast<int64_t>(object->end - object->begin);
  row.kind = object->kind;
  emit(row);
}

int64_t Collector::on_tensor_made(uint64_t address, uint64_t bytes) {
  const int64_t id = next_id();
  objects_.add_tensor(id, address, bytes);
  return id;
}

void Collector::on_reserve(const Sanitizer_ResourceVirtualRange& data) {
  AllocRecord row;
  row.start_ns = now_ns();
  row.thread_id = thread_id();
  row.op_id = current_op();
  row.action = AllocAction::alloc;
  row.object_id = next_id();
  row.address = static_cast<int64_t>(data.address);
  row.bytes = static_cast<int64_t>(data.size);
  row.kind = MemoryKind::virtual_;
  row.allocator = intern("reservation");
  objects_.add({row.object_id, data.address, data.address + data.size, row.kind, kNullI32}, true);
  if (traces(TableId::alloc)) emit(row);
}

// An array has no address, and its size is in elements of an unknown size: its life is all there is to tell.
void Collector::on_array(const Sanitizer_ResourceArrayData& data, AllocAction action) {
  if (!traces(TableId::alloc)) return;
  AllocRecord row;
  row.start_ns = now_ns();
  row.thread_id = thread_id();
  row.op_id = current_op();
  row.action = action;
  {
    std::lock_guard lock(mutex_);
    if (action == AllocAction::alloc) arrays_[data.hArray] = next_id();
    const auto array = arrays_.find(data.hArray);
    if (array == arrays_.end()) return;
    row.object_id = array->second;
    if (action == AllocAction::free) arrays_.erase(array);
  }
  row.kind = MemoryKind::array;
  row.allocator = intern("array");
  emit(row);
}

void Collector::on_memcpy(const Sanitizer_MemcpyData& data, const GraphNode& node) {
  instrumenter_->uses(data.apiContext, data.hApiStream);
  if (!collecting() || !traces(TableId::memcpy)) return;
  MemcpyRecord row = to_memcpy(data);
  row.queued_ns = now_ns();
  row.thread_id = thread_id();
  row.op_id = current_op();
  row.graph_id = node.graph_id, row.graph_node_id = node.node_id;
  if (const auto source = objects_.find(data.srcAddress)) {
    row.src_kind = source->kind, row.src_object_id = source->object_id, row.src_device_id = source->device_id;
  }
  if (const auto target = objects_.find(data.dstAddress)) {
    row.dst_kind = target->kind, row.dst_object_id = target->object_id, row.dst_device_id = target->device_id;
  }
  row.device_id = row.dst_device_id != kNullI32 ? row.dst_device_id : row.src_device_id;
  if (data.apiContext != nullptr && row.device_id != kNullI32) {
    row.context_id = names_.context(data.apiContext, row.device_id);
    row.stream_id = names_.stream(data.hApiStream, row.context_id, row.device_id);
  }
  emit(row);
}

void Collector::on_memset(const Sanitizer_MemsetData& data, const GraphNode& node) {
  instrumenter_->uses(data.context, data.hStream);
  if (!collecting() || !traces(TableId::memset)) return;
  MemsetRecord row = to_memset(data);
  row.queued_ns = now_ns();
  row.thread_id = thread_id();
  row.op_id = current_op();
  row.graph_id = node.graph_id, row.graph_node_id = node.node_id;
  if (const auto object = objects_.find(data.address)) {
    row.memory_kind = object->kind, row.object_id = object->object_id, row.device_id = object->device_id;
    row.context_id = names_.context(data.context, row.device_id);
    row.stream_id = names_.stream(data.hStream, row.context_id, row.device_id);
  }
  emit(row);
}

}  // namespace pasta::sanitizer
