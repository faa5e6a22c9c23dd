// Who this process is: rank in a job, host, command line.
#pragma once

#include <cstdint>
#include <string>

namespace pasta {

struct Identity {
  int32_t rank, local_rank, world_size;  // kNullI32 outside a distributed job
  std::string host, command, executable;
};

// `rank_env` names the variable that holds the rank, before those of the known launchers.
Identity read_identity(const std::string& rank_env);

}  // namespace pasta
