// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pmix_abi: the types and constants of PMIx that colls uses, as its binary interface defines them
// in versions 3 to 5. colls needs no header of PMIx.

#include <cstddef>
#include <cstdint>

namespace colls::detail {

/// pmix_proc_t
struct pmix_process {
  char job[256];
  std::uint32_t rank;
};

/// pmix_value_t
struct pmix_datum {
  std::uint16_t type;
  union {
    bool flag;
    const char* text;
    std::byte size[24];
  };
};

/// pmix_info_t
struct pmix_setting {
  char key[512];
  std::uint32_t flags;
  pmix_datum value;
};

inline constexpr std::uint16_t pmix_bool = 1;   // PMIX_BOOL
inline constexpr std::uint16_t pmix_text = 3;   // PMIX_STRING
inline constexpr std::uint8_t pmix_global = 3;  // PMIX_GLOBAL: all processes can read the value
inline constexpr const char* pmix_collect = "pmix.collect";  // PMIX_COLLECT_DATA
/// PMIX_OPERATION_SUCCEEDED: the call has succeeded, and calls no callback.
inline constexpr int pmix_has_ended = -157;

}  // namespace colls::detail
