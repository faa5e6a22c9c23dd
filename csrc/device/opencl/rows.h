// Which accesses go along a row, so that one work-item can mark the lines of all.
//
// A *row* is the work-items of a work-group that differ in one local id only. An access goes along it where they all
// execute it together, each at the address of the one before plus a constant. That is found without running anything:
// by following what is the same for a row, or grows by a constant along it, through the instructions of a function, and
// which blocks a row reaches together because no branch before them parts it.
#pragma once

#include <cstdint>
#include <tuple>

#include "device/opencl/spirv/module.h"

namespace pasta::memory {

struct Source;
struct CallTree;

// How an integer or an address changes along a row: value[j] = value[0] + j * by, modulo 2^width of its type. With
// `narrow`, value[j] = value[0] + by * (extended(n[j]) - extended(n[0])), where n[j] = n[0] + j * narrow_by of
// `narrow_bits` bits, which may wrap around, is the value of that id.
struct RowStep {
  int64_t by = 0;
  spirv::Id narrow = 0;
  int64_t narrow_by = 1;
  uint32_t narrow_bits = 0;
  bool is_signed = false;
  uint32_t dimension = 0;  // the local id that differs

  bool is_same() const { return by == 0 && narrow == 0; }
  bool operator==(const RowStep& other) const;
  bool operator<(const RowStep& other) const;
  // From one work-item to the next, where nothing wraps around.
  int64_t bytes() const {
    return static_cast<int64_t>(static_cast<uint64_t>(by) * static_cast<uint64_t>(narrow_by));
  }

 private:
  auto tied() const { return std::tie(by, narrow, narrow_by, narrow_bits, is_signed, dimension); }
};

// Sets InstanceAccess::row of the accesses whose lines are consecutive along a row.
void plan_rows(const Source& source, CallTree& tree);

}  // namespace pasta::memory
