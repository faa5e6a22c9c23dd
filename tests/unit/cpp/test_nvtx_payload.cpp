// Fields of NVTX payloads, read by hand-built schemas; and the names of NCCL's calls.
#include "check.h"

#if __has_include(<nvtx3/nvToolsExtPayload.h>)

#include "backends/nvtx/nccl.h"
#include "backends/nvtx/payload.h"

using namespace pasta::nvtx;

namespace {

nvtxPayloadSchemaEntry_t entry(uint64_t type, const char* name, uint64_t offset = 0) {
  return {0, type, name, nullptr, 0, offset, nullptr, nullptr};
}

template <size_t N>
uint64_t add(Schemas& schemas, const nvtxPayloadSchemaEntry_t (&entries)[N], uint64_t id = 0) {
  nvtxPayloadSchemaAttr_t attributes{};
  attributes.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES;
  if (id != 0) attributes.fieldMask |= NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID;
  attributes.entries = entries;
  attributes.numEntries = N;
  attributes.schemaId = id;
  return schemas.add(attributes);
}

constexpr uint64_t kStatic = NVTX_PAYLOAD_SCHEMA_ID_STATIC_START;

void test_types_and_natural_offsets() {
  struct Mixed {
    uint8_t a;
    int16_t b;
    int c;
    size_t d;
  } const mixed{200, -3, -70000, size_t{5} << 40};
  Schemas schemas;
  CHECK(add(schemas,
            {entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT8, "a"), entry(NVTX_PAYLOAD_ENTRY_TYPE_SHORT, "b"),
             entry(NVTX_PAYLOAD_ENTRY_TYPE_INT, "c"), entry(NVTX_PAYLOAD_ENTRY_TYPE_SIZE, "d")},
            kStatic) == kStatic);
  const nvtxPayloadData_t data{kStatic, sizeof(mixed), &mixed};
  CHECK(schemas.integer(&data, 1, "a") == 200u);
  CHECK(static_cast<int64_t>(*schemas.integer(&data, 1, "b")) == -3);
  CHECK(static_cast<int64_t>(*schemas.integer(&data, 1, "c")) == -70000);
  CHECK(schemas.integer(&data, 1, "d") == uint64_t{5} << 40);
  CHECK(!schemas.integer(&data, 1, "e"));
}

void test_what_is_behind_an_unknown_type() {
  struct Unknown {
    double ratio;
    int found, lost;
  } const unknown{0.5, 7, 8};
  Schemas schemas;
  add(schemas,
      {entry(NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE, "ratio"),
       entry(NVTX_PAYLOAD_ENTRY_TYPE_INT, "found", offsetof(Unknown, found)), entry(77, "what"),
       entry(NVTX_PAYLOAD_ENTRY_TYPE_INT, "lost")},
      kStatic);
  const nvtxPayloadData_t data{kStatic, sizeof(unknown), &unknown};
  CHECK(!schemas.integer(&data, 1, "ratio"));
  CHECK(schemas.integer(&data, 1, "found") == 7u);
  CHECK(!schemas.integer(&data, 1, "lost"));  // nobody says where
}

void test_bad_payloads() {
  const uint64_t value = 1;
  Schemas schemas;
  const uint64_t id = add(schemas, {entry(NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "x")});
  CHECK(id >= NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START);
  const nvtxPayloadData_t good{id, 8, &value}, half{id, 4, &value}, none{id, 8, nullptr}, other{id + 1, 8, &value};
  CHECK(schemas.integer(&good, 1, "x") == 1u);
  CHECK(!schemas.integer(&half, 1, "x") && !schemas.integer(&none, 1, "x") && !schemas.integer(&other, 1, "x"));
  CHECK(!schemas.integer(nullptr, 1, "x") && !schemas.integer(&good, 0, "x"));
  const nvtxPayloadData_t several[] = {other, half, good};
  CHECK(schemas.integer(several, 3, "x") == 1u);
}

void test_names() {
  CHECK(nccl_kind("ncclAllReduce") == "all_reduce" && nccl_kind("ncclSend") == "send");
  CHECK(nccl_kind("ncclGroupEnd").empty() && nccl_kind("").empty());
}

}  // namespace

int main() {
  test_types_and_natural_offsets();
  test_what_is_behind_an_unknown_type();
  test_bad_payloads();
  test_names();
  return g_failures == 0 ? 0 : 1;
}

#else

int main() { return 77; }  // built without NVTX's headers

#endif
