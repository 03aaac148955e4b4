// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a rank ended, in words.

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace launcher {

inline std::string signal_name(int number) {
  const char* const name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

/// A rank's wait status as a shell would give it: 128 + n for signal n.
inline int exit_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

inline std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  return fmt::format("killed by {}{}", signal_name(WTERMSIG(status)),
                     WCOREDUMP(status) ? " (core dumped)" : "");
}

inline std::string host_name() {
  char name[256] = "unknown host";
  ::gethostname(name, sizeof name - 1);
  return name;
}

struct failed_rank {
  int rank = 0;
  int pid = 0;
  int status = 0;
  double seconds = 0;
  std::vector<std::string> last_lines;
  bool output_closed = false;  // nobody reads what the ranks print
};

/// The first failure as one block of lines.
inline std::vector<std::string> explain(const failed_rank& it) {
  std::vector<std::string> lines = {
      fmt::format("colls-run: rank {} failed: {}", it.rank, how_it_ended(it.status)),
      fmt::format("    host {}, pid {}, {:.3f} s after the start", host_name(), it.pid, it.seconds)};
  if (WIFSIGNALED(it.status) && WTERMSIG(it.status) == SIGKILL) {
    lines.emplace_back("    not by colls-run: somebody did, or the kernel, out of memory (dmesg)");
  }
  if (WIFSIGNALED(it.status) && WTERMSIG(it.status) == SIGPIPE && it.output_closed) {
    lines.emplace_back("    whoever read the output of colls-run has gone");
  }
  if (it.last_lines.empty()) {
    lines.emplace_back("    it wrote nothing to stderr");
  } else {
    lines.emplace_back("    its last lines on stderr:");
    for (const std::string& line : it.last_lines) lines.push_back("        " + line);
  }
  return lines;
}

}  // namespace launcher
