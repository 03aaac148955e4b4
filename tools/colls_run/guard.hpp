// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The guard: a small process between the launcher and the ranks. It starts the ranks and reports
// how they end. When the launcher has ended for any reason, the guard ends every process of the
// ranks.

#include "process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace launcher {

/// From the guard: an event of a local rank. To the guard: a command.
struct message {
  enum class kind : int {
    started,       // rank, value: pid
    not_started,   // rank, value: errno
    ended,         // rank, value: as waitpid gives it
    all_ended,     // no rank is left, and no process that a rank started
    signal_ranks,  // value: signal, to the process group of every live rank
    signal_all,    // value: signal, to every process that descends from a rank
    kill,          // rank: kills its process group
    replace,       // rank, which has ended; value: the number of the replacement, which is started
  };
  kind type{};
  int rank = 0;
  int value = 0;
};

struct rank_start {
  int input = -1, output = -1, errors = -1;  // become 0, 1 and 2
  std::vector<std::string> environment;      // complete, nothing is inherited
};

struct start_plan {
  std::vector<std::string> command;
  std::vector<rank_start> ranks;
  std::span<char> title;  // the memory of argv, which ps shows
  bool replaces = false;  // whether `message::kind::replace` may come
  sigset_t mask{};        // the ranks' signal mask, as the launcher found it
  rlimit files{};         // the ranks' limit on open files, as the launcher found it
};

class guard {
 public:
  guard(const start_plan& plan, int control) : plan_(plan), control_(control) {}

  [[noreturn]] void run() {
    // In its own process group the guard gets no Ctrl-C and no signal to the launcher's group.
    (void)::setpgid(0, 0);
    set_name("colls-guard");
    close_all_of_launcher();
    if (!adopt_orphans()) ::_exit(1);
    sigset_t every;
    sigfillset(&every);
    ::sigprocmask(SIG_SETMASK, &every, nullptr);
    sigset_t deaths;
    sigemptyset(&deaths);
    sigaddset(&deaths, SIGCHLD);
    child_signals_ = ::signalfd(-1, &deaths, SFD_NONBLOCK | SFD_CLOEXEC);
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    if (!watch(child_signals_, child_signal_tag) || !watch(control_, control_tag)) ::_exit(1);
    start();
    close_files();
    for (;;) run_once();
  }

 private:
  struct child {
    pid_t pid = 0;  // 0: not running
    int handle = -1;
  };
  static constexpr std::uint64_t control_tag = ~0ULL, child_signal_tag = ~1ULL;

  // A user that kills the launcher by its name must not kill the guard with it.
  void set_name(const char* name) {
    (void)::prctl(PR_SET_NAME, name);  // fails only for a wrong address
    std::fill(plan_.title.begin(), plan_.title.end(), '\0');
    if (!plan_.title.empty()) std::strncpy(plan_.title.data(), name, plan_.title.size() - 1);
  }

  bool watch(int descriptor, std::uint64_t tag) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag;
    return ::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) == 0;
  }

  void notify(message::kind type, int rank = 0, int value = 0) {
    const message out{type, rank, value};
    // If the launcher is gone, `handle_command` notices it.
    (void)::send(control_, &out, sizeof out, MSG_NOSIGNAL);
  }

  void start() {
    children_.resize(plan_.ranks.size());
    for (std::size_t i = 0; i < children_.size(); ++i) {
      char byte;
      if (::recv(control_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return;  // no launcher any more
      const int rank = static_cast<int>(i);
      const int failed = spawn(plan_.ranks[i], children_[i]);
      if (failed != 0) return notify(message::kind::not_started, rank, failed);
      notify(message::kind::started, rank, children_[i].pid);
      // If the handle cannot be watched, SIGCHLD reports the death.
      if (children_[i].handle >= 0) (void)watch(children_[i].handle, i);
    }
  }

  // The guard has copies of all descriptors of the launcher. It keeps those that it needs and those
  // that the ranks inherit: when the launcher ends, its connections must end, too.
  void close_all_of_launcher() {
    std::vector<int> own = {0, 1, 2, control_};
    for (const rank_start& rank : plan_.ranks) {
      own.insert(own.end(), {rank.input, rank.output, rank.errors});
    }
    std::sort(own.begin(), own.end());
    DIR* const all = ::opendir("/proc/self/fd");
    if (all == nullptr) ::_exit(1);
    std::vector<int> others;
    while (const dirent* const entry = ::readdir(all)) {
      const int descriptor = std::atoi(entry->d_name);
      const bool is_inherited = (::fcntl(descriptor, F_GETFD) & FD_CLOEXEC) == 0;
      if (!is_inherited && !std::binary_search(own.begin(), own.end(), descriptor))
        others.push_back(descriptor);
    }
    const int listing = ::dirfd(all);
    std::erase(others, listing);
    ::closedir(all);
    for (const int descriptor : others) ::close(descriptor);
  }

  // The guard must not keep a pipe open whose end another process waits for. It keeps those to
  // which replacements write: the launcher ends when the guard says that no process is left.
  void close_files() {
    for (const rank_start& rank : plan_.ranks) {
      for (const int descriptor : {rank.input, rank.output, rank.errors}) {
        const bool is_for_replacement = plan_.replaces && descriptor != rank.input;
        if (descriptor > 2 && !is_for_replacement) ::close(descriptor);
      }
    }
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int standard : {0, 1, 2}) {
      if (::dup2(null, standard) < 0) ::close(standard);
    }
    if (null >= 0) ::close(null);
  }

  // Starts a replacement, which writes to where the rank has written, and reads nothing.
  void replace(std::size_t index, int number) {
    reported_empty_ = false;
    rank_start rank = plan_.ranks[index];
    rank.input = 0;
    // The process before may have been a replacement from the start.
    std::erase_if(rank.environment,
                  [](const std::string& entry) { return entry.starts_with("COLLS_REPLACEMENT="); });
    rank.environment.push_back("COLLS_REPLACEMENT=" + std::to_string(number));
    const int local = static_cast<int>(index);
    const int failed = spawn(rank, children_[index]);
    if (failed != 0) return notify(message::kind::not_started, local, failed);
    notify(message::kind::started, local, children_[index].pid);
    if (children_[index].handle >= 0) (void)watch(children_[index].handle, index);
  }

  // Returns 0, or the errno of the fork or exec that failed.
  int spawn(const rank_start& rank, child& result) {
    int report[2];
    if (::pipe2(report, O_CLOEXEC) != 0) return errno;
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) {
      const int failed = errno;
      ::close(report[0]);
      ::close(report[1]);
      return failed;
    }
    if (pid == 0) {
      exec_rank(rank, parent);
      const int failed = errno;
      // If this fails, the exit status tells the guard.
      [[maybe_unused]] const ssize_t wrote = ::write(report[1], &failed, sizeof failed);
      ::_exit(127);
    }
    (void)::setpgid(pid, pid);  // the child does the same: either may run first
    ::close(report[1]);
    int failed = 0;
    const bool executed = ::read(report[0], &failed, sizeof failed) == 0;
    ::close(report[0]);
    if (!executed) {
      (void)::waitpid(pid, nullptr, 0);  // the reason is known already
      return failed;
    }
    result.pid = pid;
    result.handle = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    return 0;
  }

  // Returns only after a failure, with errno set.
  void exec_rank(const rank_start& rank, pid_t parent) {
    (void)::setpgid(0, 0);  // the guard does the same: either may run first
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return;
    if (::getppid() != parent) ::_exit(127);
    if (::setrlimit(RLIMIT_NOFILE, &plan_.files) != 0 || ::dup2(rank.input, 0) < 0 ||
        ::dup2(rank.output, 1) < 0 || ::dup2(rank.errors, 2) < 0) {
      return;
    }
    std::vector<char*> environment, command;
    for (const auto& text : rank.environment)
      environment.push_back(const_cast<char*>(text.c_str()));
    for (const auto& text : plan_.command) command.push_back(const_cast<char*>(text.c_str()));
    environment.push_back(nullptr);
    command.push_back(nullptr);
    ::environ = environment.data();
    ::sigprocmask(SIG_SETMASK, &plan_.mask, nullptr);
    ::execvp(command[0], command.data());
  }

  void run_once() {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll_, events, 64, orphaned_ ? 100 : -1);
    // In the order of the deaths: the first one is the cause, the others may follow from it.
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 < children_.size()) reap(children_[events[i].data.u64]);
    }
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == control_tag) handle_command();
    }
    signalfd_siginfo ignored;
    while (::read(child_signals_, &ignored, sizeof ignored) > 0) {
    }
    const bool empty = reap_others();
    if (orphaned_ && (empty || ::time(nullptr) > deadline_)) ::_exit(0);
    if (killing_ && !empty) signal_descendants(SIGKILL);
    if (empty && !std::exchange(reported_empty_, true)) notify(message::kind::all_ended);
  }

  void reap(child& rank) {
    int status = 0;
    if (rank.pid > 0 && ::waitpid(rank.pid, &status, WNOHANG) == rank.pid) ended(rank, status);
  }

  void ended(child& rank, int status) {
    rank.pid = 0;
    if (rank.handle >= 0) ::close(std::exchange(rank.handle, -1));
    notify(message::kind::ended, static_cast<int>(&rank - children_.data()), status);
  }

  // Reaps adopted orphans, and ranks for which the kernel gives no handle. Returns whether no child
  // is left.
  bool reap_others() {
    for (;;) {
      int status = 0;
      const pid_t pid = ::waitpid(-1, &status, WNOHANG);
      if (pid <= 0) return pid < 0 && errno == ECHILD;
      for (child& rank : children_) {
        if (rank.pid == pid) ended(rank, status);
      }
    }
  }

  void handle_command() {
    message command;
    if (::recv(control_, &command, sizeof command, 0) != sizeof command) {
      (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, control_, nullptr);  // cannot fail: it is watched
      orphaned_ = killing_ = true;
      deadline_ = ::time(nullptr) + 10;
    } else if (command.type == message::kind::signal_ranks) {
      for (const child& rank : children_) {
        if (rank.pid > 0) (void)::kill(-rank.pid, command.value);  // the group may be gone
      }
    } else if (command.type == message::kind::kill || command.type == message::kind::replace) {
      const auto index = static_cast<std::size_t>(command.rank);
      if (index >= children_.size()) return;
      const pid_t pid = children_[index].pid;
      if (command.type == message::kind::kill && pid > 0) {
        (void)::kill(-pid, SIGKILL);  // the group may be gone
      }
      if (command.type == message::kind::replace && pid == 0) replace(index, command.value);
    } else if (command.type == message::kind::signal_all) {
      killing_ |= command.value == SIGKILL;
      signal_descendants(command.value);
    }
  }

  const start_plan& plan_;
  int control_;
  int epoll_ = -1;
  int child_signals_ = -1;
  std::vector<child> children_;
  bool killing_ = false;   // from now on every descendant is killed
  bool orphaned_ = false;  // the launcher is gone
  bool reported_empty_ = false;
  std::time_t deadline_ = 0;
};

/// Forks the guard, which starts the ranks at once. Returns the launcher's end of their socket, or
/// -1 with errno set. The caller must have no other threads, and must have blocked the signals that
/// it waits for.
inline int start_guard(const start_plan& plan, pid_t& pid) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  pid = ::fork();
  if (pid < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return -1;
  }
  if (pid == 0) {
    ::close(ends[0]);
    guard(plan, ends[1]).run();
  }
  ::close(ends[1]);
  return ends[0];
}

}  // namespace launcher
