// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reported_failure: a failure that another rank, the launcher or the store (which ranks use to find
// each other) has reported.

#include <colls/base/error.hpp>

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace colls {

/// A failure record that has been checked. It always has an error code, so that a communicator that
/// fails because of this record has a reason. Whatever bytes a peer sent, all ranks in the record
/// are ranks of the world or -1, and all texts are terminated.
class reported_failure {
 public:
  /// Takes a failure that this process reports. Replaces an invalid error code by `protocol_error`.
  explicit reported_failure(const failure& report) : reason_(report) {
    if (!is_reason(reason_.code)) reason_.code = errc::protocol_error;
  }

  /// Reads a failure from bytes that a process of the same wire version has sent. `size` is the
  /// number of ranks in the world. Returns nothing if the bytes have a wrong length or contain no
  /// valid error code.
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
  /// Returns the bytes of a failure, which `parse` can read.
  static std::string_view bytes_of(const failure& report) {
    return {reinterpret_cast<const char*>(&report), sizeof report};
  }

  operator const failure&() const { return reason_; }
  const failure& reason() const { return reason_; }

 private:
  static bool is_reason(errc code) {
    return code >= errc::peer_failed && code <= errc::crypto_failed;
  }
  // Terminates a text and replaces control characters by spaces, so that the text can be part of
  // one line.
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
