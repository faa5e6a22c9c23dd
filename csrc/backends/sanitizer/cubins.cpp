#include "backends/sanitizer/cubins.h"

#include <cinttypes>
#include <cstdio>
#include <utility>

#include "session/crc32.h"
#include "session/session.h"

namespace pasta::sanitizer {
namespace {

void lose(const char* why) {
  report_loss("sanitizer", "line", 1, why, "the kernels of such a module have offsets and no source lines");
}

}  // namespace

std::string cubin_name(const char* cubin, size_t bytes) {
  // FNV-1a, the CRC and the size: not against malice, which would only mislead itself.
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < bytes; ++i) hash = (hash ^ static_cast<unsigned char>(cubin[i])) * 0x100000001b3;
  char name[64];
  std::snprintf(name, sizeof(name), "cubin-%016" PRIx64 "%08" PRIx32 "%zx", hash, crc32(cubin, bytes), bytes);
  return name;
}

void Cubins::loaded(CUmodule module, const char* cubin, size_t bytes) {
  if (cubin == nullptr || bytes == 0) return;
  std::lock_guard lock(mutex_);
  Kept& kept = modules_[module];
  kept_bytes_ -= kept.bytes.size();  // the end of an earlier module at this address was not seen
  kept = {};
  if (kept_bytes_ + bytes > kMostKept) {
    lose("modules that wait for a launch are too large to keep");
    return;
  }
  kept.bytes.assign(cubin, cubin + bytes);
  kept_bytes_ += bytes;
}

void Cubins::unloaded(CUmodule module) {
  std::lock_guard lock(mutex_);
  const auto found = modules_.find(module);
  if (found == modules_.end()) return;
  kept_bytes_ -= found->second.bytes.size();
  modules_.erase(found);
}

StringId Cubins::measured(CUmodule module) {
  std::lock_guard lock(mutex_);
  const auto found = modules_.find(module);
  if (found == modules_.end()) return {};
  Kept& kept = found->second;
  if (kept.bytes.empty()) return kept.file;
  const std::vector<char> bytes = std::exchange(kept.bytes, {});
  kept_bytes_ -= bytes.size();
  const std::string name = cubin_name(bytes.data(), bytes.size());
  if (written_.count(name) == 0) {
    if (written_bytes_ + bytes.size() > kMostWritten) {
      lose("modules of measured kernels are too large to write");
      return {};
    }
    if (!write_beside(name, bytes.data(), bytes.size())) {
      lose("a module could not be written beside the recording");
      return {};
    }
    written_.insert(name);
    written_bytes_ += bytes.size();
  }
  kept.file = intern(name);
  return kept.file;
}

}  // namespace pasta::sanitizer
