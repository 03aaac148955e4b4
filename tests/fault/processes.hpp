// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Starts ranks as processes, without a launcher, and observes their output, their end and their use
// of resources.

#include <colls/run.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "../support/sanitized.hpp"

#ifdef ADDRESS_SANITIZED
#include <sanitizer/lsan_interface.h>
#endif

namespace processes {

using colls::task;
using strings = std::vector<std::string>;

/// Whether freed memory goes back to the system: AddressSanitizer keeps it.
#ifdef ADDRESS_SANITIZED
inline constexpr bool frees_memory = false;
#else
inline constexpr bool frees_memory = true;
#endif

/// Seconds on a clock that all processes share.
inline double now() {
  timespec clock{};
  ::clock_gettime(CLOCK_MONOTONIC, &clock);
  return static_cast<double>(clock.tv_sec) + static_cast<double>(clock.tv_nsec) * 1e-9;
}

/// The number of times that a test repeats a random experiment; FAULT_RUNS sets another number.
inline int runs(int usual) {
  const char* const text = std::getenv("FAULT_RUNS");
  return text != nullptr ? std::atoi(text) : usual;
}

/// The times that pass between a death and the moments when the other ranks learn of it.
class detection {
 public:
  explicit detection(std::string name) : name_(std::move(name)) {}
  detection(const detection&) = delete;
  detection& operator=(const detection&) = delete;
  /// Checks that all ranks have learned of the deaths in time, as docs/design.md promises.
  ~detection() {
    if (seconds_.empty()) {
      FAIL_CHECK("nothing was measured: ", name_);
      return;
    }
    std::sort(seconds_.begin(), seconds_.end());
    const double median = seconds_[seconds_.size() / 2];
    const double greatest = seconds_.back();
    char line[200];
    std::snprintf(line, sizeof line, "%s: %zu ranks told, median %.1f ms, greatest %.1f ms",
                  name_.c_str(), seconds_.size(), median * 1e3, greatest * 1e3);
    MESSAGE("measured: ", std::string(line));
    CHECK(median < 1);
    CHECK(greatest < at_most);
  }

  void add(double seconds) { seconds_.push_back(seconds); }

  /// Twice the 2 s that the contract promises, because machines that run tests are busy.
  static constexpr double at_most = 4;

 private:
  std::string name_;
  std::vector<double> seconds_;
};

/// The exit status of a rank's process that has lost memory, to which nothing refers any more.
inline constexpr int has_leaked = 97;
/// Whether `leave` looks for leaks; false in a process that may not make the system calls of
/// LeakSanitizer.
inline bool looks_for_leaks = true;

/// Ends a rank's process and leaves everything that it shares with the test unchanged. In a process
/// that was forked beside other threads it does not look for leaks: LeakSanitizer does not see what
/// the stacks of those threads refer to, and waits forever for a lock that one of them held.
[[noreturn]] inline void leave(int status, bool forked_beside_threads = false) {
#ifdef ADDRESS_SANITIZED
  // Frees the memory that is kept for reuse, as the end of the thread would: it is no leak.
  std::destroy_at(&colls::detail::this_thread_frames());
  if (!forked_beside_threads && looks_for_leaks && __lsan_do_recoverable_leak_check() != 0) {
    status = has_leaked;
  }
#else
  (void)forked_beside_threads;
#endif
  ::_exit(status);
}

/// The transport that all ranks take if the variable FAULT_NETWORK names one, else null.
inline const char* only_transport() { return std::getenv("FAULT_NETWORK"); }
/// The transport of ranks that share no memory.
inline const char* network() {
  const char* const only = only_transport();
  return only != nullptr ? only : "tcp";
}
/// The transport of ranks that share memory, if ranks may.
inline const char* hybrid() {
  const char* const only = only_transport();
  return only != nullptr ? only : "hybrid";
}
inline std::vector<const char*> transports() {
  if (const char* const only = only_transport()) return {only};
  return {"hybrid", "tcp"};
}

/// How many messages this process has sent through the library of FAULT_NETWORK. Null if the test
/// is not linked with it.
inline std::uint64_t (*count_messages)() = nullptr;

/// The messages that the ranks of all jobs have sent through that library. If there are none, the
/// test fails.
class traffic {
 public:
  static traffic& all() {
    static traffic counted;
    return counted;
  }
  /// Called by a rank from time to time, because the test may kill it.
  void add() {
    if (sent_ == nullptr || count_messages == nullptr) return;
    const std::uint64_t own = count_messages();
    *sent_ += own - std::exchange(added_, own);
  }

 private:
  traffic() {
    if (only_transport() == nullptr) return;
    void* const memory =
        ::mmap(nullptr, sizeof *sent_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) sent_ = new (memory) std::atomic<std::uint64_t>(0);
  }
  ~traffic() {
    if (only_transport() == nullptr) return;
    const std::uint64_t sent = sent_ == nullptr ? 0 : sent_->load();
    std::printf("%llu messages went through %s\n", static_cast<unsigned long long>(sent),
                only_transport());
    std::fflush(stdout);
    if (sent == 0) ::_exit(1);
  }

  std::atomic<std::uint64_t>* sent_ = nullptr;
  std::uint64_t added_ = 0;
};

/// A configuration that names the transport.
inline colls::config over(const char* transport) {
  colls::config cfg;
  cfg.transport = transport;
  return cfg;
}

/// The pipes between a rank and the test.
class line {
 public:
  line(int out, int in) : out_(out), in_(in) {}
  void say(std::string text) const {
    traffic::all().add();
    text += '\n';
    [[maybe_unused]] const auto sent = ::write(out_, text.data(), text.size());
  }
  /// Reads a byte that `job::tell` has sent, without waiting; returns whether there was one.
  bool told() const {
    pollfd ready{in_, POLLIN, 0};
    return ::poll(&ready, 1, 0) == 1 && hear();
  }
  /// Waits for such a byte. The rank does not process messages of its peers meanwhile.
  bool hear() const {
    char byte = 0;
    return ::read(in_, &byte, 1) == 1;
  }

 private:
  int out_;
  int in_;
};

/// The end of a rank.
struct ending {
  int status = -1;     // of its process, 128 + n after a signal; -1: it still runs
  colls::errc code{};  // of the error that ended its main function; none: it returned
  int culprit = -1;
  double time = 0;  // main's end, on now()'s clock
  std::string message;
};

/// A world of processes. Each runs `main(world&, line&)` by colls::run.
class job {
 public:
  using rank_main = std::function<task<>(colls::world&, const line&)>;

  /// Called in each rank's process before it joins.
  using preparation = std::function<void(colls::config&)>;

  job(int size, const rank_main& main, colls::config cfg = {}, preparation prepare = {})
      : prepare_(std::move(prepare)) {
    // Rank 0 gets a socket that already listens, so that no other test can take its port.
    colls::listener listener;
    REQUIRE(!listener.listen({boost::asio::ip::make_address("127.0.0.1"), 0}));
    // The children do not use the listener.
    const colls::detail::descriptor shared(::dup(listener.descriptor()));
    port_ = listener.local().port();
    cfg.size = size;
    if (cfg.transport.empty() && only_transport() != nullptr) cfg.transport = only_transport();
    cfg.address = "tcp://127.0.0.1:" + std::to_string(port_);
    for (cfg.rank = 0; cfg.rank < size; ++cfg.rank) {
      cfg.store_fd = cfg.rank == 0 ? shared.get() : -1;
      start({}, cfg, main);
    }
  }
  /// Each rank gets its environment (NAME=value) and, if there is more, the configuration `cfg`.
  job(const std::vector<strings>& environments, const rank_main& main,
      const colls::config& cfg = {.address = "env://"}, preparation prepare = {})
      : prepare_(std::move(prepare)) {
    for (const strings& environment : environments) start(environment, cfg, main);
  }
  job(const job&) = delete;
  job& operator=(const job&) = delete;
  ~job() {
    for (child& each : all_) {
      if (each.end.status < 0) {
        ::kill(each.pid, SIGKILL);
        ::waitpid(each.pid, nullptr, 0);
      }
      for (const int fd : {each.out, each.in, each.log}) ::close(fd);
    }
  }

  int size() const { return static_cast<int>(all_.size()); }
  int port() const { return port_; }
  pid_t pid(int rank) const { return at(rank).pid; }
  void tell(int rank) { REQUIRE(::write(at(rank).in, "!", 1) == 1); }
  void kill(int rank) { ::kill(at(rank).pid, SIGKILL); }
  void stop(int rank) { ::kill(at(rank).pid, SIGSTOP); }
  void go_on(int rank) { ::kill(at(rank).pid, SIGCONT); }

  /// Returns the next line of a rank; empty: none came in time, or the rank has ended.
  std::string hear(int rank, double limit = 30) {
    child& from = at(rank);
    for (const double until = now() + limit;;) {
      const std::size_t end = from.said.find('\n');
      if (end != from.said.npos) {
        const std::string text = from.said.substr(0, end);
        from.said.erase(0, end + 1);
        return text;
      }
      pollfd ready{from.out, POLLIN, 0};
      const double left = until - now();
      if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left * 1000) + 1) <= 0) return {};
      char some[4096];
      const ssize_t size = ::read(from.out, some, sizeof some);
      if (size <= 0) return {};
      from.said.append(some, static_cast<std::size_t>(size));
    }
  }
  /// Reads the next line of every rank and returns whether all are `text`.
  bool all_say(const std::string& text, double limit = 30) {
    bool right = true;
    for (int rank = 0; rank < size(); ++rank) right &= hear(rank, limit) == text;
    return right;
  }

  /// Waits for the end of a rank and skips the lines that it writes meanwhile.
  const ending& wait(int rank, double limit = 30) {
    child& of = at(rank);
    const double until = now() + limit;
    while (of.end.status < 0) {
      const std::string text = hear(rank, std::max(0.0, until - now()));
      if (text.starts_with(ended)) note(of.end, text.substr(ended.size()));
      if (!text.empty()) continue;
      int status = 0;
      if (::waitpid(of.pid, &status, WNOHANG) == of.pid) {
        of.end.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        CHECK_MESSAGE(of.end.status != has_leaked, log(rank));
      } else if (now() > until) {
        break;
      } else {
        ::usleep(500);
      }
    }
    return of.end;
  }

  /// Waits until a rank's main function has returned: the rank leaves. Its process may stay for
  /// peers that have not learned of that.
  bool leaves(int rank, double limit = 30) {
    std::string text;
    do text = hear(rank, limit);
    while (!text.empty() && !text.starts_with(ended));
    note(at(rank).end, text.substr(std::min(text.size(), ended.size())));
    return !text.empty() && at(rank).end.code == colls::errc{};
  }

  /// Waits until a rank has written `text` to its standard error; false: it has not in time.
  bool logs(int rank, const std::string& text, double limit = 30) const {
    for (const double until = now() + limit; now() < until; ::usleep(1000)) {
      if (log(rank).find(text) != text.npos) return true;
    }
    return false;
  }

  /// Returns all that a rank has written to its standard error.
  std::string log(int rank) const {
    std::string all;
    char some[4096];
    while (const ssize_t size =
               ::pread(at(rank).log, some, sizeof some, static_cast<off_t>(all.size()))) {
      if (size < 0) break;
      all.append(some, static_cast<std::size_t>(size));
    }
    return all;
  }

  std::size_t resident(int rank) const {
    std::ifstream file(of_process(rank, "statm"));
    std::size_t pages = 0;
    std::size_t resident = 0;
    file >> pages >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  }
  int descriptors(int rank) const { return entries(of_process(rank, "fd")); }
  int threads(int rank) const { return entries(of_process(rank, "task")); }

 private:
  static constexpr std::string_view ended = "ended ";

  struct child {
    pid_t pid = -1;
    int out = -1;
    int in = -1;
    int log = -1;
    std::string said;
    ending end;
  };

  child& at(int rank) { return all_[static_cast<std::size_t>(rank)]; }
  const child& at(int rank) const { return all_[static_cast<std::size_t>(rank)]; }
  std::string of_process(int rank, const char* what) const {
    return "/proc/" + std::to_string(pid(rank)) + "/" + what;
  }
  static int entries(const std::string& folder) {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder),
                                          std::filesystem::directory_iterator()));
  }

  void start(const strings& environment, const colls::config& cfg, const rank_main& main) {
    int out[2];
    int in[2];
    REQUIRE((::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(in, O_CLOEXEC) == 0));
    child& made = all_.emplace_back();
    made.log = ::memfd_create("log", MFD_CLOEXEC);
    const bool beside_threads = entries("/proc/self/task") > 1;
    (void)traffic::all();  // before the fork, because the ranks share it
    made.pid = ::fork();
    REQUIRE(made.pid >= 0);
    if (made.pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(made.log, STDERR_FILENO);
      // Inherited ends of the other ranks' pipes would keep those open.
      for (const child& other : all_) {
        for (const int fd : {other.out, other.in, other.log}) ::close(fd);
      }
      ::close(out[0]);
      ::close(in[1]);
      if (cfg.address == "env://") {
        ::clearenv();
        for (const std::string& variable : environment)
          ::putenv(const_cast<char*>(variable.c_str()));
      }
      colls::config mine = cfg;
      if (prepare_) prepare_(mine);
      leave(live(mine, main, line(out[1], in[0])), beside_threads);
    }
    ::close(out[1]);
    ::close(in[0]);
    made.out = out[0];
    made.in = in[1];
  }

  static int live(const colls::config& cfg, const rank_main& main, const line& parent) {
    const auto report = [&](const colls::failure& why, const char* what) {
      parent.say(std::string(ended) + std::to_string(static_cast<int>(why.code)) + ' ' +
                 std::to_string(why.culprit) + ' ' + std::to_string(now()) + ' ' + what);
    };
    const auto reporting_main = [&](colls::world& world) -> task<> {
      try {
        co_await main(world, parent);
      } catch (const colls::error& thrown) {
        report(thrown.record(), thrown.what());
        throw;
      }
      report({}, "");
    };
    return colls::run(reporting_main, cfg);
  }

  static void note(ending& end, const std::string& text) {
    int code = 0;
    int what = 0;
    (void)std::sscanf(text.c_str(), "%d %d %lf %n", &code, &end.culprit, &end.time, &what);
    end.code = static_cast<colls::errc>(code);
    end.message = text.substr(static_cast<std::size_t>(what));
  }

  preparation prepare_;
  int port_ = 0;
  std::vector<child> all_;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

/// Returns how often `part` occurs in `text`.
inline int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace processes
