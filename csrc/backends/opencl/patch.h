// Overwrites a table of function pointers in memory that may be read-only.
#pragma once

#include <cstddef>

namespace pasta::opencl {

// Replaces table[i] by replacement[i] where neither is null. Pages that were read-only are so again
// afterwards. Other threads may be calling through the table. False, and nothing changed, when the
// memory cannot be written.
bool overwrite_table(void** table, void* const* replacement, size_t entries);

}  // namespace pasta::opencl
