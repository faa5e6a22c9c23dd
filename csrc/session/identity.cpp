#include "session/identity.h"

#include <cstdio>
#include <cstdlib>
#include <initializer_list>

#include <unistd.h>

#include "schema/types.h"

namespace pasta {
namespace {

int32_t first_integer(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') continue;
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end == '\0' && value >= 0 && value <= INT32_MAX) return static_cast<int32_t>(value);
  }
  return kNullI32;
}

std::string read_command() {
  std::string text;
  if (FILE* file = std::fopen("/proc/self/cmdline", "re")) {
    char block[4096];
    for (size_t n; (n = std::fread(block, 1, sizeof(block), file)) > 0 && text.size() < (64 << 10);) {
      text.append(block, n);
    }
    std::fclose(file);
  }
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) {
    if (c == '\0') c = ' ';
  }
  return text;
}

}  // namespace

Identity read_identity(const std::string& rank_env) {
  Identity identity;
  // torchrun, Open MPI, MPICH and Intel MPI, PMIx, Slurm, MVAPICH.
  identity.rank = first_integer({rank_env.empty() ? "RANK" : rank_env.c_str(), "RANK", "OMPI_COMM_WORLD_RANK",
                                 "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"});
  identity.local_rank = first_integer({"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                       "MV2_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"});
  identity.world_size =
      first_integer({"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS"});
  char buffer[4096];
  if (::gethostname(buffer, sizeof(buffer)) == 0) {
    buffer[sizeof(buffer) - 1] = '\0';
    identity.host = buffer;
  }
  const ssize_t n = ::readlink("/proc/self/exe", buffer, sizeof(buffer));
  if (n > 0) identity.executable.assign(buffer, static_cast<size_t>(n));
  identity.command = read_command();
  return identity;
}

}  // namespace pasta
