// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// log: writes log lines to stderr, or passes them to another writer if one is installed. Nothing is
// written to stdout.

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace colls {

/// The log levels that the environment variable COLLS_LOG can select. At `off`, colls writes no log
/// lines. At `warn`, the default, it reports problems on which the user should act. At `info`, it
/// also reports events that occur once per job. At `debug`, it also reports details such as each
/// new connection.
enum class log_level { off, warn, info, debug };

namespace detail {

log_level parse_log_level(const char* text);
bool is_log_level(const char* text);

/// Returns the rank that the launcher has given to this process in an environment variable, or
/// `fallback` if there is no such variable. This rank is known before the process joins a world.
const char* launcher_rank(const char* fallback);

/// A function that writes complete log lines. It writes `lines` with one write operation, so that
/// the lines of several processes do not mix.
using log_writer = void (*)(const char* lines, std::size_t size) noexcept;

inline void write_to_stderr(const char* lines, std::size_t size) noexcept {
  // If the write fails, the line is lost, because there is no other place to report the error.
  (void)std::fwrite(lines, 1, size, stderr);
}

/// The function that writes all log lines of this process. `os/log_writer.hpp` replaces the default
/// with a function that can also write to a file.
inline constinit std::atomic<log_writer> installed_log_writer = &write_to_stderr;

/// Formats a log line and passes it to the installed writer. The line contains the rank that
/// the launcher has given to this process ("-" if it has given none), `prefix`, and a message.
/// `pattern` is the printf format of the message, and `args` are the arguments of this format.
void write_log(const char* prefix, const char* pattern, std::va_list args);

/// The settings of the log, which are read once from the environment variable COLLS_LOG.
class log_settings {
 public:
  static const log_settings& instance();
  log_level level() const { return level_; }

 private:
  log_settings();

  log_level level_;
};

}  // namespace detail

/// Returns whether log lines of this level are written. The first call reads COLLS_LOG.
inline bool log_enabled(log_level level) {
  return level <= detail::log_settings::instance().level();
}

/// Writes a line at level `warn`. The arguments are formatted as by printf.
[[gnu::format(printf, 1, 2)]] inline void log_warn(const char* pattern, ...) {
  if (!log_enabled(log_level::warn)) return;
  std::va_list args;
  va_start(args, pattern);
  detail::write_log("warning: ", pattern, args);
  va_end(args);
}

/// Writes a line at level `warn` that is no warning, such as one about each start of a job that its
/// launcher may start again. The arguments are formatted as by printf.
[[gnu::format(printf, 1, 2)]] inline void log_notice(const char* pattern, ...) {
  if (!log_enabled(log_level::warn)) return;
  std::va_list args;
  va_start(args, pattern);
  detail::write_log("", pattern, args);
  va_end(args);
}

/// Writes a line at level `info`. Such a line states a fact about the job, such as how a rank
/// joined. The arguments are formatted as by printf.
[[gnu::format(printf, 1, 2)]] inline void log_info(const char* pattern, ...) {
  if (!log_enabled(log_level::info)) return;
  std::va_list args;
  va_start(args, pattern);
  detail::write_log("", pattern, args);
  va_end(args);
}

/// Writes a line at level `debug`. Such a line reports a detail, such as an attempt to connect. The
/// arguments are formatted as by printf.
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
