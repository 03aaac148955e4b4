// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Compares colls' own view of PMIx with the header of a PMIx that is installed.
#include <colls/bootstrap/pmix_abi.hpp>

#include <doctest/doctest.h>
#include <pmix_common.h>

#include <cstddef>
#include <string>

namespace abi = colls::detail;

TEST_CASE("types and constants are those of PMIx's header") {
  CHECK(sizeof(abi::pmix_process) == sizeof(pmix_proc_t));
  CHECK(offsetof(abi::pmix_process, rank) == offsetof(pmix_proc_t, rank));
  CHECK(sizeof(abi::pmix_datum) == sizeof(pmix_value_t));
  CHECK(offsetof(abi::pmix_datum, flag) == offsetof(pmix_value_t, data.flag));
  CHECK(offsetof(abi::pmix_datum, text) == offsetof(pmix_value_t, data.string));
  CHECK(sizeof(abi::pmix_setting) == sizeof(pmix_info_t));
  CHECK(offsetof(abi::pmix_setting, flags) == offsetof(pmix_info_t, flags));
  CHECK(offsetof(abi::pmix_setting, value) == offsetof(pmix_info_t, value));
  CHECK(abi::pmix_bool == PMIX_BOOL);
  CHECK(abi::pmix_text == PMIX_STRING);
  CHECK(abi::pmix_global == PMIX_GLOBAL);
  CHECK(abi::pmix_collect == std::string(PMIX_COLLECT_DATA));
  CHECK(abi::pmix_has_ended == PMIX_OPERATION_SUCCEEDED);
}
