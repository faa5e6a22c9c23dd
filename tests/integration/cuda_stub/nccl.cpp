// What NCCL 2.28 leaves with NVTX, on the stub driver: a communicator of 4 ranks, 3 all-reduces of 4000 bytes, a group of
// a send and a receive. The struct and the schema are this program's own, with NCCL's names.
#include <cuda.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cstddef>
#include <cstdint>

namespace {

nvtxDomainHandle_t g_domain;
constexpr uint64_t kReduce = NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + 5, kSend = kReduce + 1, kInit = kReduce + 2;

struct Reduce {
  uint64_t communicator;
  size_t bytes;
  int operation;
};
struct Send {
  uint64_t communicator;
  size_t bytes;
  int peer;
};
struct Init {
  uint64_t communicator;
  int ranks, rank, device;
};

void add_schema(uint64_t id, const nvtxPayloadSchemaEntry_t* entries, size_t count) {
  nvtxPayloadSchemaAttr_t attributes{};
  attributes.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                         NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID;
  attributes.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  attributes.entries = entries;
  attributes.numEntries = count;
  attributes.schemaId = id;
  nvtxPayloadSchemaRegister(g_domain, &attributes);
}

void add_schemas() {
  const nvtxPayloadSchemaEntry_t reduce[] = {
      {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "NCCL communicator ID", nullptr, 0, 0, nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_SIZE, "Message size [bytes]", nullptr, 0, offsetof(Reduce, bytes), nullptr, nullptr},
      {0, 99 + NVTX_PAYLOAD_SCHEMA_ID_STATIC_START, "Reduction operation", nullptr, 0, offsetof(Reduce, operation),
       nullptr, nullptr}};
  add_schema(kReduce, reduce, 3);
  const nvtxPayloadSchemaEntry_t send[] = {  // without offsets, which then follow from the types
      {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "NCCL communicator ID", nullptr, 0, 0, nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_SIZE, "Message size [bytes]", nullptr, 0, 0, nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT, "Peer rank", nullptr, 0, 0, nullptr, nullptr}};
  add_schema(kSend, send, 3);
  const nvtxPayloadSchemaEntry_t init[] = {
      {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "NCCL communicator ID", nullptr, 0, 0, nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT, "No. of ranks", nullptr, 0, offsetof(Init, ranks), nullptr, nullptr}};
  add_schema(kInit, init, 2);
}

void push(const char* name, const nvtxPayloadData_t* data) {
  nvtxEventAttributes_t attributes{};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = nvtxDomainRegisterStringA(g_domain, name);
  if (data != nullptr) {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    attributes.reserved0 = 1;
    attributes.payload.ullValue = reinterpret_cast<uint64_t>(data);
  }
  nvtxDomainRangePushEx(g_domain, &attributes);
}

void launch() { cuLaunchKernel(nullptr, 2, 1, 1, 512, 1, 1, 0, nullptr, nullptr, nullptr); }

}  // namespace

int main() {
  CUcontext context;
  if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate(&context, nullptr, 0, 0) != CUDA_SUCCESS) return 1;
  g_domain = nvtxDomainCreateA("NCCL");
  add_schemas();
  push("ncclCommInitRankConfig", nullptr);
  const Init init{0xc0ffee, 4, 1, 0};
  const nvtxPayloadData_t made{kInit, sizeof(init), &init};
  nvtxRangePopPayload(g_domain, &made, 1);
  for (int i = 0; i < 3; ++i) {
    const Reduce reduce{0xc0ffee, 4000, 0};
    const nvtxPayloadData_t data{kReduce, sizeof(reduce), &reduce};
    push("ncclAllReduce", &data);
    launch();
    nvtxDomainRangePop(g_domain);
  }
  push("ncclGroupStart", nullptr);
  nvtxDomainRangePop(g_domain);
  const Send send{0xc0ffee, 64, 2}, receive{0xc0ffee, 96, 3};
  const nvtxPayloadData_t sent{kSend, sizeof(send), &send}, received{kSend, sizeof(receive), &receive};
  push("ncclSend", &sent);
  nvtxDomainRangePop(g_domain);
  push("ncclRecv", &received);
  nvtxDomainRangePop(g_domain);
  push("ncclGroupEnd", nullptr);
  launch();
  nvtxDomainRangePop(g_domain);
  return 0;
}
