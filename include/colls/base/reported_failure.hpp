// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reported_failure: a failure reported by another rank, the store or the launcher.

#include <colls/base/error.hpp>

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace colls {

/// A checked failure record. It always has an error code, so a communicator that fails because of
/// it has a reason. Whatever a peer sent, its ranks are ranks of the world or -1, and its texts are
/// terminated.
class reported_failure {
 public:
  /// A failure reported by this process. Without a valid error code it becomes a `protocol_error`.
  explicit reported_failure(const failure& report) : reason_(report) {
    if (!is_reason(reason_.code)) reason_.code = errc::protocol_error;
  }

  /// Reads the bytes of a failure from a process of the same wire version, in a world of `size`
  /// ranks. Returns nothing if their length is wrong or they contain no valid error code.
  static std::optional<reported_failure> parse(std::span<const std::byte> bytes, int size) {
    failure report;
    if (bytes.size() != sizeof report) return std::nullopt;
    std::memcpy(static_cast<void*>(&report), bytes.data(), sizeof report);
    report.refused = false;
    if (!is_reason(report.code)) return std::nullopt;
    for (std::int32_t* const rank : {&report.culprit, &report.observer, &report.waited_for}) {
      if (*rank < 0 || *rank >= size) *rank = -1;
    }
    terminate(report.address);
    terminate(report.detail);
    return reported_failure(report);
  }
  /// Returns the bytes of a failure, as read by `parse`.
  static std::string_view bytes_of(const failure& report) {
    return {reinterpret_cast<const char*>(&report), sizeof report};
  }

  operator const failure&() const { return reason_; }
  const failure& reason() const { return reason_; }

 private:
  static bool is_reason(errc code) {
    return code >= errc::peer_failed && code <= errc::crypto_failed;
  }
  // Terminates a text and replaces control characters, so it can be part of one line.
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
