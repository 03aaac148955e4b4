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
    "COLLS_RANK",      "COLLS_WORLD_SIZE",  "COLLS_LOCAL_RANK", "COLLS_LOCAL_WORLD_SIZE",
    "COLLS_NODE_RANK", "COLLS_NNODES",      "COLLS_STORE",      "COLLS_JOB",
    "COLLS_SECRET",    "COLLS_SECRET_FILE", "COLLS_TIMEOUT",    "COLLS_JOIN_TIMEOUT",
    "COLLS_PORT",      "COLLS_INSECURE",    "COLLS_LOG",        "COLLS_LOG_FILE",
    "COLLS_TERMINAL",  "COLLS_MNIST",       "COLLS_SIM_SEEDS",  "COLLS_SIM_SEED",
    "COLLS_SIM_SCENARIO", "COLLS_TRANSPORT", "COLLS_READS",
};

/// Changes of one letter that turn `a` into `b`.
inline int edit_distance(const char* a, const char* b) {
  constexpr int longest = 64;
  int row[longest + 1];
  const int width = static_cast<int>(std::strlen(b));
  if (width > longest) return longest;
  for (int j = 0; j <= width; ++j) row[j] = j;
  for (int i = 1; *a != 0; ++a, ++i) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= width; ++j) {
      const int kept = diagonal + (*a == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      const int shifted = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      row[j] = kept < shifted ? kept : shifted;
    }
  }
  return row[width];
}

/// The known variable that `name` is most like, or null if it is like none.
inline const char* nearest_variable(const char* name) {
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

inline log_level parse_log_level(const char* text) {
  if (text == nullptr) return log_level::warn;
  if (::strncasecmp(text, "off", 3) == 0 || std::strcmp(text, "0") == 0) return log_level::off;
  if (::strncasecmp(text, "info", 4) == 0) return log_level::info;
  if (::strncasecmp(text, "debug", 5) == 0) return log_level::debug;
  return log_level::warn;
}
inline bool is_log_level(const char* text) {
  return text == nullptr || *text == 0 || ::strncasecmp(text, "warn", 4) == 0 ||
         parse_log_level(text) != log_level::warn;
}

/// Writes `pattern` with %h (host name), %r (rank), %p (process) and %% filled in.
inline void expand_log_file(const char* pattern, const char* rank, char* into, std::size_t room) {
  std::size_t at = 0;
  const auto add = [&](const char* text) {
    for (; *text != 0 && at + 1 < room; ++text) into[at++] = *text;
  };
  for (; *pattern != 0; ++pattern) {
    char one[2] = {*pattern, 0};
    if (*pattern != '%') {
      add(one);
      continue;
    }
    char text[256] = {};
    switch (*++pattern) {
      case 'h':
        ::gethostname(text, sizeof text - 1);
        break;
      case 'r':
        std::snprintf(text, sizeof text, "%s", rank);
        break;
      case 'p':
        std::snprintf(text, sizeof text, "%d", static_cast<int>(::getpid()));
        break;
      case '%':
        text[0] = '%';
        break;
      case 0:
        --pattern;
        [[fallthrough]];
      default:
        text[0] = '%';
        text[1] = *pattern == '%' ? '\0' : *pattern;
    }
    add(text);
  }
  into[at] = 0;
}

/// The rank of this process as a launcher says it, before anything was joined.
inline const char* launched_rank(const char* unknown) {
  for (const char* variable :
       {"COLLS_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value != 0) return value;
  }
  return unknown;
}

class log_file {
 public:
  static log_file& instance() {
    static log_file only;
    return only;
  }
  log_level level() const { return level_; }

  void write(const char* kind, const char* pattern, std::va_list args) {
    char text[1400];
    int at = std::snprintf(text, sizeof text, "colls: [%s] %s", launched_rank("-"), kind);
    const int wrote =
        std::vsnprintf(text + at, sizeof text - 1 - static_cast<std::size_t>(at), pattern, args);
    if (wrote > 0) at += wrote;
    if (at > static_cast<int>(sizeof text) - 2) at = static_cast<int>(sizeof text) - 2;
    text[at++] = '\n';
    // One call per line, so that the lines of several processes do not mix.
    [[maybe_unused]] const auto ignored = ::write(descriptor_, text, static_cast<std::size_t>(at));
  }

 private:
  log_file() : level_(parse_log_level(std::getenv("COLLS_LOG"))) {
    open();
    const char* const asked = std::getenv("COLLS_LOG");
    if (is_log_level(asked)) return;
    complain("COLLS_LOG=%.100s is none of off, warn, info, debug; it counts as warn", asked);
  }

  void open() {
    const char* const pattern = std::getenv("COLLS_LOG_FILE");
    if (pattern == nullptr || *pattern == 0) return;
    char path[1024];
    expand_log_file(pattern, launched_rank("unknown"), path, sizeof path);
    const int opened = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (opened >= 0) {
      descriptor_ = opened;
    } else {
      complain("cannot open COLLS_LOG_FILE %.1000s, so stderr it is", path);
    }
  }
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
inline int warn_about_unknown_variables(char** environment) {
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
      log_warn("the variable %s means nothing to colls: is %s meant?", name, hint);
    } else {
      log_warn("the variable %s means nothing to colls", name);
    }
  }
  return unknown;
}

/// The same for this process, once.
inline void warn_about_unknown_variables() {
  [[maybe_unused]] static const int once = warn_about_unknown_variables(environ);
}

}  // namespace colls
