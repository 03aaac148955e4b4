// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// guard_page: pages of host memory with the access guard (see os/access_guard.hpp) of a rank's
// device memory. The processes of the other ranks map these pages.
//
// A rank accesses the device memory of a peer by work on a CUDA stream. Therefore it tells the
// owner more than that it is inside: its process, its stream, and the value that the stream's
// progress counter has when all accesses are done. The work stream of each rank writes its progress
// counter to the rank's own guard page, which its peers map. Once the counter has reached this
// value, the owner no longer waits for the peer, even if the peer's program has not left the guard.

#include <colls/base/log.hpp>
#include <colls/coroutine/completion.hpp>
#include <colls/cuda/runtime_api.hpp>
#include <colls/os/access_guard.hpp>
#include <colls/os/procfs.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <utility>
#include <vector>

namespace colls::cuda {

using shm::guard_view;
using shm::remote_key;

/// Returns an identifier of the calling thread, which is unique among the threads of this process.
inline std::uint64_t this_thread() {
  return reinterpret_cast<std::uintptr_t>(colls::detail::this_thread());
}

/// Returns whether the process `pid` of this pid namespace has ended. When a process has ended, its
/// work on devices is finished too. A closed socket does not prove that this work is finished: the
/// kernels of a killed process may still write to memory after the system has closed the sockets of
/// the process. Returns false if the state of the process cannot be determined.
inline bool has_ended(std::int64_t pid) {
  const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd end{fd, POLLIN, 0};
  const bool ended = ::poll(&end, 1, 0) == 1;
  ::close(fd);
  return ended;
}

/// What a rank that is inside the guard says of its accesses. From it, the memory's owner can find
/// out whether they are done.
struct stream_access {
  std::int64_t pid = ::getpid();
  std::uint64_t process = 0;
  stream_ref stream{};
  std::uint32_t end_value = 0;  // progress of `stream` when all work of the rank is done
  std::uint64_t operation = 0;  // the number of the last operation to enter, or 0
};

/// The content of the pages. The lines of the guard follow, and then one `access` for each slot.
struct guard_header {
  static constexpr std::size_t operation_slots = 4;
  /// A `stream_access` that several processes read and write.
  struct alignas(64) access {
    std::atomic<std::int64_t> pid;
    std::atomic<std::uint64_t> process;
    std::atomic<std::uint64_t> thread;
    std::atomic<void*> stream;
    std::atomic<std::uint64_t> operation;
    std::atomic<std::uint32_t> end_value;
  };

  std::uint64_t id;
  std::atomic<std::uint64_t> finished[operation_slots];  // the numbers of finished operations
  alignas(64) std::uint32_t progress_value;              // written by the owner's work stream
};
static_assert(sizeof(guard_header) == 128);

/// The data with which another process on this machine can map a guard page. The page is a file
/// that the process `pid` has opened as the descriptor `fd`. The page contains `id`, so that the
/// other process can check that it has mapped the right file.
struct guard_address {
  std::int64_t pid = 0;
  std::int64_t fd = 0;
  std::uint64_t id = 0;
};

/// A guard page with `slots` slots, mapped into this process.
class mapped_guard_page {
 public:
  mapped_guard_page() = default;
  mapped_guard_page(int fd, int slots) : slots_(slots) {
    struct stat status{};
    if (::fstat(fd, &status) != 0 || static_cast<std::size_t>(status.st_size) != bytes(slots)) {
      return;
    }
    void* const memory = ::mmap(nullptr, bytes(slots), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) base_ = static_cast<std::byte*>(memory);
  }
  mapped_guard_page(mapped_guard_page&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), slots_(other.slots_) {}
  mapped_guard_page& operator=(mapped_guard_page&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(slots_, other.slots_);
    return *this;
  }
  ~mapped_guard_page() {
    if (base_ != nullptr) ::munmap(base_, bytes(slots_));
  }

  static constexpr std::size_t bytes(int slots) {
    return accesses_offset(slots) + static_cast<std::size_t>(slots) * sizeof(guard_header::access);
  }
  explicit operator bool() const { return base_ != nullptr; }
  mutable_bytes memory() const { return {base_, base_ == nullptr ? 0 : bytes(slots_)}; }
  int slots() const { return slots_; }
  guard_header& header() const { return *reinterpret_cast<guard_header*>(base_); }
  shm::shared_line* lines() const {
    return reinterpret_cast<shm::shared_line*>(base_ + sizeof(guard_header));
  }
  guard_header::access& access(int slot) const {
    return reinterpret_cast<guard_header::access*>(base_ + accesses_offset(slots_))[slot];
  }

 private:
  static constexpr std::size_t accesses_offset(int slots) {
    return sizeof(guard_header) + shm::guard_lines(slots) * sizeof(shm::shared_line);
  }

  std::byte* base_ = nullptr;
  int slots_ = 0;
};

/// The guard page of this rank's memory. If the constructor could not create the page, `progress`
/// returns null, `open_key` returns 0, and `address` must not be called.
class guard_page {
 public:
  static constexpr char file_name[] = "colls";

  /// Creates the page with `slots` slots. `process` is the number that `api::process` returns in
  /// this rank's process.
  guard_page(int slots, std::uint64_t process)
      : process_(process),
        fd_(::memfd_create(file_name, MFD_CLOEXEC)),
        is_late_(static_cast<std::size_t>(slots)) {
    const auto size = static_cast<off_t>(mapped_guard_page::bytes(slots));
    if (fd_ < 0 || ::ftruncate(fd_, size) != 0) return;
    mapping_ = mapped_guard_page(fd_, slots);
    if (!mapping_) return;
    guard_ = shm::access_guard(mapping_.lines(), slots);
    mapping_.header().id = reinterpret_cast<std::uintptr_t>(this) ^ process;
  }
  guard_page(const guard_page&) = delete;
  ~guard_page() {
    if (fd_ >= 0) ::close(fd_);
  }

  guard_address address() const { return {::getpid(), fd_, mapping_.header().id}; }
  /// Returns the address to which this rank's work stream writes its progress, or null if there is
  /// no page.
  std::uint32_t* progress() const { return mapping_ ? &mapping_.header().progress_value : nullptr; }
  mutable_bytes memory() const { return mapping_.memory(); }

  /// Opens a key with which peers may access the memory that the caller's operation exposes.
  /// Returns 0 if there is no page or too many keys are open.
  remote_key open_key() { return mapping_ ? guard_.open_key() : 0; }
  /// Closes a key without waiting for peers. Must be called only after all peers have reported that
  /// they have done their work in this operation.
  void close_key(remote_key key) { guard_.close_key(key); }
  /// Marks the operation `number` as finished on this rank. Operations whose numbers are equal
  /// modulo `operation_slots` must finish in the order of their numbers.
  void finish(std::uint64_t number) {
    mapping_.header().finished[number % guard_header::operation_slots].store(
        number, std::memory_order_release);
  }
  /// A limit of the time for which `revoke` waits for peers that are inside. With `while_alive`,
  /// `revoke` waits for a peer as long as the peer's process is alive and not stopped. The length
  /// of this wait has no upper bound, because the peer may share its GPU with other programs. With
  /// `one_second`, `revoke` gives up after about one second. This policy is for callers that need
  /// not free the memory when `revoke` returns false.
  enum class wait_policy : std::uint8_t { while_alive, one_second };

  /// Closes the key of an operation that did not complete, and then waits for each peer that is
  /// inside. The wait for a peer ends when the peer has left the guard, when its work is done, or
  /// when its process has ended. Returns true if no peer can access the memory any more. Returns
  /// false if `revoke` gave up waiting for a peer (see `wait_policy`). Before calling `revoke`, the
  /// caller must wait until its own accesses to peers' memory are done (`ipc_peers::quiesce`).
  /// Otherwise two ranks that both call `revoke` could wait for each other.
  bool revoke(remote_key key, wait_policy policy = wait_policy::while_alive) {
    return revoke(key, policy, [](int, std::uint32_t) { return false; });
  }
  /// Like the overload above, but can also read the progress of the peers' streams.
  /// `has_reached(slot, value)` must return whether the progress counter of the stream of the rank
  /// with this slot has reached `value`. If it returns true for the `end_value` of a peer, `revoke`
  /// stops waiting for this peer.
  template <class HasReached>
  bool revoke(remote_key key, wait_policy policy, const HasReached& has_reached) {
    guard_.revoke_key(key);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    const bool is_certain =
        guard_.await_exit([&](int slot) { return check_access(slot, limit, policy, has_reached); });
    for (int slot = 0; slot < mapping_.slots(); ++slot) {
      if (!guard_.is_inside(slot)) is_late_[static_cast<std::size_t>(slot)] = 0;
    }
    return is_certain;
  }

 private:
  using time_point = std::chrono::steady_clock::time_point;

  /// Returns whether the rank with the slot `slot`, which is inside, may still access the memory.
  template <class HasReached>
  shm::may_access check_access(int slot, time_point limit, wait_policy policy,
                               const HasReached& has_reached) {
    const guard_header::access& access = mapping_.access(slot);
    char& is_late = is_late_[static_cast<std::size_t>(slot)];
    // Model step: revoke_progress
    if (has_reached(slot, access.end_value) || has_ended(access.pid)) {
      is_late = 0;
      return shm::may_access::no;
    }
    // If the peer runs on the calling thread, it cannot leave the guard before this function
    // returns. In this case, this function queries the peer's stream to find out whether the peer's
    // work is done.
    const bool waits_for_us = access.process == process_ && access.thread == this_thread();
    if (waits_for_us && api::query({access.stream}) != api::not_ready) return shm::may_access::no;
    if (is_late != 0 || std::chrono::steady_clock::now() > limit) {
      if (is_finished(access.operation)) return shm::may_access::no;
      if (policy == wait_policy::one_second) return shm::may_access::unknown;
      if (colls::detail::is_stopped(access.pid).value_or(true)) {
        is_late = 1;
        return shm::may_access::unknown;
      }
      if (is_late == 0) {
        log_warn(
            "an operation that ended early waits for process %lld, which still works in "
            "this rank's device memory",
            static_cast<long long>(access.pid));
      }
      is_late = 1;
    }
    ::sched_yield();
    return shm::may_access::yes;
  }
  /// Returns whether this rank has finished the operation `number`. If it has, that operation no
  /// longer accesses this rank's memory, even on peers that have not left the guard yet. Returns
  /// false if `number` is 0, which means that the operation has no number.
  bool is_finished(std::uint64_t number) const {
    return number != 0 &&
           number <= mapping_.header().finished[number % guard_header::operation_slots];
  }

  std::uint64_t process_;
  int fd_;
  mapped_guard_page mapping_;
  shm::access_guard guard_;
  std::vector<char> is_late_;  // for each slot, whether a `while_alive` wait for it took too long
};

/// The guard page of another rank, mapped into this process.
class guard_page_view {
 public:
  guard_page_view() = default;
  guard_page_view(const guard_address& address, int slots) : id_(address.id) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%lld/fd/%lld", static_cast<long long>(address.pid),
                  static_cast<long long>(address.fd));
    // If the owner of the guard is in another pid namespace, the path may lead to a file of an
    // unrelated process. Therefore the file is opened only if it is a memfd that has the name of a
    // guard's file.
    char text[64];
    const auto size = ::readlink(path, text, sizeof text);
    const std::string_view link(text, size > 0 ? static_cast<std::size_t>(size) : 0);
    constexpr std::string_view kind = "/memfd:";
    const std::string_view name = guard_page::file_name;
    if (!link.starts_with(kind) || !link.substr(kind.size()).starts_with(name)) return;
    const int fd = ::open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return;
    mapping_ = mapped_guard_page(fd, slots);
    ::close(fd);
    if (mapping_ && mapping_.header().id != address.id) mapping_ = {};
  }

  bool refers_to(const guard_address& address) const { return mapping_ && id_ == address.id; }
  explicit operator bool() const { return static_cast<bool>(mapping_); }

  /// Returns the view of the rank with this slot, for `guard_view::enter_all`. Before the rank
  /// enters, it must call `describe`. After it has entered, only work on the stream that `describe`
  /// has named may access the memory, and only until the rank leaves.
  guard_view guard(int slot) const { return {mapping_.lines(), mapping_.slots(), slot}; }
  /// Tells the owner how the rank with this slot accesses the memory.
  void describe(int slot, const stream_access& described) const {
    guard_header::access& access = mapping_.access(slot);
    access.pid = described.pid;
    access.process = described.process;
    access.thread = this_thread();
    access.stream = described.stream.handle;
    access.operation = described.operation;
    access.end_value = described.end_value;  // Model step: enter_end_value
  }
  /// Leaves the guard once. `end_value` is the value of the stream's progress counter when the work
  /// of the rank's other operations is done.
  void leave(int slot, std::uint32_t end_value) const {
    mapping_.access(slot).end_value = end_value;
    guard(slot).leave();
  }
  /// Leaves the guard as often as the rank with this slot has entered. Does nothing if the page is
  /// not mapped.
  void leave_entirely(int slot) const {
    if (mapping_) guard(slot).leave_entirely();
  }

  bool is_open(remote_key key) const { return guard(0).is_open(key); }
  bool has_finished(std::uint64_t number) const {
    const auto& finished = mapping_.header().finished[number % guard_header::operation_slots];
    return finished.load(std::memory_order_acquire) >= number;
  }
  /// Returns the address to which the work stream of the guard's owner writes its progress.
  std::uint32_t* progress() const { return &mapping_.header().progress_value; }

 private:
  mapped_guard_page mapping_;
  std::uint64_t id_ = 0;
};

}  // namespace colls::cuda
