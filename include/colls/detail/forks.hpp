// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// forks: what a child of this process has no part in.

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace colls::detail {

/// Sockets of a rank, and memory that it shares with its peers. A child that is forked off and goes
/// on without an exec has a dead socket and memory of its own in their places: nothing that it
/// does, to let the world go above all, reaches its parent or a peer, and peers see the end of the
/// parent though the child lives.
class kept_from_children {
 public:
  static void add(int socket) {
    state& all = known();
    const std::lock_guard lock(all.guard);
    all.sockets.push_back(socket);
  }
  static void add(std::byte* memory, std::size_t size) {
    state& all = known();
    const std::lock_guard lock(all.guard);
    all.memory.emplace_back(memory, size);
  }
  /// Before it is closed.
  static void remove(int socket) {
    state& all = known();
    const std::lock_guard lock(all.guard);
    std::erase(all.sockets, socket);
  }
  /// Before it is unmapped.
  static void remove(const std::byte* memory) {
    state& all = known();
    const std::lock_guard lock(all.guard);
    std::erase_if(all.memory, [=](const auto& each) { return each.first == memory; });
  }
  /// How many forks without an exec lie between this process and the first: another number than
  /// before means that it is a child.
  static unsigned forks() { return known().forks; }

 private:
  struct state {
    std::mutex guard;
    std::vector<int> sockets;
    std::vector<std::pair<std::byte*, std::size_t>> memory;
    unsigned forks = 0;

    state() {
      ::pthread_atfork([] { known().guard.lock(); }, [] { known().guard.unlock(); },
                       [] {
                         known().replace();
                         known().guard.unlock();
                       });
    }
    // In the child, where another thread of the parent may have held any lock but ours.
    void replace() {
      ++forks;
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0) {
        ::close(ends[1]);
        for (const int each : sockets) ::dup3(ends[0], each, O_CLOEXEC);
        ::close(ends[0]);
      }
      for (const auto& [at, size] : memory) {
        ::mmap(at, size, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
      }
    }
  };
  // Never destroyed: what is kept here may go after everything else.
  static state& known() {
    static state& all = *new state;
    return all;
  }
};

}  // namespace colls::detail
