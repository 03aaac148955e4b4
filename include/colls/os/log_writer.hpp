// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The log writer: writes log lines to stderr or to COLLS_LOG_FILE.

#include <colls/base/log.hpp>

namespace colls::detail {

/// Writes `pattern` to `path`, a buffer of `capacity` bytes, with %h (host name), %r (rank), %p
/// (process id) and %% expanded. Truncates a path that is too long.
void expand_log_file(const char* pattern, const char* rank, char* path, std::size_t capacity);

/// Writes `size` bytes of log lines. Opens the file at the first call.
void write_to_log_file(const char* lines, std::size_t size) noexcept;

inline const bool writes_to_log_file = [] {
  installed_log_writer = &write_to_log_file;
  return true;
}();

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/os/log_writer.ipp>
#endif
