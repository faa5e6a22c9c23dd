// The types that records are made of. Every null has a representation of its own, so that a record
// needs no validity bits and a column stays fixed-width.
#pragma once

#include <cstdint>
#include <limits>

namespace pasta {

inline constexpr int64_t kNullI64 = std::numeric_limits<int64_t>::min();
inline constexpr int32_t kNullI32 = std::numeric_limits<int32_t>::min();
inline constexpr double kNullF64 = std::numeric_limits<double>::quiet_NaN();

enum class Bool : uint8_t { no = 0, yes = 1, null = 255 };
constexpr Bool to_bool(bool value) { return value ? Bool::yes : Bool::no; }

// Number of an interned string; 0 is null (the empty string has a number of its own).
struct StringId {
  uint32_t value = 0;
};

// Column types as they stand in a shard: size in bytes is column_bytes().
enum class ColumnType : uint8_t { i64 = 1, i32 = 2, f64 = 3, bool_ = 4, str = 5, enum_ = 6 };

constexpr uint32_t column_bytes(ColumnType type) {
  switch (type) {
    case ColumnType::i64:
    case ColumnType::f64: return 8;
    case ColumnType::i32:
    case ColumnType::str: return 4;
    case ColumnType::bool_:
    case ColumnType::enum_: return 1;
  }
  return 0;
}

struct ColumnInfo {
  const char* name;
  ColumnType type;
  uint16_t offset;  // of the field in the record struct
};

struct TableInfo {
  const char* name;
  uint16_t id;
  uint16_t record_bytes;  // sizeof the record struct
  uint16_t column_count;
  const ColumnInfo* columns;
};

}  // namespace pasta
