// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// log_writer: takes the lines of the log to stderr or to COLLS_LOG_FILE.

#include <colls/base/log.hpp>

namespace colls::detail {

/// Writes `pattern` with %h (host name), %r (rank), %p (process) and %% filled in.
void expand_log_file(const char* pattern, const char* rank, char* into, std::size_t room);

/// Opens the file at the first line.
void write_to_log_file(const char* lines, std::size_t size) noexcept;

inline const bool writes_to_log_file = [] {
  installed_log_writer = &write_to_log_file;
  return true;
}();

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/os/log_writer.ipp>
#endif
