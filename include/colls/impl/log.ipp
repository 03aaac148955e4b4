// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How lines are written: the second half of log.hpp.

#include <colls/version.hpp>

#include <cerrno>

#include <fcntl.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>

namespace colls::detail {

COLLS_ONCE int edit_distance(const char* a, const char* b) {
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

COLLS_ONCE log_level parse_log_level(const char* text) {
  if (text == nullptr) return log_level::warn;
  if (::strncasecmp(text, "off", 3) == 0 || std::strcmp(text, "0") == 0) return log_level::off;
  if (::strncasecmp(text, "info", 4) == 0) return log_level::info;
  if (::strncasecmp(text, "debug", 5) == 0) return log_level::debug;
  return log_level::warn;
}

COLLS_ONCE bool is_log_level(const char* text) {
  return text == nullptr || *text == 0 || ::strncasecmp(text, "warn", 4) == 0 ||
         parse_log_level(text) != log_level::warn;
}

COLLS_ONCE void expand_log_file(const char* pattern, const char* rank, char* into,
                                std::size_t room) {
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
        if (::gethostname(text, sizeof text - 1) != 0) std::snprintf(text, sizeof text, "host");
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

COLLS_ONCE const char* launched_rank(const char* unknown) {
  for (const char* variable :
       {"COLLS_RANK", "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value != 0) return value;
  }
  return unknown;
}

COLLS_ONCE log_file& log_file::instance() {
  static log_file only;
  return only;
}

COLLS_ONCE void log_file::write(const char* kind, const char* pattern, std::va_list args) {
  char text[1400];
  int at = std::snprintf(text, sizeof text, "colls: [%s] %s", launched_rank("-"), kind);
  const int wrote =
      std::vsnprintf(text + at, sizeof text - 1 - static_cast<std::size_t>(at), pattern, args);
  if (wrote > 0) at += wrote;
  if (at > static_cast<int>(sizeof text) - 2) at = static_cast<int>(sizeof text) - 2;
  text[at++] = '\n';
  // One call per line, so that the lines of several processes do not mix.
  // What cannot be logged is lost: the log has no log.
  while (::write(descriptor_, text, static_cast<std::size_t>(at)) < 0 && errno == EINTR) {
  }
}

COLLS_ONCE log_file::log_file() : level_(parse_log_level(std::getenv("COLLS_LOG"))) {
  open();
  const char* const asked = std::getenv("COLLS_LOG");
  if (is_log_level(asked)) return;
  complain("COLLS_LOG=%.100s is none of off, warn, info, debug; it counts as warn", asked);
}

COLLS_ONCE void log_file::open() {
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
      log_warn("the variable %s means nothing to colls: is %s meant?", name, hint);
    } else {
      log_warn("the variable %s means nothing to colls", name);
    }
  }
  return unknown;
}

COLLS_ONCE void warn_about_unknown_variables() {
  [[maybe_unused]] static const int once = warn_about_unknown_variables(environ);
}

}  // namespace colls
