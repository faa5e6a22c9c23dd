// Extended payloads of NVTX: structs of the program whose layout it registered as a schema.
#pragma once

#include <nvtx3/nvToolsExtPayload.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pasta::nvtx {

// The schemas of one domain.
class Schemas {
 public:
  // Returns the id by which payloads name it.
  uint64_t add(const nvtxPayloadSchemaAttr_t& attributes);
  // The field called `name` of the first payload that has one; none where it is no integer or not all there.
  std::optional<uint64_t> integer(const nvtxPayloadData_t* payloads, size_t count, std::string_view name);

 private:
  struct Field {
    std::string name;
    size_t offset, bytes;
    bool is_signed;
  };
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::vector<Field>> fields_;  // integers, by schema
  uint64_t next_id_ = NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START;
};

}  // namespace pasta::nvtx
