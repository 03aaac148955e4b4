// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Runs two ranks as processes, for programs that use CUDA. CUDA does not survive a fork, so the
// program must not have used it before.

#include <colls/interprocess.hpp>
#include <colls/run.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

/// Runs `rank_main(world)` in two processes. Returns 0, or the status of a process that failed.
/// With `one_is_killed`, a process that ends by SIGKILL has not failed.
template <class Main>
int in_processes(const Main& rank_main, bool one_is_killed = false) {
  char folder[] = "/tmp/colls-cuda-XXXXXX";
  if (::mkdtemp(folder) == nullptr) return 1;
  std::fflush(stdout);
  pid_t started[2];
  for (int rank = 0; rank < 2; ++rank) {
    started[rank] = ::fork();
    if (started[rank] != 0) continue;
    colls::config how;
    // NCCL before 2.30 accepts two processes on one GPU only if they seem to run on two hosts.
    ::setenv("NCCL_HOSTID", rank == 0 ? "colls-0" : "colls-1", 1);
    how.rank = rank;
    how.size = 2;
    how.address = std::string("file://") + folder + "/store";
    const int status = colls::run(rank_main, how);
    std::fflush(stdout);
    ::_exit(status);
  }
  int bad = 0;
  for (const pid_t each : started) {
    int status = 0;
    ::waitpid(each, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) bad = WEXITSTATUS(status);
    if (WIFSIGNALED(status) && !(WTERMSIG(status) == SIGKILL && one_is_killed)) bad = 1;
  }
  std::filesystem::remove_all(folder);
  return bad;
}
