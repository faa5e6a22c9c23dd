// The shard file: batches of rows become chunks of columns (layout in docs/architecture.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/tables.h"

namespace pasta {

// Rows of one table, already turned into columns.
class ColumnBatch {
 public:
  explicit ColumnBatch(const TableInfo& table) : table_(table), columns_(table.column_count) {}

  void append(const void* record);
  uint32_t rows() const { return rows_; }
  int64_t oldest_ns = 0;  // when the first row came in

  // Appends the chunk to `out` and empties the batch.
  void encode(std::vector<uint8_t>& out);

 private:
  const TableInfo& table_;
  std::vector<std::vector<uint8_t>> columns_;
  uint32_t rows_ = 0;
};

void encode_strings(uint32_t first, const std::vector<std::string_view>& texts, std::vector<uint8_t>& out);

// An append-only file, locked (flock) while its process lives, so that sealing can tell a live shard from
// one whose process was killed. A failed write leaves a tail that readers ignore.
class ShardFile {
 public:
  ShardFile() = default;
  ~ShardFile();
  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  // 0 or errno. EEXIST when the file is there.
  int create(const std::string& path);
  int write(const std::vector<uint8_t>& bytes);
  // A fork's child lets go of its parent's file.
  void abandon();
  int64_t bytes_written() const { return bytes_written_; }

 private:
  // Daemons close every descriptor, and the number may then name a file of the program.
  bool still_ours() const;
  int adopt(int fd);

  std::string path_;
  uint64_t device_ = 0, inode_ = 0;
  int fd_ = -1;
  int64_t bytes_written_ = 0;
};

}  // namespace pasta
