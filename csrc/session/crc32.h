// CRC-32 (IEEE 802.3, the one of zlib and PNG), so that readers can check shards with any library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pasta {

uint32_t crc32(const void* data, size_t bytes);

}  // namespace pasta
