// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// log_writer: writes log lines to stderr or to the file that the environment variable
// COLLS_LOG_FILE names.

#include <colls/base/log.hpp>

namespace colls::detail {

/// Writes `pattern` to `path`, a buffer of `capacity` bytes. Replaces %h by the host name, %r by
/// the rank, %p by the process id and %% by %. Truncates a path that is too long.
void expand_log_file(const char* pattern, const char* rank, char* path, std::size_t capacity);

/// Writes `size` bytes of log lines to the file or to stderr. The first call opens the file.
void write_to_log_file(const char* lines, std::size_t size) noexcept;

inline const bool writes_to_log_file = [] {
  installed_log_writer = &write_to_log_file;
  return true;
}();

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/os/log_writer.ipp>
#endif
