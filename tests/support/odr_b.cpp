// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "every_header.hpp"

const std::error_category* category_of_b();

const std::error_category* category_of_b() { return &colls::error_category(); }
