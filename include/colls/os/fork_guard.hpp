// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// fork_guard: keeps the sockets and the shared memory of a rank out of forked child processes.

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

/// A registry of the sockets of a rank and of the memory that the rank shares with its peers. The
/// registry protects both from forked children that do not call exec. At the start of a child, a
/// fork handler replaces each registered socket with a dead socket (a socket whose other end is
/// closed), and the shared memory with private memory. Therefore nothing that the child does
/// affects the parent or a peer. For example, the child may destroy its copy of the world. If the
/// parent exits while the child still runs, the peers notice the exit, because the child does not
/// keep the sockets open. The first registration of a socket opens the dead socket, so that the
/// child needs no new descriptor.
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
  /// Registers a range of memory that consists of one or several complete mappings. A forked child
  /// does not inherit these mappings, so it cannot access the shared memory even before the fork
  /// handler has mapped private memory at the same addresses. Returns an error if `madvise` fails.
  static std::error_code add(std::byte* memory, std::size_t size) {
    state& registry = instance();
    const std::lock_guard lock(registry.guard);
    if (::madvise(memory, size, MADV_DONTFORK) != 0) return {errno, std::generic_category()};
    registry.memory.emplace_back(memory, size);
    return {};
  }
  /// Removes one registration of a socket. Must be called before the socket is closed.
  static void remove(int socket) {
    state& registry = instance();
    const std::lock_guard lock(registry.guard);
    const auto entry = std::find(registry.sockets.begin(), registry.sockets.end(), socket);
    if (entry != registry.sockets.end()) registry.sockets.erase(entry);
  }
  /// Removes the registration of the range that begins at `memory`. Must be called before the
  /// memory is unmapped.
  static void remove(const std::byte* memory) {
    state& registry = instance();
    const std::lock_guard lock(registry.guard);
    std::erase_if(registry.memory, [=](const auto& entry) { return entry.first == memory; });
  }
  /// Returns the number of forks between the process that created the registry and this process.
  /// The number is 0 in the process that created the registry, 1 in its children, and 2 in their
  /// children. An object can store the result of this function when it is created. If the function
  /// later returns a different number, this process has got its copy of the object through a fork.
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
    // Replaces the registered sockets and the registered memory in a forked child. Must not
    // allocate memory, because another thread of the parent may have held the lock of the allocator
    // during the fork. The child would then wait for this lock forever.
    void replace() {
      ++forks;
      for (const int socket : sockets) {
        // dup3 fails if `socket` is not below the limit on descriptors (RLIMIT_NOFILE). The system
        // then gives this number to no other file, so it is safe to close the socket.
        if (::dup3(dead, socket, O_CLOEXEC) < 0) ::close(socket);
      }
      for (const auto& [address, size] : memory) {
        // If mmap fails, the range stays unmapped. The child then crashes if it accesses the range.
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

  // Returns the registry. The registry is never destroyed, because a static object of the program
  // may still own registered sockets after all other static objects have been destroyed.
  static state& instance() {
    static state& registry = *new state;
    return registry;
  }
};

/// The owner of a socket that is registered with the fork guard.
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
