// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What colls says while it works: lines on stderr or where the installed writer takes them, never on
// stdout.

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace colls {

/// COLLS_LOG: `warn` (the default) says what a user should act on, `info` once-per-job facts,
/// `debug` each connection. `off` is silent.
enum class log_level { off, warn, info, debug };

namespace detail {

log_level parse_log_level(const char* text);
bool is_log_level(const char* text);

/// The rank of this process as a launcher says it, before anything was joined.
const char* launched_rank(const char* unknown);

/// Writes whole lines, in one piece, so that those of several processes do not mix.
using log_writer = void (*)(const char* lines, std::size_t size) noexcept;

inline void write_to_stderr(const char* lines, std::size_t size) noexcept {
  // What cannot be logged is lost: the log has no log.
  (void)std::fwrite(lines, 1, size, stderr);
}

/// Takes all lines of this process. `os/log_writer.hpp` replaces it.
inline constinit std::atomic<log_writer> installed_log_writer = &write_to_stderr;

/// Formats one line and gives it to the installed writer.
void write_log(const char* kind, const char* pattern, std::va_list args);

/// COLLS_LOG, read once.
class log_settings {
 public:
  static const log_settings& instance();
  log_level level() const { return level_; }

 private:
  log_settings();

  log_level level_;
};

}  // namespace detail

/// Whether lines of that level are written: COLLS_LOG is read once, at the first question.
inline bool log_enabled(log_level level) {
  return level <= detail::log_settings::instance().level();
}

/// Writes a line, as printf does, where COLLS_LOG asks for warnings, as it does by default.
[[gnu::format(printf, 1, 2)]] inline void log_warn(const char* pattern, ...) {
  if (!log_enabled(log_level::warn)) return;
  std::va_list args;
  va_start(args, pattern);
  detail::write_log("warning: ", pattern, args);
  va_end(args);
}

/// The same at `info`: what happened once, such as who joined how.
[[gnu::format(printf, 1, 2)]] inline void log_info(const char* pattern, ...) {
  if (!log_enabled(log_level::info)) return;
  std::va_list args;
  va_start(args, pattern);
  detail::write_log("", pattern, args);
  va_end(args);
}

/// The same at `debug`: each attempt, too.
[[gnu::format(printf, 1, 2)]] inline void log_debug(const char* pattern, ...) {
  if (!log_enabled(log_level::debug)) return;
  std::va_list args;
  va_start(args, pattern);
  detail::write_log("", pattern, args);
  va_end(args);
}

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/base/log.ipp>
#endif
