// What the Sanitizer's handles are called in a trace: small numbers for contexts, streams and graphs, text for
// kernels; the rows of `context`, `stream` and `device` are written when one is first seen.
#pragma once

#include <sanitizer.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "schema/tables.h"

namespace pasta::sanitizer {

struct KernelName {
  std::string_view readable;  // lives as long as Names
  StringId readable_id, mangled_id;
};

// The node of a graph that something ran as; nulls outside graphs.
struct GraphNode {
  int64_t graph_id = kNullI64, node_id = kNullI64;
};

class Names {
 public:
  const KernelName& kernel(const char* mangled);
  int32_t context(CUcontext context, int32_t device);
  int32_t stream(Sanitizer_StreamHandle stream, int32_t context_id, int32_t device);
  GraphNode node(CUgraphExec graph, CUgraphNode node);

  // Names, sizes and capabilities of the devices seen, asked from the driver: not from a callback.
  void describe_devices();

 private:
  int32_t number(std::unordered_map<const void*, int32_t>& numbers, const void* handle, bool& fresh);
  void see_device(int32_t device);

  std::mutex mutex_;
  struct Entry {
    std::string readable;
    KernelName name;
  };
  std::unordered_map<std::string, Entry> kernels_;
  std::unordered_map<const void*, int32_t> contexts_, streams_, graphs_, nodes_;
  std::unordered_set<int32_t> devices_, described_;
};

}  // namespace pasta::sanitizer
