// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What colls says while it works: to stderr or COLLS_LOG_FILE, never to stdout.

#include <fcntl.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

extern "C" char** environ;

namespace colls {

/// COLLS_LOG: `warn` (the default) says what a user should act on, `info` once-per-job facts,
/// `debug` each connection. `off` is silent.
enum class log_level { off, warn, info, debug };

namespace detail {

inline constexpr const char* known_variables[] = {
    "COLLS_RANK",         "COLLS_WORLD_SIZE",  "COLLS_LOCAL_RANK", "COLLS_LOCAL_WORLD_SIZE",
    "COLLS_NODE_RANK",    "COLLS_NNODES",      "COLLS_STORE",      "COLLS_JOB",
    "COLLS_SECRET",       "COLLS_SECRET_FILE", "COLLS_TIMEOUT",    "COLLS_JOIN_TIMEOUT",
    "COLLS_PORT",         "COLLS_INSECURE",    "COLLS_LOG",        "COLLS_LOG_FILE",
    "COLLS_TERMINAL",     "COLLS_MNIST",       "COLLS_SIM_SEEDS",  "COLLS_SIM_SEED",
    "COLLS_SIM_SCENARIO", "COLLS_TRANSPORT",   "COLLS_READS",      "COLLS_CHECKSUM",
};

/// Changes of one letter that turn `a` into `b`.
int edit_distance(const char* a, const char* b);

/// The known variable that `name` is most like, or null if it is like none.
const char* nearest_variable(const char* name);

log_level parse_log_level(const char* text);
bool is_log_level(const char* text);

/// Writes `pattern` with %h (host name), %r (rank), %p (process) and %% filled in.
void expand_log_file(const char* pattern, const char* rank, char* into, std::size_t room);

/// The rank of this process as a launcher says it, before anything was joined.
const char* launched_rank(const char* unknown);

class log_file {
 public:
  static log_file& instance();
  log_level level() const { return level_; }

  void write(const char* kind, const char* pattern, std::va_list args);

 private:
  log_file();

  void open();
  [[gnu::format(printf, 2, 3)]] void complain(const char* pattern, ...) {
    std::va_list args;
    va_start(args, pattern);
    write("warning: ", pattern, args);
    va_end(args);
  }

  log_level level_;
  int descriptor_ = STDERR_FILENO;
};

}  // namespace detail

/// Whether lines of that level are written: COLLS_LOG is read once, at the first question.
inline bool log_enabled(log_level level) { return level <= detail::log_file::instance().level(); }

/// Writes a line, as printf does, where COLLS_LOG asks for warnings, as it does by default.
[[gnu::format(printf, 1, 2)]] inline void log_warn(const char* pattern, ...) {
  if (!log_enabled(log_level::warn)) return;
  std::va_list args;
  va_start(args, pattern);
  detail::log_file::instance().write("warning: ", pattern, args);
  va_end(args);
}

/// The same at `info`: what happened once, such as who joined how.
[[gnu::format(printf, 1, 2)]] inline void log_info(const char* pattern, ...) {
  if (!log_enabled(log_level::info)) return;
  std::va_list args;
  va_start(args, pattern);
  detail::log_file::instance().write("", pattern, args);
  va_end(args);
}

/// The same at `debug`: each attempt, too.
[[gnu::format(printf, 1, 2)]] inline void log_debug(const char* pattern, ...) {
  if (!log_enabled(log_level::debug)) return;
  std::va_list args;
  va_start(args, pattern);
  detail::log_file::instance().write("", pattern, args);
  va_end(args);
}

/// Warnings of one kind, at most one in `period_s` seconds; the next says how many were left out.
class rate_limited_log {
 public:
  explicit constexpr rate_limited_log(std::int64_t period_s = 10) : period_s_(period_s) {}

  [[gnu::format(printf, 2, 3)]] void warn(const char* pattern, ...) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    ++seen_;
    if (last_s_ >= 0 && now.tv_sec - last_s_ < period_s_) {
      ++left_out_;
      return;
    }
    last_s_ = now.tv_sec;
    char text[1024];
    std::va_list args;
    va_start(args, pattern);
    std::vsnprintf(text, sizeof text, pattern, args);
    va_end(args);
    if (left_out_ == 0) {
      log_warn("%s", text);
    } else {
      log_warn("%s (and %llu more like it)", text, static_cast<unsigned long long>(left_out_));
    }
    left_out_ = 0;
  }

  /// How many there were, written or not.
  std::uint64_t seen() const { return seen_; }

 private:
  std::int64_t period_s_;
  std::int64_t last_s_ = -1;
  std::uint64_t seen_ = 0;
  std::uint64_t left_out_ = 0;
};

/// Warns of variables in `environment` that begin with COLLS_ and mean nothing, with the name that
/// may have been meant. Returns how many there are.
int warn_about_unknown_variables(char** environment);

/// The same for this process, once.
void warn_about_unknown_variables();

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/impl/log.ipp>
#endif
