// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The guard: a small process between the launcher and the ranks. It starts them, says how they end,
// and when the launcher is gone, however that came about, it leaves no process of theirs behind.

#include "process_tree.hpp"

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
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace launcher {

/// From the guard: what happened to a local rank. To the guard: what to do.
struct message {
  enum class kind : int {
    started,       // rank, value: pid
    not_started,   // rank, value: errno
    ended,         // rank, value: as waitpid gives it
    nobody_left,   // no rank and no process of theirs is left
    signal_ranks,  // value: signal, to the process group of every live rank
    signal_all,    // value: signal, to every process that descends from a rank
  };
  kind what{};
  int rank = 0;
  int value = 0;
};

struct rank_start {
  int input = -1, output = -1, errors = -1;  // become 0, 1 and 2
  std::vector<std::string> environment;      // the whole of it
};

struct start_plan {
  std::vector<std::string> command;
  std::vector<rank_start> ranks;
  std::vector<int> not_for_guard;  // the launcher's descriptors; they close with the launcher
  std::span<char> title;           // where argv lies: what ps shows
  sigset_t mask{};                 // the ranks' signal mask and limit on open files: as before us
  rlimit files{};
};

class guard {
 public:
  guard(const start_plan& plan, int control) : plan_(plan), control_(control) {}

  [[noreturn]] void run() {
    // No Ctrl-C, and no kill of the launcher's group, reaches this process; a leader has its own.
    (void)::setpgid(0, 0);
    take_name("colls-guard");
    for (const int descriptor : plan_.not_for_guard) ::close(descriptor);
    if (!adopt_orphans()) ::_exit(1);
    sigset_t every;
    sigfillset(&every);
    ::sigprocmask(SIG_SETMASK, &every, nullptr);
    sigset_t deaths;
    sigemptyset(&deaths);
    sigaddset(&deaths, SIGCHLD);
    child_signals_ = ::signalfd(-1, &deaths, SFD_NONBLOCK | SFD_CLOEXEC);
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
    if (!watch(child_signals_, of_child_signals) || !watch(control_, of_control)) ::_exit(1);
    start();
    detach_from_files();
    for (;;) turn();
  }

 private:
  struct child {
    pid_t pid = 0;  // 0: not running
    int handle = -1;
  };
  static constexpr std::uint64_t of_control = ~0ULL, of_child_signals = ~1ULL;

  // Whoever kills the launcher by its name must not take the guard with it.
  void take_name(const char* name) {
    (void)::prctl(PR_SET_NAME, name);  // fails only for a wrong address
    std::fill(plan_.title.begin(), plan_.title.end(), '\0');
    if (!plan_.title.empty()) std::strncpy(plan_.title.data(), name, plan_.title.size() - 1);
  }

  bool watch(int descriptor, std::uint64_t who) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = who;
    return ::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) == 0;
  }

  void tell(message::kind what, int rank = 0, int value = 0) {
    const message out{what, rank, value};
    (void)::send(control_, &out, sizeof out, MSG_NOSIGNAL);  // `obey` finds out who is gone
  }

  void start() {
    children_.resize(plan_.ranks.size());
    for (std::size_t i = 0; i < children_.size(); ++i) {
      char byte;
      if (::recv(control_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return;  // nobody wants them
      const int rank = static_cast<int>(i);
      const int failed = spawn(plan_.ranks[i], children_[i]);
      if (failed != 0) return tell(message::kind::not_started, rank, failed);
      tell(message::kind::started, rank, children_[i].pid);
      // Without a watch its death is seen by SIGCHLD.
      if (children_[i].handle >= 0) (void)watch(children_[i].handle, i);
    }
  }

  // The guard must not keep a pipe open that others wait to see closed.
  void detach_from_files() {
    for (const rank_start& rank : plan_.ranks) {
      for (const int descriptor : {rank.input, rank.output, rank.errors}) {
        if (descriptor > 2) ::close(descriptor);
      }
    }
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int standard : {0, 1, 2}) {
      if (::dup2(null, standard) < 0) ::close(standard);
    }
    if (null >= 0) ::close(null);
  }

  // 0, or the errno of what failed: fork or exec.
  int spawn(const rank_start& rank, child& made) {
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
      become(rank, parent);
      const int failed = errno;
      // Where this fails the exit status says it.
      [[maybe_unused]] const ssize_t wrote = ::write(report[1], &failed, sizeof failed);
      ::_exit(127);
    }
    (void)::setpgid(pid, pid);  // the child does so, too: whoever comes first
    ::close(report[1]);
    int failed = 0;
    const bool executed = ::read(report[0], &failed, sizeof failed) == 0;
    ::close(report[0]);
    if (!executed) {
      (void)::waitpid(pid, nullptr, 0);  // how it ended is known
      return failed;
    }
    made.pid = pid;
    made.handle = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    return 0;
  }

  // Returns only where something has failed, with errno.
  void become(const rank_start& rank, pid_t parent) {
    (void)::setpgid(0, 0);  // the guard does so, too: whoever comes first
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

  void turn() {
    epoll_event events[64];
    const int count = ::epoll_wait(epoll_, events, 64, orphaned_ ? 100 : -1);
    // In the order of the deaths: who died first is the cause, the others may follow from it.
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 < children_.size()) reap(children_[events[i].data.u64]);
    }
    for (int i = 0; i < count; ++i) {
      if (events[i].data.u64 == of_control) obey();
    }
    signalfd_siginfo ignored;
    while (::read(child_signals_, &ignored, sizeof ignored) > 0) {
    }
    const bool empty = reap_others();
    if (orphaned_ && (empty || ::time(nullptr) > give_up_)) ::_exit(0);
    if (killing_ && !empty) signal_descendants(SIGKILL);
    if (empty && !std::exchange(said_empty_, true)) tell(message::kind::nobody_left);
  }

  void reap(child& of) {
    int status = 0;
    if (of.pid > 0 && ::waitpid(of.pid, &status, WNOHANG) == of.pid) ended(of, status);
  }

  void ended(child& of, int status) {
    of.pid = 0;
    if (of.handle >= 0) ::close(std::exchange(of.handle, -1));
    tell(message::kind::ended, static_cast<int>(&of - children_.data()), status);
  }

  // Orphans that came to us, and ranks if the kernel gives no handles. True: no child is left.
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

  void obey() {
    message order;
    if (::recv(control_, &order, sizeof order, 0) != sizeof order) {
      (void)::epoll_ctl(epoll_, EPOLL_CTL_DEL, control_, nullptr);  // it is watched
      orphaned_ = killing_ = true;
      give_up_ = ::time(nullptr) + 10;
    } else if (order.what == message::kind::signal_ranks) {
      for (const child& rank : children_) {
        if (rank.pid > 0) (void)::kill(-rank.pid, order.value);  // it may be gone
      }
    } else if (order.what == message::kind::signal_all) {
      killing_ |= order.value == SIGKILL;
      signal_descendants(order.value);
    }
  }

  const start_plan& plan_;
  int control_;
  int epoll_ = -1;
  int child_signals_ = -1;
  std::vector<child> children_;
  bool killing_ = false;   // from now on nothing below us may live
  bool orphaned_ = false;  // the launcher is gone
  bool said_empty_ = false;
  std::time_t give_up_ = 0;
};

/// Forks the guard, which starts the ranks at once. Gives the launcher's end of their socket, or -1
/// and errno. The caller has no threads and has blocked the signals that it waits for.
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
