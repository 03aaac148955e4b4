// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reported_failure: a failure that another rank, the launcher or the store has reported. The store
// is the service that ranks use to find each other.

#include <colls/base/error.hpp>

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace colls {

/// A failure record that has been checked. Its error code is always valid, so that a communicator
/// can use the record as the reason for its own failure. If `parse` read the record from bytes that
/// a peer sent, each rank in it is a rank of the world or -1, and each text ends with a null
/// character.
class reported_failure {
 public:
  /// Copies a failure record that was created in this process. Replaces an invalid error code with
  /// `protocol_error`.
  explicit reported_failure(const failure& report) : reason_(report) {
    if (!is_reason(reason_.code)) reason_.code = errc::protocol_error;
  }

  /// Reads a failure from the bytes that a process with the same wire version has sent. `size` is
  /// the number of ranks in the world. Returns `std::nullopt` if the number of bytes is wrong or
  /// the error code is invalid.
  static std::optional<reported_failure> parse(std::span<const std::byte> bytes, int size) {
    failure report;
    if (bytes.size() != sizeof report) return std::nullopt;
    std::memcpy(static_cast<void*>(&report), bytes.data(), sizeof report);
    report.refused = report.agreed = false;
    if (!is_reason(report.code)) return std::nullopt;
    for (std::int32_t* const rank : {&report.culprit, &report.observer, &report.waited_for}) {
      if (*rank < 0 || *rank >= size) *rank = -1;
    }
    terminate(report.address);
    terminate(report.detail);
    return reported_failure(report);
  }
  /// Returns the bytes of a failure in the form that `parse` reads. The view refers to `report`.
  static std::string_view bytes_of(const failure& report) {
    return {reinterpret_cast<const char*>(&report), sizeof report};
  }

  operator const failure&() const { return reason_; }
  const failure& reason() const { return reason_; }

 private:
  static bool is_reason(errc code) {
    return code >= errc::peer_failed && code <= detail::last_errc;
  }
  // Sets the last character of `text` to the null character. Replaces all control characters before
  // the first null character with spaces, so that the text fits on one line.
  template <std::size_t Size>
  static void terminate(char (&text)[Size]) {
    text[Size - 1] = 0;
    for (char* c = text; *c != 0; ++c) {
      if (static_cast<unsigned char>(*c) < ' ') *c = ' ';
    }
  }

  failure reason_;
};

}  // namespace colls
