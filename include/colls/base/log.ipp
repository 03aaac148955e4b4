// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How lines are written: the second half of log.hpp.

#include <colls/base/compiler.hpp>
#include <colls/base/log.hpp>

#include <cstdlib>
#include <cstring>

namespace colls::detail {

/// Whether the text begins with that level, in letters of either case.
COLLS_ONCE bool is_level(const char* text, const char* level) {
  for (; *level != 0; ++text, ++level) {
    if ((*text | 0x20) != *level) return false;
  }
  return true;
}

COLLS_ONCE log_level parse_log_level(const char* text) {
  if (text == nullptr) return log_level::warn;
  if (is_level(text, "off") || std::strcmp(text, "0") == 0) return log_level::off;
  if (is_level(text, "info")) return log_level::info;
  if (is_level(text, "debug")) return log_level::debug;
  return log_level::warn;
}

COLLS_ONCE bool is_log_level(const char* text) {
  return text == nullptr || *text == 0 || is_level(text, "warn") ||
         parse_log_level(text) != log_level::warn;
}

COLLS_ONCE const char* launched_rank(const char* unknown) {
  for (const char* variable :
       {"COLLS_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value != 0) return value;
  }
  return unknown;
}

COLLS_ONCE void write_log(const char* kind, const char* pattern, std::va_list args) {
  char text[1400];
  int at = std::snprintf(text, sizeof text, "colls: [%s] %s", launched_rank("-"), kind);
  const int wrote =
      std::vsnprintf(text + at, sizeof text - 1 - static_cast<std::size_t>(at), pattern, args);
  if (wrote > 0) at += wrote;
  if (at > static_cast<int>(sizeof text) - 2) at = static_cast<int>(sizeof text) - 2;
  text[at++] = '\n';
  installed_log_writer.load()(text, static_cast<std::size_t>(at));
}

/// For what is wrong with the settings themselves.
[[gnu::format(printf, 1, 2)]] COLLS_ONCE void warn_always(const char* pattern, ...) {
  std::va_list args;
  va_start(args, pattern);
  write_log("warning: ", pattern, args);
  va_end(args);
}

COLLS_ONCE const log_settings& log_settings::instance() {
  static const log_settings only;
  return only;
}

COLLS_ONCE log_settings::log_settings() : level_(parse_log_level(std::getenv("COLLS_LOG"))) {
  const char* const text = std::getenv("COLLS_LOG");
  if (is_log_level(text)) return;
  warn_always("COLLS_LOG=%.100s is none of off, warn, info, debug; it counts as warn", text);
}

}  // namespace colls::detail
