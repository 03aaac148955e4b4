// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The output of a child process on stdout and stderr, for tests of the log.

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>

namespace logged {

struct output {
  std::string out;
  std::string err;
};

inline std::string drain(int descriptor) {
  std::string all;
  char piece[512];
  for (ssize_t got; (got = ::read(descriptor, piece, sizeof piece)) > 0;) {
    all.append(piece, static_cast<std::size_t>(got));
  }
  ::close(descriptor);
  return all;
}

/// Runs `body` in a child process with these variables set, and returns its output. The child is
/// needed because a process reads the log level only once.
inline output in_process(std::initializer_list<std::pair<const char*, std::string>> variables,
                         const std::function<void()>& body) {
  int out[2];
  int err[2];
  REQUIRE(::pipe(out) == 0);
  REQUIRE(::pipe(err) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(out[1], 1);
    ::dup2(err[1], 2);
    for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
    body();
    ::_exit(0);
  }
  ::close(out[1]);
  ::close(err[1]);
  output got{drain(out[0]), drain(err[0])};
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  return got;
}

inline bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace logged
