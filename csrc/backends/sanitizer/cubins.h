// The binaries of modules. The library shows one when its module is loaded and not again: it is kept until a kernel of
// the module is measured, and then written beside the shards, where sealing looks up lines, registers and instructions.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "schema/types.h"

namespace pasta::sanitizer {

class Cubins {
 public:
  // Bounds on what waits in memory and on what is written, a process.
  static constexpr size_t kMostKept = size_t{256} << 20, kMostWritten = size_t{512} << 20;

  void loaded(CUmodule module, const char* cubin, size_t bytes);
  void unloaded(CUmodule module);

  // A kernel of the module is measured: the name of the file that holds its binary, none when there is none. Writes it
  // the first time.
  StringId measured(CUmodule module);

 private:
  struct Kept {
    std::vector<char> bytes;  // empty once written
    StringId file{};
  };
  std::mutex mutex_;
  std::unordered_map<CUmodule, Kept> modules_;
  std::unordered_set<std::string> written_;  // modules of several contexts may have one binary
  size_t kept_bytes_ = 0, written_bytes_ = 0;
};

// "cubin-" and a hash of the content.
std::string cubin_name(const char* cubin, size_t bytes);

}  // namespace pasta::sanitizer
