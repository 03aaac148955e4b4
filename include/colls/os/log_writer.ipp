// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of log_writer.hpp: opens the log file and writes to it.

#include <colls/base/compiler.hpp>
#include <colls/os/log_writer.hpp>
#include <colls/os/system_call.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace colls::detail {

COLLS_ONCE void expand_log_file(const char* pattern, const char* rank, char* path,
                                std::size_t capacity) {
  std::size_t length = 0;
  const auto add = [&](const char* text) {
    for (; *text != 0 && length + 1 < capacity; ++text) path[length++] = *text;
  };
  for (; *pattern != 0; ++pattern) {
    const char literal[2] = {*pattern, 0};
    if (*pattern != '%') {
      add(literal);
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
  path[length] = 0;
}

/// Opens the file that the environment variable COLLS_LOG_FILE names, and returns its descriptor.
/// Returns the descriptor of stderr if no file is named or the file cannot be opened.
COLLS_ONCE int open_log_file() noexcept {
  const char* const pattern = std::getenv("COLLS_LOG_FILE");
  if (pattern == nullptr || *pattern == 0) return STDERR_FILENO;
  char path[1024];
  expand_log_file(pattern, launcher_rank("unknown"), path, sizeof path);
  const int opened = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (opened >= 0) return opened;
  char text[1200];
  const int size = std::snprintf(
      text, sizeof text,
      "colls: [%s] warning: cannot open COLLS_LOG_FILE %.1000s, using stderr instead\n",
      launcher_rank("-"), path);
  write_to_stderr(text, static_cast<std::size_t>(size));
  return STDERR_FILENO;
}

COLLS_ONCE void write_to_log_file(const char* lines, std::size_t size) noexcept {
  static const int file = open_log_file();
  // A write error is ignored, because it could be reported only in the log itself.
  (void)uninterrupted([&] { return ::write(file, lines, size); });
}

}  // namespace colls::detail
