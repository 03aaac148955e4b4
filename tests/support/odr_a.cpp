// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Two files that include every header link into one program and see the same entities.
#include "every_header.hpp"

const std::error_category* category_of_b();

int main() { return category_of_b() == &colls::error_category() ? 0 : 1; }
