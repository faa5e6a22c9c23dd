// What a launch did to memory -> rows of access_object, access_block and access_site. Pure
// functions.
#pragma once

#include <cstdint>

#include "device/opencl/decode.h"
#include "schema/tables.h"

namespace pasta::opencl {

AccessObjectRecord object_row(int64_t launch_id, const memory::ObjectAccess& access);
AccessBlockRecord block_row(int64_t launch_id, const memory::BlockAccess& access);
AccessSiteRecord site_row(int64_t launch_id, int64_t site_id, const memory::Site& site,
                          const memory::SiteAccess& access);

}  // namespace pasta::opencl
