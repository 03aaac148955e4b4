// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The fork guard: keeps sockets and shared memory of a rank out of forked children.

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

/// A registry of a rank's sockets and of the memory that it shares with peers. In a forked child
/// that does not exec, a dead socket and private memory replace them. Nothing that the child does
/// reaches its parent or a peer, not even when it destroys the world, and peers see the parent's
/// end while the child lives. The process opens the dead socket at the first `add`, so that a fork
/// at the limit on open files succeeds.
class fork_guard {
 public:
  /// Registers a socket. A socket may be registered several times. Throws `too_many_files` if the
  /// dead socket cannot be opened.
  static void add(int socket) {
    state& registry = instance();
    const std::lock_guard lock(registry.guard);
    if (registry.dead < 0) registry.dead = make_dead_socket();
    registry.sockets.push_back(socket);
  }
  /// Registers a complete mapping, or several adjacent ones. A child never sees its pages, not even
  /// before private pages replace them.
  static std::error_code add(std::byte* memory, std::size_t size) {
    state& registry = instance();
    const std::lock_guard lock(registry.guard);
    if (::madvise(memory, size, MADV_DONTFORK) != 0) return {errno, std::generic_category()};
    registry.memory.emplace_back(memory, size);
    return {};
  }
  /// Removes one registration of a socket. Call it before the socket is closed.
  static void remove(int socket) {
    state& registry = instance();
    const std::lock_guard lock(registry.guard);
    const auto entry = std::find(registry.sockets.begin(), registry.sockets.end(), socket);
    if (entry != registry.sockets.end()) registry.sockets.erase(entry);
  }
  /// Removes a mapping. Call it before the memory is unmapped.
  static void remove(const std::byte* memory) {
    state& registry = instance();
    const std::lock_guard lock(registry.guard);
    std::erase_if(registry.memory, [=](const auto& entry) { return entry.first == memory; });
  }
  /// Returns the number of forks without an exec between this process and the first one. If it has
  /// changed, this process is a child of the one that read it before.
  static unsigned forks() { return instance().forks; }

 private:
  struct state {
    std::mutex guard;
    int dead = -1;
    std::vector<int> sockets;
    std::vector<std::pair<std::byte*, std::size_t>> memory;
    unsigned forks = 0;

    state() {
      const auto child = [] {
        instance().replace();
        instance().guard.unlock();
      };
      const int result = ::pthread_atfork([] { instance().guard.lock(); },
                                          [] { instance().guard.unlock(); }, child);
      if (result != 0) throw std::bad_alloc();
    }
    // Runs in the child. Other threads of the parent may have held any lock except `guard`, so this
    // must not allocate.
    void replace() {
      ++forks;
      for (const int socket : sockets) {
        // Fails if the limit on descriptors is below this number. Then no other file can get it.
        if (::dup3(dead, socket, O_CLOEXEC) < 0) ::close(socket);
      }
      for (const auto& [address, size] : memory) {
        // If this fails the range stays unmapped, and only a child that accesses it crashes.
        (void)::mmap(address, size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
      }
    }
  };

  static int make_dead_socket() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw error(
          errc::too_many_files,
          "no descriptor is left for the socket that replaces a rank's sockets in forked children");
    }
    ::close(ends[1]);
    return ends[0];
  }

  // Never destroyed: registered objects may be destroyed later than any static object.
  static state& instance() {
    static state& registry = *new state;
    return registry;
  }
};

/// Owns a socket that is registered with the fork guard.
class fork_guarded_socket {
 public:
  fork_guarded_socket() = default;
  explicit fork_guarded_socket(descriptor socket) {
    fork_guard::add(socket.get());
    socket_ = std::move(socket);
  }
  fork_guarded_socket(fork_guarded_socket&&) noexcept = default;
  fork_guarded_socket& operator=(fork_guarded_socket&&) noexcept = default;  // swaps the sockets
  ~fork_guarded_socket() {
    if (socket_) fork_guard::remove(socket_.get());
  }
  int get() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }

 private:
  descriptor socket_;
};

}  // namespace colls::detail
