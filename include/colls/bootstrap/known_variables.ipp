// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of known_variables.hpp: checking the names of environment variables.

#include <colls/base/compiler.hpp>
#include <colls/base/log.hpp>
#include <colls/bootstrap/known_variables.hpp>

#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace colls::detail {

COLLS_ONCE int edit_distance(const char* a, const char* b) {
  constexpr int max_width = 64;
  int row[max_width + 1];
  const int width = static_cast<int>(std::strlen(b));
  if (width > max_width) return max_width;
  for (int j = 0; j <= width; ++j) row[j] = j;
  for (int i = 1; *a != 0; ++a, ++i) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= width; ++j) {
      const int replaced = diagonal + (*a == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      const int shifted = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      row[j] = replaced < shifted ? replaced : shifted;
    }
  }
  return row[width];
}

COLLS_ONCE const char* nearest_variable(const char* name) {
  const char* best = nullptr;
  int distance = 4;
  for (const char* known : known_variables) {
    const int d = edit_distance(name, known);
    if (d < distance) {
      distance = d;
      best = known;
    }
  }
  return best;
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE int warn_about_unknown_variables(char** environment) {
  int unknown = 0;
  for (char** entry = environment; entry != nullptr && *entry != nullptr; ++entry) {
    const char* const end = std::strchr(*entry, '=');
    if (end == nullptr || std::strncmp(*entry, "COLLS_", 6) != 0) continue;
    char name[128];
    std::snprintf(name, sizeof name, "%.*s", static_cast<int>(end - *entry), *entry);
    bool is_known = false;
    for (const char* known : detail::known_variables) is_known |= std::strcmp(known, name) == 0;
    if (is_known) continue;
    ++unknown;
    if (const char* const hint = detail::nearest_variable(name)) {
      log_warn("unknown variable %s: did you mean %s?", name, hint);
    } else {
      log_warn("unknown variable %s", name);
    }
  }
  return unknown;
}

COLLS_ONCE void warn_about_unknown_variables() {
  [[maybe_unused]] static const int once = warn_about_unknown_variables(environ);
}

}  // namespace colls
