// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Runs ranks as processes of one host: this process and its forks. They may be pinned, each to its
// own core, if there are enough cores.

#include <sched.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace bench {

/// Pins this process to the rank-th of its usable cores, if there is one for each rank.
inline void pin(int rank, int ranks) {
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0 || CPU_COUNT(&usable) < ranks) return;
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &usable) || seen++ != rank) continue;
    cpu_set_t single;
    CPU_ZERO(&single);
    CPU_SET(core, &single);
    ::sched_setaffinity(0, sizeof single, &single);
    return;
  }
}

/// A new folder that the destructor of this object removes.
class temporary_folder {
 public:
  temporary_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "colls-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    if (owner_ == ::getpid()) std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }
  std::string file() const { return path_ / "store"; }

 private:
  std::filesystem::path path_;
  pid_t owner_ = ::getpid();
};

/// Runs `main(rank) -> int` in `ranks` processes and returns the first status that is not 0. With
/// `pinned` each process, with the threads that libraries create in it, has its own core.
template <class Main>
int run_in_processes(int ranks, Main main, bool pinned = true) {
  std::vector<pid_t> others;
  const pid_t parent = ::getpid();
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("cannot start a process");
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      if (pinned) pin(rank, ranks);
      ::_exit(main(rank));
    }
    others.push_back(child);
  }
  if (pinned) pin(0, ranks);
  int status = main(0);
  for (const pid_t child : others) {
    int ended = 0;
    ::waitpid(child, &ended, 0);
    if (status == 0 && ended != 0) status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
  }
  return status;
}

}  // namespace bench
