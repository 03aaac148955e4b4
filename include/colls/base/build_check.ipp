// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <colls/base/build_check.hpp>

extern "C" {
[[gnu::used]] extern const char COLLS_DETAIL_DEBUG = 0;
[[gnu::used]] extern const char COLLS_DETAIL_SANITIZER = 0;
[[gnu::used]] extern const char colls_is_header_only_in_some_files_and_compiled_once_in_others = 0;
}
