// Reads a table's columns back from the shards of a recording (layout in docs/architecture.md).
#pragma once

#include <dirent.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "schema/tables.h"

inline std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Column name -> values, of all integer columns; enums and strings as their numbers.
using Columns = std::map<std::string, std::vector<int64_t>>;

inline Columns read_table(const std::string& directory, pasta::TableId id) {
  Columns columns;
  const pasta::TableInfo* table = pasta::table_info(static_cast<uint16_t>(id));
  DIR* const listing = opendir(directory.c_str());
  while (const dirent* entry = listing == nullptr ? nullptr : readdir(listing)) {
    if (std::strstr(entry->d_name, ".pastashard") == nullptr) continue;
    const std::vector<uint8_t> bytes = read_file(directory + "/" + entry->d_name);
    const auto number = [&bytes](size_t at, size_t size) {
      uint64_t value = 0;
      std::memcpy(&value, bytes.data() + at, size);
      return value;
    };
    for (size_t at = 0; at + 40 <= bytes.size(); at += 40 + (number(at + 24, 8) + 7) / 8 * 8) {
      if (number(at + 12, 2) != static_cast<uint16_t>(id)) continue;
      const size_t count = number(at + 14, 2), rows = number(at + 16, 4);
      const size_t payload = at + 40 + (count * 8 + 7) / 8 * 8;
      for (size_t c = 0; c < count; ++c) {
        const size_t entry_at = at + 40 + c * 8;
        const pasta::ColumnInfo& column = table->columns[number(entry_at, 2)];
        const size_t size = pasta::column_bytes(column.type), data = payload + number(entry_at + 4, 4);
        for (size_t row = 0; row < rows; ++row) {
          const uint64_t value = number(data + row * size, size);
          columns[column.name].push_back(size == 4 ? static_cast<int32_t>(value) : static_cast<int64_t>(value));
        }
      }
    }
  }
  if (listing != nullptr) closedir(listing);
  return columns;
}
