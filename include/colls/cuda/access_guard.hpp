// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// access_guard: tells a rank which peers access its device memory, and lets the rank revoke that
// access. The guard is a page of host memory that the processes of other ranks map.
//
// For each operation, the rank that owns the memory opens an exposure epoch, during which peers may
// access the memory. Before a peer accesses the memory, it enters the guard, that is, it marks its
// slot in the owner's page as active and then checks that the epoch is still open. To revoke the
// access, the owner closes the epoch and then waits until no slot is active.
//
// A peer accesses the memory by work on a CUDA stream. The work stream of each rank writes a
// progress counter to the rank's own guard page. Therefore, if the accessing stream is the peer's
// work stream, the owner can follow the progress of the work. The member `end_value` of the peer's
// slot is the value that the peer's counter has when all accesses are done. Once the counter has
// reached this value, the owner no longer waits for the peer, even if the slot is still active.

#include <colls/base/log.hpp>
#include <colls/coroutine/completion.hpp>
#include <colls/cuda/runtime_api.hpp>
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

/// The slot of one rank that accesses the memory. The member `active` counts the operations of that
/// rank that may access the memory. From the other members, the memory's owner can find out whether
/// the work of these operations has ended.
struct alignas(64) guard_slot {
  std::atomic<std::uint64_t> active;  // the number of operations that have entered and not left
  std::atomic<std::int64_t> pid;
  std::atomic<std::uint64_t> process;
  std::atomic<std::uint64_t> thread;
  std::atomic<void*> stream;
  std::atomic<std::uint64_t> operation;  // the number of the last operation to enter, or 0
  std::atomic<std::uint32_t> end_value;  // progress of `stream` when all work of the rank is done
};
static_assert(sizeof(guard_slot) == 64);
/// The header of a guard's shared page. In the page, one slot for each rank follows the header.
struct guard_page {
  static constexpr std::size_t max_epochs = 64;
  static constexpr std::size_t operation_slots = 4;

  std::uint64_t id;
  std::atomic<std::uint64_t> open[max_epochs];           // the open epochs; free entries are 0
  std::atomic<std::uint64_t> finished[operation_slots];  // the numbers of finished operations
  alignas(64) std::uint32_t progress_value;              // written by the owner's work stream
  static constexpr std::size_t bytes(int ranks) {
    return 1024 + static_cast<std::size_t>(ranks) * sizeof(guard_slot);
  }
  guard_slot& slot(int rank) {
    return reinterpret_cast<guard_slot*>(reinterpret_cast<std::byte*>(this) + 1024)[rank];
  }
};
static_assert(sizeof(guard_page) <= 1024);

/// The data with which another process on this machine can map a guard's page. The page is a file
/// that the process `pid` has opened as the descriptor `fd`. The page contains `id`, so that the
/// other process can check that it has mapped the right file.
struct guard_address {
  std::int64_t pid = 0;
  std::int64_t fd = 0;
  std::uint64_t id = 0;
};

/// A guard's page, mapped into this process.
class mapped_guard_page {
 public:
  mapped_guard_page() = default;
  mapped_guard_page(int fd, int ranks) : size_(guard_page::bytes(ranks)) {
    struct stat status{};
    if (::fstat(fd, &status) != 0 || static_cast<std::size_t>(status.st_size) != size_) return;
    void* const memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) page_ = static_cast<guard_page*>(memory);
  }
  mapped_guard_page(mapped_guard_page&& other) noexcept
      : page_(std::exchange(other.page_, nullptr)), size_(other.size_) {}
  mapped_guard_page& operator=(mapped_guard_page&& other) noexcept {
    std::swap(page_, other.page_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~mapped_guard_page() {
    if (page_ != nullptr) ::munmap(page_, size_);
  }

  explicit operator bool() const { return page_ != nullptr; }
  guard_page& page() const { return *page_; }

 private:
  guard_page* page_ = nullptr;
  std::size_t size_ = 0;
};

/// The guard of this rank's memory. If the constructor could not create the page, `progress`
/// returns null, `open` returns 0, and `address` must not be called.
class access_guard {
 public:
  static constexpr char file_name[] = "colls";

  /// Creates the page with `ranks` slots. `process` is the number that `api::process` returns in
  /// this rank's process.
  access_guard(int ranks, std::uint64_t process)
      : ranks_(ranks),
        process_(process),
        fd_(::memfd_create(file_name, MFD_CLOEXEC)),
        is_late_(static_cast<std::size_t>(ranks)) {
    const auto size = static_cast<off_t>(guard_page::bytes(ranks));
    if (fd_ < 0 || ::ftruncate(fd_, size) != 0) return;
    mapping_ = mapped_guard_page(fd_, ranks);
    if (mapping_) page().id = reinterpret_cast<std::uintptr_t>(this) ^ process;
  }
  access_guard(const access_guard&) = delete;
  ~access_guard() {
    if (fd_ >= 0) ::close(fd_);
  }

  guard_address address() const { return {::getpid(), fd_, page().id}; }
  /// Returns the address to which this rank's work stream writes its progress, or null if there is
  /// no page.
  std::uint32_t* progress() const { return mapping_ ? &page().progress_value : nullptr; }
  mutable_bytes memory() const {
    if (!mapping_) return {};
    return {reinterpret_cast<std::byte*>(&page()), guard_page::bytes(ranks_)};
  }

  /// Opens an exposure epoch, in which peers may access the memory that the caller's operation
  /// exposes. Returns the epoch's number, or 0 if there is no page or too many epochs are open.
  std::uint64_t open() {
    for (std::size_t i = 0; mapping_ && i < guard_page::max_epochs; ++i) {
      std::atomic<std::uint64_t>& epoch = page().open[++last_epoch_ % guard_page::max_epochs];
      if (epoch.load(std::memory_order_relaxed) != 0) continue;
      epoch.store(last_epoch_, std::memory_order_release);
      return last_epoch_;
    }
    return 0;
  }
  /// Closes an epoch without waiting for peers. Must be called only after all peers have reported
  /// that they have done their work in this epoch.
  void close(std::uint64_t epoch) {
    page().open[epoch % guard_page::max_epochs].store(0, std::memory_order_release);
  }
  /// Marks the operation `number` as finished on this rank. Operations whose numbers are equal
  /// modulo `operation_slots` must finish in the order of their numbers.
  void finish(std::uint64_t number) {
    page().finished[number % guard_page::operation_slots].store(number, std::memory_order_release);
  }
  /// A limit of the time for which `revoke` waits for active peers. With `while_alive`, `revoke`
  /// waits for a peer as long as the peer's process is alive and not stopped. The length of this
  /// wait has no upper bound, because the peer may share its GPU with other programs. With
  /// `one_second`, `revoke` gives up after about one second. This policy is for callers that need
  /// not free the memory when `revoke` returns false.
  enum class wait_policy : std::uint8_t { while_alive, one_second };

  /// Closes the epoch of an operation that did not complete, and then waits for each active peer.
  /// The wait for a peer ends when the peer has left the guard, when its work is done, or when its
  /// process has ended. Returns true if no peer can access the memory any more. Returns false if
  /// `revoke` gave up waiting for a peer (see `wait_policy`). Before calling `revoke`, the caller
  /// must wait until its own accesses to peers' memory are done (`ipc_peers::quiesce`). Otherwise
  /// two ranks that both call `revoke` could wait for each other.
  bool revoke(std::uint64_t epoch, wait_policy policy = wait_policy::while_alive) {
    return revoke(epoch, policy, [](int, std::uint32_t) { return false; });
  }
  /// Like the overload above, but can also read the progress of the peers' streams.
  /// `has_reached(rank, value)` must return whether the progress counter of the stream of `rank`
  /// has reached `value`. If it returns true for the `end_value` in the slot of a peer, `revoke`
  /// stops waiting for this peer.
  template <class HasReached>
  bool revoke(std::uint64_t epoch, wait_policy policy, const HasReached& has_reached) {
    close(epoch);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    bool all_left = true;
    for (int rank = 0; rank < ranks_; ++rank) {
      all_left &= await_exit(rank, limit, policy, has_reached);
    }
    return all_left;
  }

 private:
  using time_point = std::chrono::steady_clock::time_point;

  guard_page& page() const { return mapping_.page(); }
  template <class HasReached>
  bool await_exit(int rank, time_point limit, wait_policy policy, const HasReached& has_reached) {
    guard_slot& slot = page().slot(rank);
    char& was_late = is_late_[static_cast<std::size_t>(rank)];
    while (slot.active.load(std::memory_order_acquire) != 0 && !has_reached(rank, slot.end_value) &&
           !has_ended(slot.pid)) {
      // If the peer runs on the calling thread, it cannot leave the guard before this function
      // returns. In this case, this function queries the peer's stream to find out whether the
      // peer's work is done.
      const bool waits_for_us = slot.process == process_ && slot.thread == this_thread();
      if (waits_for_us && api::query({slot.stream}) != api::not_ready) return true;
      if (was_late != 0 || std::chrono::steady_clock::now() > limit) {
        if (is_finished(slot.operation)) return true;
        if (policy == wait_policy::one_second) return false;
        if (colls::detail::is_stopped(slot.pid).value_or(true)) {
          was_late = 1;
          return false;
        }
        if (was_late == 0) {
          log_warn(
              "an operation that ended early waits for process %lld, which still works in "
              "this rank's device memory",
              static_cast<long long>(slot.pid));
        }
        was_late = 1;
      }
      ::sched_yield();
    }
    was_late = 0;
    return true;
  }
  /// Returns whether this rank has finished the operation `number`. If it has, that operation no
  /// longer accesses this rank's memory, even on peers that have not left the guard yet. Returns
  /// false if `number` is 0, which means that the operation has no number.
  bool is_finished(std::uint64_t number) const {
    return number != 0 && number <= page().finished[number % guard_page::operation_slots];
  }

  int ranks_;
  std::uint64_t process_;
  int fd_;
  mapped_guard_page mapping_;
  std::uint64_t last_epoch_ = 0;
  std::vector<char> is_late_;  // for each rank, whether a `while_alive` wait for it took too long
};

/// The guard of another rank, mapped into this process. This rank calls `enter` before it accesses
/// the memory of the other rank, and calls `leave` afterwards.
class access_guard_view {
 public:
  access_guard_view() = default;
  access_guard_view(const guard_address& address, int ranks) : id_(address.id) {
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
    const std::string_view name = access_guard::file_name;
    if (!link.starts_with(kind) || !link.substr(kind.size()).starts_with(name)) return;
    const int fd = ::open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return;
    mapping_ = mapped_guard_page(fd, ranks);
    ::close(fd);
    if (mapping_ && mapping_.page().id != address.id) mapping_ = {};
  }

  bool refers_to(const guard_address& address) const { return mapping_ && id_ == address.id; }
  explicit operator bool() const { return static_cast<bool>(mapping_); }

  /// Marks this rank's slot as active. `rank` is the index of the slot. After this call, the caller
  /// must issue a seq_cst fence. The caller may access the memory only if `is_open` returns true
  /// after the fence. Only work on `stream` may access the memory, and only until `leave` is
  /// called. `end_value` is the value of the stream's progress counter when this work is done.
  /// `number` is the number of the operation, or 0 if the operation has no number.
  void enter(int rank, std::uint64_t process, stream_ref stream, std::uint32_t end_value,
             std::uint64_t number = 0) {
    guard_slot& slot = mapping_.page().slot(rank);
    slot.pid = ::getpid();
    slot.process = process;
    slot.thread = this_thread();
    slot.stream = stream.handle;
    slot.operation = number;
    slot.end_value = end_value;
    slot.active.fetch_add(1, std::memory_order_release);
  }
  bool is_open(std::uint64_t epoch) const {
    return mapping_.page().open[epoch % guard_page::max_epochs].load(std::memory_order_acquire) ==
           epoch;
  }
  bool has_finished(std::uint64_t number) const {
    const auto& finished = mapping_.page().finished[number % guard_page::operation_slots];
    return finished.load(std::memory_order_acquire) >= number;
  }
  /// Records in slot `rank` that one operation no longer accesses the memory. Other operations of
  /// this rank may still access it. `end_value` is the value of the stream's progress counter when
  /// the work of these other operations is done.
  void leave(int rank, std::uint32_t end_value) {
    guard_slot& slot = mapping_.page().slot(rank);
    slot.end_value = end_value;
    slot.active.fetch_sub(1, std::memory_order_release);
  }
  /// Returns the address to which the work stream of the guard's owner writes its progress.
  std::uint32_t* progress() const { return &mapping_.page().progress_value; }
  /// Records in slot `rank` that no operation of this rank accesses the memory any more. Does
  /// nothing if the guard is not mapped.
  void leave_all(int rank) {
    if (mapping_) mapping_.page().slot(rank).active.store(0, std::memory_order_release);
  }

 private:
  mapped_guard_page mapping_;
  std::uint64_t id_ = 0;
};

}  // namespace colls::cuda
