// How the work-items of a sub-group are compared, and the keys of the entries at which they meet.
//
// Lanes cannot vote: a CPU runs one work-item after the other, or a vector of some, and a sub-group
// of the declared width is none of the device's. So they meet in a hash table, the *scratch* of
// their work-group, at entries whose keys say what they do together. Whoever comes first takes the
// entry, whoever comes later adds to it: sums, distinct counts and maxima do not depend on the
// order. At the end of the work-group the entries are added to the slot, and freed.
//
//   entry             key, from the highest bit                       count                  most
//   sub-group access  0001 site (16 bits) sub-group (12) n (32)       lanes | distinct << 32  *
//   line or word      1    entry of the access (20)  number (43)
//   bank              01   entry of the access (20 from bit 20)  bank (20)   distinct words
//   sum               001  sum (29) sub-group (32)                                    of a lane
//
//   * bytes of a lane, or words in one bank
//
// Lines (or words) near the first one of an access, as most are, need no entries of their own: the
// access has a bit for each of the 64 around it.
#pragma once

#include "device/opencl/layout.h"

namespace pasta::memory {

inline constexpr uint64_t kAccessKey = uint64_t{1} << 60;
inline constexpr uint64_t kPartKey = uint64_t{1} << 63;
inline constexpr uint64_t kBankKey = uint64_t{1} << 62;
inline constexpr uint64_t kSumKey = uint64_t{1} << 61;
inline constexpr uint32_t kSiteShift = 44, kSubGroupShift = 32, kSumShift = 32;
inline constexpr uint32_t kPartBits = 43;
inline constexpr uint32_t kBankShift = 20;
inline constexpr uint32_t kBankWordShift = 2;
inline constexpr uint32_t kNear = 32;  // lines before the first one, and from it on, that have a bit
static_assert(kBanks == kNear, "words of one bank are two bits, this far apart");

}  // namespace pasta::memory
