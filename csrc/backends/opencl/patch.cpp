#include "backends/opencl/patch.h"

#include <cstdint>
#include <cstdio>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace pasta::opencl {
namespace {

struct Pages {
  uintptr_t begin, end;
  int protection;
};

// The mappings that [begin, end) lies in, cut to it.
std::vector<Pages> mappings(uintptr_t begin, uintptr_t end) {
  std::vector<Pages> found;
  FILE* file = std::fopen("/proc/self/maps", "re");
  if (file == nullptr) return found;
  char line[512];
  bool at_line_start = true;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    unsigned long first, last;
    char flags[5];
    if (at_line_start && std::sscanf(line, "%lx-%lx %4s", &first, &last, flags) == 3 &&
        first < end && last > begin) {
      const int protection = (flags[0] == 'r' ? PROT_READ : 0) |
                             (flags[1] == 'w' ? PROT_WRITE : 0) | (flags[2] == 'x' ? PROT_EXEC : 0);
      found.push_back({first > begin ? first : begin, last < end ? last : end, protection});
    }
    size_t length = 0;
    while (line[length] != '\0') ++length;
    at_line_start = length > 0 && line[length - 1] == '\n';
  }
  std::fclose(file);
  return found;
}

bool protect(const Pages& pages, int protection) {
  return mprotect(reinterpret_cast<void*>(pages.begin), pages.end - pages.begin, protection) == 0;
}

}  // namespace

bool overwrite_table(void** table, void* const* replacement, size_t entries) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(table) & ~(page - 1);
  const uintptr_t end = (reinterpret_cast<uintptr_t>(table + entries) + page - 1) & ~(page - 1);
  const std::vector<Pages> pages = mappings(begin, end);

  size_t opened = 0;
  for (; opened < pages.size(); ++opened) {
    const Pages& one = pages[opened];
    if ((one.protection & PROT_WRITE) == 0 && !protect(one, one.protection | PROT_WRITE)) break;
  }
  const bool writable = !pages.empty() && opened == pages.size();
  if (writable) {
    for (size_t i = 0; i < entries; ++i) {
      if (replacement[i] != nullptr && table[i] != nullptr) {
        __atomic_store_n(&table[i], replacement[i], __ATOMIC_RELEASE);
      }
    }
  }
  for (size_t i = 0; i < opened; ++i) {
    if ((pages[i].protection & PROT_WRITE) == 0) protect(pages[i], pages[i].protection);
  }
  return writable;
}

}  // namespace pasta::opencl
