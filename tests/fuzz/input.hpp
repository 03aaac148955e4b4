// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The bytes of one run of a fuzzer, and the checks of what a run must not break.

#include <colls/base/error.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

/// Ends the program unless `holds`. libFuzzer reports that as a finding.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

/// Requires that a failure has a known code and that its texts end.
inline void require_sound(const colls::failure& why) {
  require(why.code >= colls::errc::peer_failed && why.code <= colls::detail::last_errc,
          "a failure has a reason");
  require(std::memchr(why.detail, 0, sizeof why.detail) != nullptr, "its text ends");
  require(std::memchr(why.address, 0, sizeof why.address) != nullptr, "its address ends");
}

/// Takes bytes from the front. All bytes past the end are 0.
class input {
 public:
  input(const std::uint8_t* data, std::size_t size)
      : rest_(reinterpret_cast<const char*>(data), size) {}

  bool is_over() const { return rest_.empty(); }
  template <class Number>
  Number number() {
    Number value{};
    const std::string_view bytes = text(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  std::uint8_t byte() { return number<std::uint8_t>(); }
  /// A number below `limit`, from one byte.
  int below(int limit) { return byte() % limit; }
  /// At most `most` bytes.
  std::string_view text(std::size_t most) {
    const std::string_view part = rest_.substr(0, most);
    rest_.remove_prefix(part.size());
    return part;
  }
  /// As many bytes as the next byte says.
  std::string_view text() { return text(byte()); }
  std::string_view rest() { return text(rest_.size()); }

 private:
  std::string_view rest_;
};

/// The bytes of a failure as a peer may send them: any bytes, but often almost those of a failure.
inline std::string failure_text(input& from) {
  colls::failure why(colls::errc::peer_failed, "it said so");
  const int change = from.byte();
  if (change & 1) why.code = static_cast<colls::errc>(from.number<std::int32_t>());
  if (change & 2) why.culprit = from.number<std::int16_t>();
  if (change & 4) why.communicator = from.byte();
  if (change & 8) std::memset(why.detail, 'x', sizeof why.detail);
  if (change & 16) std::memset(why.address, 'y', sizeof why.address);
  std::string text(reinterpret_cast<const char*>(&why), sizeof why);
  if (change & 32)
    text[from.number<std::uint16_t>() % text.size()] = static_cast<char>(from.byte());
  if (change & 64) text.resize(text.size() - 1);
  return text;
}

}  // namespace fuzz
