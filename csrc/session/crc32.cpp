#include "session/crc32.h"

#include <cstring>

namespace pasta {
namespace {

// Eight tables: table[k][b] advances the CRC of byte b by k further zero bytes, so that the loop below
// takes eight bytes a step.
struct Tables {
  uint32_t table[8][256];

  constexpr Tables() : table() {
    for (uint32_t byte = 0; byte < 256; ++byte) {
      uint32_t crc = byte;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0);
      table[0][byte] = crc;
    }
    for (int k = 1; k < 8; ++k) {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        const uint32_t previous = table[k - 1][byte];
        table[k][byte] = (previous >> 8) ^ table[0][previous & 0xFF];
      }
    }
  }
};
constexpr Tables kTables;

}  // namespace

uint32_t crc32(const void* data, size_t bytes) {
  const auto* p = static_cast<const uint8_t*>(data);
  const auto& t = kTables.table;
  uint32_t crc = 0xFFFFFFFFu;
  for (; bytes >= 8; p += 8, bytes -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    word ^= crc;
    crc = t[7][word & 0xFF] ^ t[6][(word >> 8) & 0xFF] ^ t[5][(word >> 16) & 0xFF] ^
          t[4][(word >> 24) & 0xFF] ^ t[3][(word >> 32) & 0xFF] ^ t[2][(word >> 40) & 0xFF] ^
          t[1][(word >> 48) & 0xFF] ^ t[0][word >> 56];
  }
  for (; bytes > 0; ++p, --bytes) crc = (crc >> 8) ^ t[0][(crc ^ *p) & 0xFF];
  return ~crc;
}

}  // namespace pasta
