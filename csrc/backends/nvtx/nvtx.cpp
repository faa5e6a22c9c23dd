#include "backends/nvtx/nvtx.h"

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "backends/nvtx/nccl.h"
#include "backends/nvtx/payload.h"
#include "session/session.h"

namespace pasta::nvtx {
namespace {

// A domain of the program; its address is the handle that the program holds, so it is never freed.
struct Domain {
  std::string name;
  std::mutex mutex;
  std::unordered_map<uint32_t, std::string> categories;
  Schemas schemas;
  std::unique_ptr<Nccl> nccl;  // of NCCL's domain

  std::string category(uint32_t number) {
    if (number == 0) return {};
    std::lock_guard lock(mutex);
    const auto found = categories.find(number);
    return found == categories.end() ? std::to_string(number) : found->second;
  }
};

Domain& default_domain() {
  static Domain* const domain = new Domain;
  return *domain;
}

Domain& domain_of(nvtxDomainHandle_t handle) {
  return handle == nullptr ? default_domain() : *reinterpret_cast<Domain*>(handle);
}

// UTF-32 (wchar_t on Linux) to UTF-8.
std::string narrow(const wchar_t* text) {
  std::string out;
  for (; text != nullptr && *text != 0; ++text) {
    const auto c = static_cast<uint32_t>(*text);
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0 | c >> 6);
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      out += static_cast<char>(0xE0 | c >> 12);
      out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    } else if (c < 0x110000) {
      out += static_cast<char>(0xF0 | c >> 18);
      out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
      out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
      out += static_cast<char>(0x80 | (c & 0x3F));
    }
  }
  return out;
}

std::string_view view(const char* text) { return text == nullptr ? std::string_view() : text; }

// The text of an annotation; `wide` keeps it alive when it had to be converted.
std::string_view message(const nvtxEventAttributes_t* attributes, std::string& wide) {
  if (attributes == nullptr) return {};
  switch (attributes->messageType) {
    case NVTX_MESSAGE_TYPE_ASCII: return view(attributes->message.ascii);
    case NVTX_MESSAGE_TYPE_UNICODE: return wide = narrow(attributes->message.unicode);
    case NVTX_MESSAGE_TYPE_REGISTERED: {
      const auto* registered = reinterpret_cast<const std::string*>(attributes->message.registered);
      return registered == nullptr ? std::string_view() : *registered;
    }
    default: return {};
  }
}

constexpr auto kSource = AnnotationSource::nvtx;

// Ranges are traced, or open the capture range; else NVTX is here for NCCL only.
bool hears_ranges() {
  static const bool hears = traces(TableId::range) || captures_annotations();
  return hears;
}

void mark(Domain& domain, const nvtxEventAttributes_t* attributes) {
  if (!hears_ranges()) return;
  std::string wide;
  const std::string category = domain.category(attributes == nullptr ? 0 : attributes->category);
  range_mark(message(attributes, wide), kSource, domain.name, category);
}

nvtxRangeId_t start(Domain& domain, const nvtxEventAttributes_t* attributes) {
  if (!hears_ranges()) return 0;
  std::string wide;
  const std::string category = domain.category(attributes == nullptr ? 0 : attributes->category);
  return static_cast<nvtxRangeId_t>(range_start(message(attributes, wide), kSource, domain.name, category));
}

// The payloads that an event's attributes carry: a pointer and a count in the place of a number.
const nvtxPayloadData_t* payloads(const nvtxEventAttributes_t* attributes, size_t& count) {
  const bool extended = attributes != nullptr && attributes->payloadType == NVTX_PAYLOAD_TYPE_EXT;
  count = extended ? static_cast<size_t>(attributes->reserved0) : 0;
  return extended ? reinterpret_cast<const nvtxPayloadData_t*>(attributes->payload.ullValue) : nullptr;
}

int push(Domain& domain, const nvtxEventAttributes_t* attributes) {
  if (!hears_ranges() && domain.nccl == nullptr) return NVTX_NO_PUSH_POP_TRACKING;
  std::string wide;
  const std::string category = domain.category(attributes == nullptr ? 0 : attributes->category);
  const std::string_view text = message(attributes, wide);
  range_push(text, kSource, domain.name, category);
  if (domain.nccl != nullptr) {
    size_t count;
    const nvtxPayloadData_t* const data = payloads(attributes, count);
    domain.nccl->begin(text, domain.schemas, data, count);
  }
  return NVTX_NO_PUSH_POP_TRACKING;
}

int pop(Domain& domain, const nvtxPayloadData_t* data = nullptr, size_t count = 0) {
  if (hears_ranges() || domain.nccl != nullptr) range_pop(kSource, domain.name);
  if (domain.nccl != nullptr) domain.nccl->end(domain.schemas, data, count);
  return NVTX_NO_PUSH_POP_TRACKING;
}

void name_category(Domain& domain, uint32_t category, std::string name) {
  std::lock_guard lock(domain.mutex);
  domain.categories[category] = std::move(name);
}

nvtxDomainHandle_t create_domain(std::string name) {
  auto* domain = new Domain;
  domain->name = std::move(name);
  if (domain->name == "NCCL") domain->nccl = std::make_unique<Nccl>();
  return reinterpret_cast<nvtxDomainHandle_t>(domain);
}

nvtxStringHandle_t register_string(std::string text) {
  return reinterpret_cast<nvtxStringHandle_t>(new std::string(std::move(text)));
}

// One line a callback: the id of nvtxTypes.h and what the program's call does.
void install_core(NvtxFunctionTable table, unsigned size) {
  const auto set = [&](unsigned id, auto* function) {
    if (id < size && table[id] != nullptr) *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  using Attributes = const nvtxEventAttributes_t*;
  set(NVTX_CBID_CORE_MarkEx, +[](Attributes a) { mark(default_domain(), a); });
  set(NVTX_CBID_CORE_MarkA, +[](const char* m) { range_mark(view(m), kSource); });
  set(NVTX_CBID_CORE_MarkW, +[](const wchar_t* m) { range_mark(narrow(m), kSource); });
  set(NVTX_CBID_CORE_RangeStartEx, +[](Attributes a) { return start(default_domain(), a); });
  set(NVTX_CBID_CORE_RangeStartA,
      +[](const char* m) { return static_cast<nvtxRangeId_t>(range_start(view(m), kSource)); });
  set(NVTX_CBID_CORE_RangeStartW,
      +[](const wchar_t* m) { return static_cast<nvtxRangeId_t>(range_start(narrow(m), kSource)); });
  set(NVTX_CBID_CORE_RangeEnd, +[](nvtxRangeId_t id) { range_end(static_cast<int64_t>(id)); });
  set(NVTX_CBID_CORE_RangePushEx, +[](Attributes a) { return push(default_domain(), a); });
  set(NVTX_CBID_CORE_RangePushA, +[](const char* m) {
    range_push(view(m), kSource);
    return static_cast<int>(NVTX_NO_PUSH_POP_TRACKING);
  });
  set(NVTX_CBID_CORE_RangePushW, +[](const wchar_t* m) {
    range_push(narrow(m), kSource);
    return static_cast<int>(NVTX_NO_PUSH_POP_TRACKING);
  });
  set(NVTX_CBID_CORE_RangePop, +[] { return pop(default_domain()); });
  set(NVTX_CBID_CORE_NameCategoryA,
      +[](uint32_t c, const char* n) { name_category(default_domain(), c, std::string(view(n))); });
  set(NVTX_CBID_CORE_NameCategoryW,
      +[](uint32_t c, const wchar_t* n) { name_category(default_domain(), c, narrow(n)); });
}

void install_domains(NvtxFunctionTable table, unsigned size) {
  const auto set = [&](unsigned id, auto* function) {
    if (id < size && table[id] != nullptr) *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  using Attributes = const nvtxEventAttributes_t*;
  using Handle = nvtxDomainHandle_t;
  set(NVTX_CBID_CORE2_DomainMarkEx, +[](Handle d, Attributes a) { mark(domain_of(d), a); });
  set(NVTX_CBID_CORE2_DomainRangeStartEx, +[](Handle d, Attributes a) { return start(domain_of(d), a); });
  set(NVTX_CBID_CORE2_DomainRangeEnd, +[](Handle, nvtxRangeId_t id) { range_end(static_cast<int64_t>(id)); });
  set(NVTX_CBID_CORE2_DomainRangePushEx, +[](Handle d, Attributes a) { return push(domain_of(d), a); });
  set(NVTX_CBID_CORE2_DomainRangePop, +[](Handle d) { return pop(domain_of(d)); });
  set(NVTX_CBID_CORE2_DomainNameCategoryA,
      +[](Handle d, uint32_t c, const char* n) { name_category(domain_of(d), c, std::string(view(n))); });
  set(NVTX_CBID_CORE2_DomainNameCategoryW,
      +[](Handle d, uint32_t c, const wchar_t* n) { name_category(domain_of(d), c, narrow(n)); });
  set(NVTX_CBID_CORE2_DomainRegisterStringA,
      +[](Handle, const char* text) { return register_string(std::string(view(text))); });
  set(NVTX_CBID_CORE2_DomainRegisterStringW, +[](Handle, const wchar_t* text) { return register_string(narrow(text)); });
  set(NVTX_CBID_CORE2_DomainCreateA, +[](const char* name) { return create_domain(std::string(view(name))); });
  set(NVTX_CBID_CORE2_DomainCreateW, +[](const wchar_t* name) { return create_domain(narrow(name)); });
}

// Functions with payloads, which have tables of their own: see InitializeInjectionNvtxExtension in NVTX's headers.
void install_payloads(intptr_t* slots) {
  const auto set = [&](unsigned id, auto* function) { slots[id] = reinterpret_cast<intptr_t>(function); };
  using Handle = nvtxDomainHandle_t;
  using Data = const nvtxPayloadData_t*;
  set(NVTX3EXT_CBID_nvtxPayloadSchemaRegister, +[](Handle d, const nvtxPayloadSchemaAttr_t* a) {
    return a == nullptr ? 0 : domain_of(d).schemas.add(*a);
  });
  // The name of such an event is in a payload that nobody was seen to use.
  set(NVTX3EXT_CBID_nvtxMarkPayload, +[](Handle d, Data, size_t) { mark(domain_of(d), nullptr); });
  set(NVTX3EXT_CBID_nvtxRangePushPayload, +[](Handle d, Data, size_t) { return push(domain_of(d), nullptr); });
  set(NVTX3EXT_CBID_nvtxRangePopPayload, +[](Handle d, Data data, size_t n) { return pop(domain_of(d), data, n); });
  set(NVTX3EXT_CBID_nvtxRangeStartPayload, +[](Handle d, Data, size_t) { return start(domain_of(d), nullptr); });
  set(NVTX3EXT_CBID_nvtxRangeEndPayload,
      +[](Handle, nvtxRangeId_t id, Data, size_t) { range_end(static_cast<int64_t>(id)); });
}

const Backend kBackend = {"nvtx", "run with NVTX 3 programs on a CPU machine and with torch on NVIDIA H200", nullptr, nullptr,
                          nullptr};

bool wanted() { return ensure_session() && (hears_ranges() || Nccl::wanted()); }

}  // namespace

bool install(GetExportTable get_export_table) {
  if (get_export_table == nullptr || !wanted()) return false;
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(*callbacks)) return false;
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return false;
  if (hears_ranges()) install_core(table, size);
  if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) != 0) install_domains(table, size);
  register_backend(kBackend);
  return true;
}

bool install_extension(nvtxExtModuleInfo_t* module) {
  if (module == nullptr || module->moduleId != NVTX_EXT_PAYLOAD_MODULEID || module->segmentsCount == 0 || !wanted()) {
    return false;
  }
  const nvtxExtModuleSegment_t& segment = module->segments[0];
  if (segment.slotCount <= NVTX3EXT_CBID_nvtxRangeEndPayload) return false;
  install_payloads(segment.functionSlots);
  return true;
}

}  // namespace pasta::nvtx
