// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Environment variables, and what their values mean.

#include <colls/bootstrap/config.hpp>
#include <colls/os/descriptor.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <initializer_list>
#include <string_view>

namespace colls {

namespace detail {

/// A way to look a variable up: a function, so that tests can play any launcher.
struct variables {
  const char* (*look)(void* context, const char* name);
  void* context;

  /// Null if it is not set, or set to nothing.
  const char* get(const char* name) const {
    const char* const value = look(context, name);
    return value == nullptr || *value == 0 ? nullptr : value;
  }
  std::string text(const char* name) const {
    const char* const value = get(name);
    return value == nullptr ? std::string() : value;
  }
  bool any(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (get(name) != nullptr) return true;
    }
    return false;
  }
  /// -1 if it is not set; throws if it is no number.
  int number(const char* name, long most = 100'000'000) const {
    const char* const value = get(name);
    if (value == nullptr) return -1;
    const long parsed = parse_number(value, most);
    if (parsed < 0) raise(errc::join_failed, "%s=%.60s is no number up to %ld", name, value, most);
    return static_cast<int>(parsed);
  }
};

/// "30", "1.5s", "500ms", "10min", "2h"; throws for anything else.
inline time_span parse_duration(const char* name, const std::string& text) {
  char* unit = nullptr;
  const double value = std::strtod(text.c_str(), &unit);
  const std::string_view rest(unit);
  const double factor = rest.empty() || rest == "s"    ? 1e9
                        : rest == "ms"                 ? 1e6
                        : rest == "m" || rest == "min" ? 60e9
                        : rest == "h"                  ? 3600e9
                                                       : 0;
  const double total = value * factor;
  if (unit == text.c_str() || !(total >= 1e6) || total > 9e18) {
    raise(errc::join_failed, "%s=%.60s is no time such as 30, 1.5s, 500ms, 10min", name,
          text.c_str());
  }
  return time_span::of(static_cast<time_point>(total));
}

inline bool parse_switch(const char* name, const std::string& text) {
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"", "0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  raise(errc::join_failed, "%s=%.60s is neither 1 nor 0", name, text.c_str());
}

/// The secret in a file that nobody else can read.
inline std::string read_secret_file(const std::string& path) {
  const int file = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  struct stat found{};
  if (file < 0 || ::fstat(file, &found) != 0) {
    raise(errc::join_failed, "COLLS_SECRET_FILE=%s: %s", path.c_str(), std::strerror(errno));
  }
  char text[1100];
  const ssize_t size = uninterrupted([&] { return ::read(file, text, sizeof text); });
  ::close(file);
  if ((found.st_mode & 077) != 0) {
    raise(errc::auth_failed, "COLLS_SECRET_FILE=%s can be read by others: chmod 600 it",
          path.c_str());
  }
  std::string secret(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  while (!secret.empty() && std::isspace(static_cast<unsigned char>(secret.back())) != 0) {
    secret.pop_back();
  }
  if (secret.empty() || secret.size() > 1023) {
    raise(errc::join_failed, "COLLS_SECRET_FILE=%s is %s", path.c_str(),
          secret.empty() ? "empty" : "too long");
  }
  return secret;
}

/// What COLLS_SECRET says, or the file that COLLS_SECRET_FILE names; empty: neither is set.
inline std::string read_secret(const variables& from) {
  const std::string secret = from.text("COLLS_SECRET");
  if (secret.size() > 1023) raise(errc::join_failed, "COLLS_SECRET is longer than 1023 bytes");
  const char* const file = from.get("COLLS_SECRET_FILE");
  if (file == nullptr) return secret;
  if (!secret.empty()) {
    raise(errc::join_failed, "COLLS_SECRET and COLLS_SECRET_FILE are both set: keep one");
  }
  return read_secret_file(file);
}

/// Ports for a job that was told a port which its launcher keeps for itself: all ranks try these
/// in this order. Below the range from which systems choose ports on their own.
inline port_list derived_ports(const std::string& job, int port) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : job + ":" + std::to_string(port)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  port_list ports;
  for (std::uint64_t k = 0; k < 16; ++k) {
    ports.push_back(static_cast<int>(10240 + (hash % 22000 + k * 1373) % 22000));
  }
  return ports;
}

}  // namespace detail

}  // namespace colls
