// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions that read and parse environment variables.

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

/// A set of environment variables. The function `lookup` returns their values. Tests supply a
/// `lookup` function of their own to imitate a launcher.
struct variables {
  const char* (*lookup)(void* context, const char* name);
  void* context;

  /// Returns the value of the variable `name`, or null if the variable is unset or empty.
  const char* get(const char* name) const {
    const char* const value = lookup(context, name);
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
  /// Returns the number in the variable `name`, or -1 if the variable is unset or empty. Throws
  /// if the value is not a number from 0 to `max`.
  int number(const char* name, long max = 100'000'000) const {
    const char* const value = get(name);
    if (value == nullptr) return -1;
    const long parsed = parse_number(value, max);
    if (parsed < 0) raise(errc::join_failed, "%s=%.60s is no number up to %ld", name, value, max);
    return static_cast<int>(parsed);
  }
};

/// Parses a duration such as "30" (seconds), "1.5s", "500ms", "10min" or "2h". Throws an error that
/// names the variable `name` if `text` is not a duration of at least 1 ms.
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
  return time_span::from_nanoseconds(static_cast<time_point>(total));
}

/// Parses a boolean. Returns true for 1, true, yes and on, and false for 0, false, no, off and an
/// empty text. For any other text, throws an error that names the variable `name`.
inline bool parse_switch(const char* name, const std::string& text) {
  for (const char* yes : {"1", "true", "yes", "on"}) {
    if (text == yes) return true;
  }
  for (const char* no : {"", "0", "false", "no", "off"}) {
    if (text == no) return false;
  }
  raise(errc::join_failed, "%s=%.60s is neither 1 nor 0", name, text.c_str());
}

/// Returns the secret in the file at `path`, without trailing white space. Throws if the file
/// cannot be read, if users other than the owner can access it, or if the secret is empty or too
/// long.
inline std::string read_secret_file(const std::string& path) {
  const int file = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  struct stat facts{};
  if (file < 0 || ::fstat(file, &facts) != 0) {
    raise(errc::join_failed, "COLLS_SECRET_FILE=%s: %s", path.c_str(), std::strerror(errno));
  }
  char text[1100];
  const ssize_t size = uninterrupted([&] { return ::read(file, text, sizeof text); });
  ::close(file);
  if ((facts.st_mode & 077) != 0) {
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

/// Returns the value of COLLS_SECRET or the secret in the file that COLLS_SECRET_FILE names, or an
/// empty string if neither variable is set. Throws if both are set.
inline std::string read_secret(const variables& env) {
  const std::string secret = env.text("COLLS_SECRET");
  if (secret.size() > 1023) raise(errc::join_failed, "COLLS_SECRET is longer than 1023 bytes");
  const char* const file = env.get("COLLS_SECRET_FILE");
  if (file == nullptr) return secret;
  if (!secret.empty()) {
    raise(errc::join_failed, "COLLS_SECRET and COLLS_SECRET_FILE are both set: keep one");
  }
  return read_secret_file(file);
}

/// Returns the name of `job` after its launcher has started all ranks again `restarts` times. A
/// process of an earlier start then belongs to another job, and the ranks refuse it.
inline std::string restarted_job(const std::string& job, int restarts) {
  return restarts == 0 ? job : job + "/restart " + std::to_string(restarts);
}

/// Returns the ports that the ranks of `job` try for their store. Called if the launcher announces
/// `port` to the ranks but occupies this port itself. The result depends only on `job` and `port`,
/// so all ranks try the same ports in the same order. The ports lie below the range of ephemeral
/// ports.
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
