// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Strings and lists with inline storage, so that types that contain them remain trivially copyable.

#include <colls/base/error.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdarg>
#include <initializer_list>
#include <string>
#include <string_view>

namespace colls {

namespace detail {

/// Throws an error with the code `code` and a detail text that is formatted as by printf.
[[noreturn, gnu::format(printf, 2, 3)]] inline void raise(errc code, const char* pattern, ...) {
  failure reason(code);
  std::va_list args;
  va_start(args, pattern);
  std::vsnprintf(reason.detail, sizeof reason.detail, pattern, args);
  va_end(args);
  throw error(reason);
}

}  // namespace detail

/// A string of fewer than `Capacity` bytes. The constructor throws `invalid_argument` for a longer
/// text. The error does not quote the text, because the text may be a secret.
template <std::size_t Capacity>
class fixed_string {
 public:
  constexpr fixed_string() = default;
  constexpr fixed_string(std::string_view text) : size_(text.size()) {
    if (size_ >= Capacity) {
      detail::raise(errc::invalid_argument, "a text of %zu bytes where %zu fit", size_,
                    Capacity - 1);
    }
    std::copy(text.begin(), text.end(), bytes_);
  }
  constexpr fixed_string(const char* text) : fixed_string(std::string_view(text)) {}
  fixed_string(const std::string& text) : fixed_string(std::string_view(text)) {}

  constexpr operator std::string_view() const { return {bytes_, size_}; }
  std::string str() const { return {bytes_, size_}; }
  constexpr const char* c_str() const { return bytes_; }
  constexpr const char* data() const { return bytes_; }
  constexpr std::size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr bool starts_with(std::string_view prefix) const {
    return std::string_view(*this).starts_with(prefix);
  }
  template <std::convertible_to<std::string_view> Text>
  friend constexpr bool operator==(const fixed_string& a, const Text& b) {
    return std::string_view(a) == std::string_view(b);
  }

 private:
  char bytes_[Capacity] = {};
  std::size_t size_ = 0;
};

/// A list of at most 16 ports, in the order in which they are tried. `push_back` ignores further
/// ports.
class port_list {
 public:
  constexpr port_list() = default;
  constexpr port_list(std::initializer_list<int> ports) {
    for (const int port : ports) push_back(port);
  }
  constexpr void push_back(int port) {
    if (size_ < ports_.size()) ports_[size_++] = port;
  }
  constexpr bool empty() const { return size_ == 0; }
  constexpr std::size_t size() const { return size_; }
  constexpr int front() const { return ports_[0]; }
  constexpr int operator[](std::size_t i) const { return ports_[i]; }
  constexpr const int* begin() const { return ports_.data(); }
  constexpr const int* end() const { return ports_.data() + size_; }
  friend constexpr bool operator==(const port_list&, const port_list&) = default;

 private:
  std::array<int, 16> ports_{};
  std::size_t size_ = 0;
};

}  // namespace colls
