// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// forks: what a child of this process has no part in.

#include <colls/base/error.hpp>
#include <colls/os/descriptor.hpp>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace colls::detail {

/// Sockets of a rank, and memory that it shares with its peers. A child that is forked off and goes
/// on without an exec has a dead socket and memory of its own in their places: nothing that it
/// does, to let the world go above all, reaches its parent or a peer, and peers see the end of the
/// parent though the child lives. The process keeps one dead socket for that from the first `add`
/// on, so a fork at the limit on open files finds it.
class kept_from_children {
 public:
  /// A socket may be added several times. Throws `too_many_files` where there is no descriptor for
  /// the dead socket.
  static void add(int socket) {
    state& all = known();
    const std::lock_guard lock(all.guard);
    if (all.dead < 0) all.dead = make_dead_socket();
    all.sockets.push_back(socket);
  }
  /// A whole mapping, or several in a row. Children do not get its pages even before theirs lie
  /// there.
  static std::error_code add(std::byte* memory, std::size_t size) {
    state& all = known();
    const std::lock_guard lock(all.guard);
    if (::madvise(memory, size, MADV_DONTFORK) != 0) return {errno, std::generic_category()};
    all.memory.emplace_back(memory, size);
    return {};
  }
  /// Before it is closed.
  static void remove(int socket) {
    state& all = known();
    const std::lock_guard lock(all.guard);
    const auto found = std::find(all.sockets.begin(), all.sockets.end(), socket);
    if (found != all.sockets.end()) all.sockets.erase(found);
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
    int dead = -1;
    std::vector<int> sockets;
    std::vector<std::pair<std::byte*, std::size_t>> memory;
    unsigned forks = 0;

    state() {
      const auto child = [] {
        known().replace();
        known().guard.unlock();
      };
      if (::pthread_atfork([] { known().guard.lock(); }, [] { known().guard.unlock(); }, child) !=
          0) {
        throw std::bad_alloc();
      }
    }
    // In the child, where another thread of the parent may have held any lock but ours.
    void replace() {
      ++forks;
      for (const int each : sockets) {
        // Refused where the limit is below that number, which then nothing else is given.
        if (::dup3(dead, each, O_CLOEXEC) < 0) ::close(each);
      }
      for (const auto& [at, size] : memory) {
        // Where this fails nothing is mapped, and the child alone is hurt if it goes there.
        (void)::mmap(at, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
      }
    }
  };

  static int make_dead_socket() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw error(errc::too_many_files, "no descriptor is left to keep sockets from children");
    }
    ::close(ends[1]);
    return ends[0];
  }

  // Never destroyed: what is kept here may go after everything else.
  static state& known() {
    static state& all = *new state;
    return all;
  }
};

/// Owns a socket that children of this process have no part in.
class kept_socket {
 public:
  kept_socket() = default;
  explicit kept_socket(descriptor socket) {
    kept_from_children::add(socket.get());
    socket_ = std::move(socket);
  }
  kept_socket(kept_socket&&) noexcept = default;
  kept_socket& operator=(kept_socket&&) noexcept = default;  // exchanges them
  ~kept_socket() {
    if (socket_) kept_from_children::remove(socket_.get());
  }
  int get() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }

 private:
  descriptor socket_;
};

}  // namespace colls::detail
