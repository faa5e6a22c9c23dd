#include "backends/nvtx/payload.h"

#include <cstring>

namespace pasta::nvtx {
namespace {

struct Integer {
  size_t bytes;  // 0: no integer
  bool is_signed;
};

Integer integer_type(uint64_t type) {
  switch (type) {
    case NVTX_PAYLOAD_ENTRY_TYPE_INT8: return {1, true};
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT8: return {1, false};
    case NVTX_PAYLOAD_ENTRY_TYPE_SHORT:
    case NVTX_PAYLOAD_ENTRY_TYPE_INT16: return {2, true};
    case NVTX_PAYLOAD_ENTRY_TYPE_USHORT:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT16: return {2, false};
    case NVTX_PAYLOAD_ENTRY_TYPE_INT:
    case NVTX_PAYLOAD_ENTRY_TYPE_INT32: return {4, true};
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT32: return {4, false};
    case NVTX_PAYLOAD_ENTRY_TYPE_LONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_LONGLONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_INT64: return {8, true};
    case NVTX_PAYLOAD_ENTRY_TYPE_ULONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_ULONGLONG:
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT64:
    case NVTX_PAYLOAD_ENTRY_TYPE_SIZE: return {8, false};
    default: return {0, false};
  }
}

}  // namespace

uint64_t Schemas::add(const nvtxPayloadSchemaAttr_t& attributes) {
  const auto has = [&](uint64_t field) { return (attributes.fieldMask & field) != 0; };
  std::lock_guard lock(mutex_);
  const uint64_t id = has(NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID) ? attributes.schemaId : next_id_++;
  if (!has(NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES) || attributes.entries == nullptr) return id;
  std::vector<Field>& fields = fields_[id];
  fields.clear();
  size_t end = 0;
  bool end_known = true;
  for (size_t i = 0; i < attributes.numEntries; ++i) {
    const nvtxPayloadSchemaEntry_t& entry = attributes.entries[i];
    const Integer type = entry.flags == NVTX_PAYLOAD_ENTRY_FLAG_UNUSED ? integer_type(entry.type) : Integer{};
    // An offset of 0 after the first entry means: where it naturally falls.
    const bool given = i == 0 || entry.offset != 0;
    const size_t aligned = type.bytes == 0 ? end : (end + type.bytes - 1) / type.bytes * type.bytes;
    const size_t offset = given ? entry.offset : aligned;
    if (type.bytes != 0 && (given || end_known)) {
      fields.push_back({entry.name == nullptr ? "" : entry.name, offset, type.bytes, type.is_signed});
    }
    end = offset + type.bytes;
    end_known = type.bytes != 0 && (given || end_known);
  }
  return id;
}

std::optional<uint64_t> Schemas::integer(const nvtxPayloadData_t* payloads, size_t count, std::string_view name) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; payloads != nullptr && i < count; ++i) {
    const nvtxPayloadData_t& data = payloads[i];
    const auto fields = fields_.find(data.schemaId);
    if (fields == fields_.end() || data.payload == nullptr) continue;
    for (const Field& field : fields->second) {
      if (field.name != name || field.offset + field.bytes > data.size) continue;
      uint64_t value = 0;  // little-endian
      std::memcpy(&value, static_cast<const char*>(data.payload) + field.offset, field.bytes);
      const unsigned unused = 64 - 8 * static_cast<unsigned>(field.bytes);
      if (field.is_signed) return static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
      return value;
    }
  }
  return std::nullopt;
}

}  // namespace pasta::nvtx
