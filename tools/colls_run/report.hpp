// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a rank ended, in words.

#include <fmt/format.h>

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <string>

namespace launcher {

inline std::string signal_name(int number) {
  const char* const name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

/// The exit status for a rank that failed, as a shell would give it: 128 + n for signal n; 1 for one
/// that exited with 0 and had not left the world.
inline int exit_status(int status) {
  if (status == 0) return 1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Not what a rank does because another has failed.
inline bool is_own_doing(int status) {
  if (!WIFSIGNALED(status)) return false;
  const int number = WTERMSIG(status);
  return number == SIGKILL || number == SIGSEGV || number == SIGBUS || number == SIGILL ||
         number == SIGFPE;
}

inline std::string how_it_ended(int status) {
  if (status == 0) return "exit code 0 without leaving the world";
  if (!WIFSIGNALED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  return fmt::format("killed by {}{}", signal_name(WTERMSIG(status)),
                     WCOREDUMP(status) ? " (core dumped)" : "");
}

inline std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

struct failed_rank {
  int rank = 0;
  int pid = 0;
  int status = 0;
  double seconds = 0;
  const std::deque<std::string>& last_lines;
  bool output_closed = false;  // nobody reads what the ranks print
};

/// The first failure as one block of lines.
inline std::string explain(const failed_rank& it) {
  const int signal = WIFSIGNALED(it.status) ? WTERMSIG(it.status) : 0;
  std::string text =
      fmt::format("colls-run: rank {} failed: {}\n    host {}, pid {}, {:.3f} s after the start",
                  it.rank, how_it_ended(it.status), host_name(), it.pid, it.seconds);
  if (signal == SIGKILL) {
    text += "\n    not by colls-run: somebody did, or the kernel, out of memory (dmesg)";
  }
  if (signal == SIGPIPE && it.output_closed) {
    text += "\n    whoever read the output of colls-run has gone";
  }
  text += it.last_lines.empty() ? "\n    it wrote nothing to stderr"
                                : "\n    its last lines on stderr:";
  for (const std::string& line : it.last_lines) text += "\n        " + line;
  return text;
}

/// Why the first rank could not be executed.
inline std::string why_not_started(const std::string& program, int error) {
  if (error == ENOENT && program.find('/') == program.npos) {
    const bool here = ::access(program.c_str(), X_OK) == 0;
    return fmt::format("colls-run: {}: command not found{}", program,
                       here ? fmt::format("; did you mean ./{}?", program) : "");
  }
  if (error == ENOENT && ::access(program.c_str(), F_OK) == 0) {
    return fmt::format("colls-run: {}: its interpreter was not found", program);
  }
  return fmt::format("colls-run: {}: {}", program, ::strerror(error));
}

}  // namespace launcher
