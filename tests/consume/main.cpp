// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/error.hpp>

int main() { return colls::error_category().name()[0] == 'c' ? 0 : 1; }
