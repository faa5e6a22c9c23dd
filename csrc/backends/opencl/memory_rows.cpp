#include "backends/opencl/memory_rows.h"

#include <optional>

namespace pasta::opencl {
namespace {

int64_t to_column(uint64_t count) { return static_cast<int64_t>(count); }
int64_t to_column(const std::optional<uint64_t>& count) {
  return count ? to_column(*count) : kNullI64;
}

// OpenCL's local memory is what the tables call shared.
Space to_column(memory::Space space) {
  switch (space) {
    case memory::Space::global:
      return Space::global;
    case memory::Space::local:
      return Space::shared;
    case memory::Space::constant:
      return Space::constant;
    case memory::Space::image:
      return Space::image;
    case memory::Space::pipe:
      return Space::pipe;
    case memory::Space::generic:
      return Space::generic;
    case memory::Space::unknown:
      break;
  }
  return Space::unknown;
}

AccessSiteKind to_column(memory::AccessKind kind) {
  switch (kind) {
    case memory::AccessKind::load:
      return AccessSiteKind::load;
    case memory::AccessKind::store:
      return AccessSiteKind::store;
    case memory::AccessKind::atomic:
      return AccessSiteKind::atomic;
    case memory::AccessKind::copy_load:
    case memory::AccessKind::copy_store:
      break;
  }
  return AccessSiteKind::copy;
}

}  // namespace

AccessObjectRecord object_row(int64_t launch_id, const memory::ObjectAccess& access) {
  AccessObjectRecord row;
  row.launch_id = launch_id;
  if (access.object_id != memory::kNoObject) row.object_id = access.object_id;
  if (access.argument) row.argument = static_cast<int32_t>(*access.argument);
  row.space = to_column(access.space);
  row.loads = to_column(access.loads);
  row.stores = to_column(access.stores);
  row.atomics = to_column(access.atomics);
  row.load_bytes = to_column(access.load_bytes);
  row.store_bytes = to_column(access.store_bytes);
  row.atomic_bytes = to_column(access.atomic_bytes);
  row.lines = to_column(access.lines);
  row.pages_4k = to_column(access.pages_4k);
  row.pages_64k = to_column(access.pages_64k);
  row.pages_2m = to_column(access.pages_2m);
  row.first_offset = to_column(access.first_offset);
  row.last_offset = to_column(access.last_offset);
  return row;
}

AccessBlockRecord block_row(int64_t launch_id, const memory::BlockAccess& access) {
  AccessBlockRecord row;
  row.launch_id = launch_id;
  row.object_id = access.object_id;
  row.offset = to_column(access.offset);
  row.bytes = to_column(access.bytes);
  row.accesses = to_column(access.accesses);
  return row;
}

AccessSiteRecord site_row(int64_t launch_id, int64_t site_id, const memory::Site& site,
                          const memory::SiteAccess& access) {
  AccessSiteRecord row;
  row.launch_id = launch_id;
  row.site_id = site_id;
  row.kind = to_column(site.kind);
  row.space = to_column(site.space);
  row.executions = to_column(access.executions);
  row.lanes = to_column(access.lanes);
  row.bytes = to_column(access.bytes);
  row.sectors = to_column(access.sectors);
  row.ideal_sectors = to_column(access.ideal_sectors);
  row.bank_conflicts = to_column(access.bank_conflicts);
  return row;
}

}  // namespace pasta::opencl
