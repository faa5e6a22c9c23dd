// The output directory of a recording: its name, who owns it, this process's shard in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "session/identity.h"
#include "session/options.h"
#include "session/shard.h"

namespace pasta {

// Expands %p (pid), %h (host), %r (rank), %l (local rank), %q{NAME} (environment) and %%. An unknown
// variable or a missing rank is empty.
std::string expand_output(std::string_view pattern, const Identity& identity, int32_t pid);

struct OpenedOutput {
  std::string error;  // empty: opened
  std::string directory;
  int64_t generation = 0;  // images of this pid that recorded into the directory before (exec)
};
// Creates the directory when this is the recording's first process, refuses one that another recording
// left there, creates the shard and notes the directory in the registry.
OpenedOutput open_output(const Options& options, const Identity& identity, ShardFile& shard);

// Writes a file that is there whole or not at all. True when it is there, whoever wrote it.
bool write_whole(const std::string& path, const void* data, size_t bytes);

}  // namespace pasta
