// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of log.hpp: reads the settings from the environment and formats lines.

#include <colls/base/compiler.hpp>
#include <colls/base/log.hpp>

#include <cstdlib>
#include <cstring>

namespace colls::detail {

/// Returns whether `text` begins with `level`, which is the name of a level in lower case. Ignores
/// the case of `text`.
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

COLLS_ONCE const char* launcher_rank(const char* fallback) {
  for (const char* variable :
       {"COLLS_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value != 0) return value;
  }
  return fallback;
}

COLLS_ONCE void write_log(const char* prefix, const char* pattern, std::va_list args) {
  char text[1400];
  int size = std::snprintf(text, sizeof text, "colls: [%s] %s", launcher_rank("-"), prefix);
  const int length =
      std::vsnprintf(text + size, sizeof text - 1 - static_cast<std::size_t>(size), pattern, args);
  if (length > 0) size += length;
  if (size > static_cast<int>(sizeof text) - 2) size = static_cast<int>(sizeof text) - 2;
  text[size++] = '\n';
  installed_log_writer.load()(text, static_cast<std::size_t>(size));
}

/// Writes a warning without checking the log level. The constructor of `log_settings` calls this
/// function if COLLS_LOG is invalid. The log level cannot be read before this constructor returns.
[[gnu::format(printf, 1, 2)]] COLLS_ONCE void warn_always(const char* pattern, ...) {
  std::va_list args;
  va_start(args, pattern);
  write_log("warning: ", pattern, args);
  va_end(args);
}

COLLS_ONCE const log_settings& log_settings::instance() {
  static const log_settings settings;
  return settings;
}

COLLS_ONCE log_settings::log_settings() : level_(parse_log_level(std::getenv("COLLS_LOG"))) {
  const char* const text = std::getenv("COLLS_LOG");
  if (is_log_level(text)) return;
  warn_always("COLLS_LOG=%.100s is none of off, warn, info, debug; warn is used", text);
}

}  // namespace colls::detail
