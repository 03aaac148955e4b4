// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Describes the end of a rank and of the job in words.

#include <fmt/format.h>

#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <deque>
#include <string>
#include <vector>

namespace launcher {

/// Prints a line while no rank runs. Otherwise `job::print` does so.
inline void print_line(const std::string& message) {
  std::fprintf(stderr, "colls-run: %s\n", message.c_str());
}

inline std::string signal_name(int number) {
  const char* const name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

/// The exit status of colls-run for a rank that failed, as a shell reports it: 128 + n for signal
/// n. It is 1 for a rank that exited with 0 and had not left the world.
inline int exit_status(int status) {
  if (status == 0) return 1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// Returns whether the status cannot be the consequence of another rank's failure.
inline bool is_independent_failure(int status) {
  if (!WIFSIGNALED(status)) return false;
  const int number = WTERMSIG(status);
  return number == SIGKILL || number == SIGSEGV || number == SIGBUS || number == SIGILL ||
         number == SIGFPE;
}

inline std::string describe_exit(int status) {
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
  bool output_closed = false;  // the reader of the launcher's output has closed it
};

/// Describes the first failure in one block of lines.
inline std::string explain(const failed_rank& it) {
  const int signal = WIFSIGNALED(it.status) ? WTERMSIG(it.status) : 0;
  std::string text =
      fmt::format("colls-run: rank {} failed: {}\n    host {}, pid {}, {:.3f} s after the start",
                  it.rank, describe_exit(it.status), host_name(), it.pid, it.seconds);
  if (signal == SIGKILL) {
    text += "\n    not by colls-run: by another process, or by the kernel, out of memory (dmesg)";
  }
  if (signal == SIGPIPE && it.output_closed) {
    text += "\n    the reader of colls-run's output has closed it";
  }
  text += it.last_lines.empty() ? "\n    it wrote nothing to stderr"
                                : "\n    its last lines on stderr:";
  for (const std::string& line : it.last_lines) text += "\n        " + line;
  return text;
}

/// Describes why the first rank could not be executed.
inline std::string explain_start_failure(const std::string& program, int error) {
  struct stat found{};
  const bool is_there = ::stat(program.c_str(), &found) == 0;
  const bool is_file = is_there && S_ISREG(found.st_mode);
  const bool may_run = is_file && ::access(program.c_str(), X_OK) == 0;
  if (error == ENOENT && program.find('/') == program.npos) {
    return fmt::format("colls-run: {}: command not found{}", program,
                       may_run ? fmt::format("; did you mean ./{}?", program) : "");
  }
  if (error == ENOENT && is_there) {
    return fmt::format("colls-run: {}: its interpreter was not found", program);
  }
  const char* const hint = error != EACCES || !is_there ? ""
                           : S_ISDIR(found.st_mode)     ? ": it is a directory"
                           : is_file && !may_run        ? ": the file is not executable"
                                                        : "";
  return fmt::format("colls-run: {}: {}{}", program, ::strerror(error), hint);
}

/// Formats ranks that are in ascending order: "0, 2, 5-9".
inline std::string rank_list(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last - first < 2) last = first;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[first]);
    if (last > first) text += fmt::format("-{}", ranks[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace launcher
