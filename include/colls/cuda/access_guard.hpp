// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// door: who works in a rank's device memory, and whether an operation still lets them in. A page of
// the host that ranks of other processes see as well.
//
// A rank that is to work in another one's buffers raises its own line at that one's door, then
// looks whether the operation's ticket is open. Whoever takes a ticket back and then sees no line
// raised knows that nobody will touch the buffers any more; nor does a rank whose stream has come
// to the number that its line tells, which that stream writes at the rank's own door.

#include <colls/base/log.hpp>
#include <colls/coroutine/completion.hpp>
#include <colls/cuda/runtime_api.hpp>

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

/// What a thread of this process cannot have in common with another one of it.
inline std::uint64_t this_thread() {
  return reinterpret_cast<std::uintptr_t>(colls::detail::this_thread());
}

/// Whether a process of this pid namespace has ended, and with it all that drivers do for it: a
/// killed one's kernels may write until then, whatever its sockets say. False where the system does
/// not tell.
inline bool has_ended(std::int64_t process) {
  const auto file = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (file < 0) return errno == ESRCH;
  pollfd end{file, POLLIN, 0};
  const bool ended = ::poll(&end, 1, 0) == 1;
  ::close(file);
  return ended;
}

/// Whether a process is stopped, by a signal or a debugger, so that it does nothing until somebody
/// lets it on; true too where the system does not tell.
inline bool is_stopped(std::int64_t process) {
  char text[512];
  std::snprintf(text, sizeof text, "/proc/%lld/stat", static_cast<long long>(process));
  const int file = ::open(text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  const auto size = ::read(file, text, sizeof text);
  ::close(file);
  // The state comes after the program's name, which may have brackets itself.
  const std::string_view all(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  const std::size_t end = all.rfind(')');
  if (end == all.npos || end + 2 >= all.size()) return true;
  return all[end + 2] == 'T' || all[end + 2] == 't';
}

/// A rank's line at a door: what it says of itself, and how many operations have it inside.
struct alignas(64) door_line {
  std::atomic<std::uint64_t> inside;
  std::atomic<std::int64_t> pid;
  std::atomic<std::uint64_t> process;
  std::atomic<std::uint64_t> thread;
  std::atomic<void*> stream;
  std::atomic<std::uint64_t> number;  // of the operation that came last; 0: it has none
  std::atomic<std::uint32_t> until;   // its stream writes that once it has done all it was given
};
static_assert(sizeof(door_line) == 64);
struct door_page {
  static constexpr std::size_t tickets = 64;
  static constexpr std::size_t rows = 4;

  std::uint64_t name;
  std::atomic<std::uint64_t> open[tickets];
  std::atomic<std::uint64_t> finished[rows];  // numbers, of operations that have them
  alignas(64) std::uint32_t passed;           // how far the stream of this page's rank has come
  static constexpr std::size_t bytes(int ranks) {
    return 1024 + static_cast<std::size_t>(ranks) * sizeof(door_line);
  }
  door_line& line(int rank) {
    return reinterpret_cast<door_line*>(reinterpret_cast<std::byte*>(this) + 1024)[rank];
  }
};
static_assert(sizeof(door_page) <= 1024);

/// Where another process of this host finds a door, and what it reads there.
struct door_address {
  std::int64_t process = 0;
  std::int64_t file = 0;
  std::uint64_t name = 0;
};

/// A door in this process's memory.
class mapped_door {
 public:
  mapped_door() = default;
  mapped_door(int file, int ranks) : size_(door_page::bytes(ranks)) {
    struct stat found{};
    if (::fstat(file, &found) != 0 || static_cast<std::size_t>(found.st_size) != size_) return;
    void* const at = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at != MAP_FAILED) page_ = static_cast<door_page*>(at);
  }
  mapped_door(mapped_door&& other) noexcept
      : page_(std::exchange(other.page_, nullptr)), size_(other.size_) {}
  mapped_door& operator=(mapped_door&& other) noexcept {
    std::swap(page_, other.page_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~mapped_door() {
    if (page_ != nullptr) ::munmap(page_, size_);
  }

  explicit operator bool() const { return page_ != nullptr; }
  door_page& page() const { return *page_; }

 private:
  door_page* page_ = nullptr;
  std::size_t size_ = 0;
};

/// A rank's own door. It has none, and no address, where the system gives no memory.
class door {
 public:
  static constexpr char file_name[] = "colls";

  /// Of a rank of `process`.
  door(int ranks, std::uint64_t process)
      : ranks_(ranks),
        process_(process),
        file_(::memfd_create(file_name, MFD_CLOEXEC)),
        late_(static_cast<std::size_t>(ranks)) {
    const auto size = static_cast<off_t>(door_page::bytes(ranks));
    if (file_ < 0 || ::ftruncate(file_, size) != 0) return;
    here_ = mapped_door(file_, ranks);
    if (here_) page().name = reinterpret_cast<std::uintptr_t>(this) ^ process;
  }
  door(const door&) = delete;
  ~door() {
    if (file_ >= 0) ::close(file_);
  }

  door_address address() const { return {::getpid(), file_, page().name}; }
  /// Where the stream that works for this rank tells how far it has come; null: there is no page.
  std::uint32_t* passed() const { return here_ ? &page().passed : nullptr; }
  mutable_bytes memory() const {
    if (!here_) return {};
    return {reinterpret_cast<std::byte*>(&page()), door_page::bytes(ranks_)};
  }

  /// An operation's permission to work in what it lends; 0: there is none.
  std::uint64_t open() {
    for (std::size_t i = 0; here_ && i < door_page::tickets; ++i) {
      std::atomic<std::uint64_t>& ticket = page().open[++opened_ % door_page::tickets];
      if (ticket.load(std::memory_order_relaxed) != 0) continue;
      ticket.store(opened_, std::memory_order_release);
      return opened_;
    }
    return 0;
  }
  /// All others have said that they are done.
  void close(std::uint64_t ticket) {
    page().open[ticket % door_page::tickets].store(0, std::memory_order_release);
  }
  /// This rank is done with the operation of that number, the last one of its row.
  void finish(std::uint64_t number) {
    page().finished[number % door_page::rows].store(number, std::memory_order_release);
  }
  /// How long those inside are waited for: `of_the_living` as long as their process lives and is
  /// not stopped, since nothing else says how long a GPU that others use takes for what was begun;
  /// `a_second`, where what they may still write into stays.
  enum class patience : std::uint8_t { of_the_living, a_second };

  /// The operation ends before that: waits until nobody is inside any more, or its process has
  /// ended. False: one is inside still. Who waits has nothing begun in others' memory (`rest`):
  /// they may wait for it just so.
  bool revoke(std::uint64_t ticket, patience how = patience::of_the_living) {
    return revoke(ticket, how, [](int, std::uint32_t) { return false; });
  }
  /// `is_through(rank, number)`: whether that rank's stream has come to a number.
  template <class IsThrough>
  bool revoke(std::uint64_t ticket, patience how, const IsThrough& is_through) {
    close(ticket);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    bool good = true;
    for (int rank = 0; rank < ranks_; ++rank) good &= has_left(rank, limit, how, is_through);
    return good;
  }

 private:
  using time = std::chrono::steady_clock::time_point;

  door_page& page() const { return here_.page(); }
  /// Waits for one rank.
  template <class IsThrough>
  bool has_left(int rank, time limit, patience how, const IsThrough& is_through) {
    door_line& line = page().line(rank);
    char& was_late = late_[static_cast<std::size_t>(rank)];
    while (line.inside.load(std::memory_order_acquire) != 0 && !is_through(rank, line.until) &&
           !has_ended(line.pid)) {
      // A rank of this thread does not lower its line before this one goes on: its stream tells.
      const bool waits_for_us = line.process == process_ && line.thread == this_thread();
      if (waits_for_us && api::query({line.stream}) != api::not_ready) return true;
      if (was_late != 0 || std::chrono::steady_clock::now() > limit) {
        if (is_finished(line.number)) return true;
        if (how == patience::a_second) return false;
        if (is_stopped(line.pid)) {
          was_late = 1;
          return false;
        }
        if (was_late == 0) {
          log_warn(
              "an operation that ended early waits for process %lld, which still works in "
              "this rank's device memory",
              static_cast<long long>(line.pid));
        }
        was_late = 1;
      }
      ::sched_yield();
    }
    was_late = 0;
    return true;
  }
  /// Whoever is in one that this rank has finished touches nothing here any more.
  bool is_finished(std::uint64_t number) const {
    return number != 0 && number <= page().finished[number % door_page::rows];
  }

  int ranks_;
  std::uint64_t process_;
  int file_;
  mapped_door here_;
  std::uint64_t opened_ = 0;
  std::vector<char> late_;  // ranks that a second has been waited for, and whose lines are up
};

/// Another rank's door, seen from here.
class door_view {
 public:
  door_view() = default;
  door_view(const door_address& at, int ranks) : name_(at.name) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%lld/fd/%lld", static_cast<long long>(at.process),
                  static_cast<long long>(at.file));
    // Where these numbers mean something else (another pid namespace) that is left alone.
    char text[64];
    const auto size = ::readlink(path, text, sizeof text);
    const std::string_view link(text, size > 0 ? static_cast<std::size_t>(size) : 0);
    constexpr std::string_view kind = "/memfd:";
    const std::string_view name = door::file_name;
    if (!link.starts_with(kind) || !link.substr(kind.size()).starts_with(name)) return;
    const int file = ::open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) return;
    there_ = mapped_door(file, ranks);
    ::close(file);
    if (there_ && there_.page().name != at.name) there_ = {};
  }

  bool is_of(const door_address& at) const { return there_ && name_ == at.name; }
  explicit operator bool() const { return static_cast<bool>(there_); }

  /// A fence comes between this and `is_open`. What is done meanwhile is work of `stream`, which
  /// writes `until` at the rank's own door then.
  void raise(int rank, std::uint64_t process, stream_ref stream, std::uint32_t until,
             std::uint64_t number = 0) {
    door_line& line = there_.page().line(rank);
    line.pid = ::getpid();
    line.process = process;
    line.thread = this_thread();
    line.stream = stream.handle;
    line.number = number;
    line.until = until;
    line.inside.fetch_add(1, std::memory_order_release);
  }
  bool is_open(std::uint64_t ticket) const {
    return there_.page().open[ticket % door_page::tickets].load(std::memory_order_acquire) ==
           ticket;
  }
  bool has_finished(std::uint64_t number) const {
    return there_.page().finished[number % door_page::rows].load(std::memory_order_acquire) >=
           number;
  }
  /// Of what the stream was given for other operations, `until` is the end.
  void lower(int rank, std::uint32_t until) {
    door_line& line = there_.page().line(rank);
    line.until = until;
    line.inside.fetch_sub(1, std::memory_order_release);
  }
  /// How far that rank's stream has come.
  std::uint32_t* passed() const { return &there_.page().passed; }
  /// Of all operations.
  void lower_all(int rank) {
    if (there_) there_.page().line(rank).inside.store(0, std::memory_order_release);
  }

 private:
  mapped_door there_;
  std::uint64_t name_ = 0;
};

}  // namespace colls::cuda
