// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// log_writer: writes log lines to stderr or to the file that the environment variable
// COLLS_LOG_FILE names.

#include <colls/base/log.hpp>

namespace colls::detail {

/// Expands the file name `pattern` and writes the result to `path`, a buffer of `capacity` bytes.
/// Replaces %h with the host name, %r with `rank`, %p with the process id and %% with %. Truncates
/// a result that is too long.
void expand_log_file(const char* pattern, const char* rank, char* path, std::size_t capacity);

/// Writes `size` bytes of log lines to the log file, or to stderr if there is none. The first call
/// opens the file.
void write_to_log_file(const char* lines, std::size_t size) noexcept;

/// A variable whose initialisation, before `main`, makes the log use `write_to_log_file`.
inline const bool log_writer_is_installed = [] {
  installed_log_writer = &write_to_log_file;
  return true;
}();

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/os/log_writer.ipp>
#endif
