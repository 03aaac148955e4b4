// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The descendants of a process, as /proc shows them, including those that left its process group.

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace launcher {

struct process {
  pid_t pid = 0;
  pid_t parent = 0;
  bool zombie = false;
  std::string name;
};

namespace detail {

inline bool read_process(pid_t pid, process& result) {
  const int file = ::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[512];
  const ssize_t size = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (size <= 0) return false;
  // "pid (name) state parent ..."; the name may contain anything, also blanks and parentheses.
  const std::string_view all(text, static_cast<std::size_t>(size));
  const auto open = all.find('('), close = all.rfind(')');
  if (open == all.npos || close == all.npos || close + 4 >= all.size()) return false;
  result.pid = pid;
  result.name = all.substr(open + 1, close - open - 1);
  result.zombie = all[close + 2] == 'Z';
  result.parent = std::atoi(std::string(all.substr(close + 4, 12)).c_str());
  return true;
}

}  // namespace detail

/// Every live process below `root`, parents before their children.
inline std::vector<process> descendants(pid_t root) {
  std::unordered_map<pid_t, std::vector<process>> children;
  if (DIR* const proc = ::opendir("/proc")) {
    while (const dirent* const entry = ::readdir(proc)) {
      const pid_t pid = std::atoi(entry->d_name);
      process found;
      if (pid > 0 && detail::read_process(pid, found)) children[found.parent].push_back(found);
    }
    ::closedir(proc);
  }
  std::vector<process> all = children[root];
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& next = children[all[i].pid];
    all.insert(all.end(), next.begin(), next.end());
  }
  std::erase_if(all, [](const process& it) { return it.zombie; });
  return all;
}

/// Sends the signal to every descendant of this process. A process that forks meanwhile can leave a
/// child behind: to kill all of them, the caller repeats this until none is left.
inline void signal_descendants(int signal) {
  for (const process& it : descendants(::getpid())) {
    (void)::kill(it.pid, signal);  // it may have ended
  }
}

/// Makes this process the parent of every descendant whose own parent ends, so that it can find and
/// end all of them.
inline bool adopt_orphans() { return ::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0; }

}  // namespace launcher
