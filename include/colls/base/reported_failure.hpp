// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reported_failure: a failure in the words of another rank, the store or the launcher.

#include <colls/base/error.hpp>

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

namespace colls {

/// It always has a reason, so a communicator that fails for it has one. Whatever a peer sent, its
/// ranks are ranks of the world or -1, and its texts end.
class reported_failure {
 public:
  /// What this process reports. Without a reason it is a `protocol_error`.
  explicit reported_failure(const failure& why) : why_(why) {
    if (!is_reason(why_.code)) why_.code = errc::protocol_error;
  }

  /// The bytes of a failure from a process of the same wire version, in a world of `size` ranks.
  /// Nothing if no rank of colls would send them: they have another length, or name no reason.
  static std::optional<reported_failure> parse(std::span<const std::byte> bytes, int size) {
    failure why;
    if (bytes.size() != sizeof why) return std::nullopt;
    std::memcpy(static_cast<void*>(&why), bytes.data(), sizeof why);
    why.refused = false;
    if (!is_reason(why.code)) return std::nullopt;
    for (std::int32_t* const rank : {&why.culprit, &why.observer, &why.waited_for}) {
      if (*rank < 0 || *rank >= size) *rank = -1;
    }
    end(why.address);
    end(why.detail);
    return reported_failure(why);
  }
  /// What `parse` reads.
  static std::string_view bytes_of(const failure& why) {
    return {reinterpret_cast<const char*>(&why), sizeof why};
  }

  operator const failure&() const { return why_; }
  const failure& why() const { return why_; }

 private:
  static bool is_reason(errc code) {
    return code >= errc::peer_failed && code <= errc::crypto_failed;
  }
  // Of a text that is to be part of one line.
  template <std::size_t Size>
  static void end(char (&text)[Size]) {
    text[Size - 1] = 0;
    for (char* at = text; *at != 0; ++at) {
      if (static_cast<unsigned char>(*at) < ' ') *at = ' ';
    }
  }

  failure why_;
};

}  // namespace colls
