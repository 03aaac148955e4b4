// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Runs build/tools/colls-run and looks at what it prints, how it ends and what it leaves behind.

#include <doctest/doctest.h>

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace launcher_test {

using strings = std::vector<std::string>;
using clock = std::chrono::steady_clock;

inline double seconds_since(clock::time_point then) {
  return std::chrono::duration<double>(clock::now() - then).count();
}

inline std::string path_of_colls_run() {
  for (const char* path : {"tools/colls-run", "build/tools/colls-run"}) {
    if (::access(path, X_OK) == 0) return path;
  }
  FAIL("no tools/colls-run here: run this in the build folder");
  return {};
}

/// The pids of live processes that have `variable` (NAME=value) in their environment.
inline std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    const std::string all((std::istreambuf_iterator<char>(file)), {});
    if ((std::string(1, '\0') + all).find('\0' + variable + '\0') != all.npos) found.push_back(pid);
  }
  return found;
}

/// Returns the value of a variable in the environment of a process, or an empty text.
inline std::string variable_of(pid_t process, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return {};
}

inline strings lines_of(const std::string& text) {
  strings all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

/// Returns how often `part` occurs in `text`.
inline int count(const std::string& text, const std::string& part) {
  int seen = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++seen;
  return seen;
}

struct setting {
  std::string input = {};         // written to its standard input
  strings environment = {};       // NAME=value is added, NAME alone is removed
  bool terminal = false;          // its standard files are a new terminal
  bool close_output = false;      // the test closes its end of standard output
  int read_limit = -1;            // the test stops reading standard output after these bytes
  std::vector<int> ignored = {};  // signals that are ignored at its start, as by nohup
};

/// One run of colls-run. Every rank has LAUNCHER_TEST=<unique> in its environment.
class run {
 public:
  explicit run(strings arguments, setting opts = {}) : opts_(std::move(opts)) {
    static std::atomic<int> count = 0;
    mark_ = "LAUNCHER_TEST=" + std::to_string(::getpid()) + "." + std::to_string(++count);
    arguments.insert(arguments.begin(), {path_of_colls_run(), "-x", mark_});
    opts_.terminal ? start_on_terminal(arguments) : start_on_pipes(arguments);
  }
  run(const run&) = delete;
  run& operator=(const run&) = delete;
  ~run() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const pid_t process : left()) ::kill(process, SIGKILL);
    for (const int fd : {in_, out_, err_}) {
      if (fd >= 0) ::close(fd);
    }
  }

  pid_t pid() const { return pid_; }
  const std::string& out() const { return text_[0]; }
  const std::string& err() const { return text_[1]; }
  double seconds() const { return seconds_; }
  void signal(int number) const { ::kill(pid_, number); }
  void type(const std::string& text) const { REQUIRE(::write(in_, text.data(), text.size()) > 0); }
  void hang_up() {
    for (int* const end : {&in_, &out_}) ::close(std::exchange(*end, -1));
  }
  void read_on() { opts_.read_limit = -1; }

  /// Returns the live processes of its ranks.
  std::vector<pid_t> left() const { return processes_with(mark_); }

  /// Waits until at least `count` of them live. A process in its exec shows no environment for a
  /// moment.
  bool at_least(std::size_t count) const {
    const auto began = clock::now();
    while (left().size() < count && seconds_since(began) < 10) ::usleep(1000);
    return seconds_since(began) < 10;
  }

  /// Waits until `text` was printed `times` times on standard output and error together.
  bool shows(const std::string& text, int times = 1, double limit = 20) {
    const auto began = clock::now();
    for (;;) {
      if (count(text_[0], text) + count(text_[1], text) >= times) return true;
      if (seconds_since(began) > limit || !read_some(100)) return false;
    }
  }

  /// Waits for its end and returns its exit status: 128 + n if a signal ended it, -1 if it does not
  /// end.
  int wait(double limit = 30) {
    const auto began = clock::now();
    while (!ended_ && seconds_since(began) < limit) {
      read_some(10);
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        ended_ = true;
        seconds_ = seconds_since(began_);
        status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      }
    }
    while (ended_ && read_some(0)) {
    }
    return status_;
  }

  /// Waits until no process of its ranks lives; false: some still do after `limit` seconds.
  bool all_gone(double limit) {
    const auto began = clock::now();
    while (!left().empty()) {
      if (seconds_since(began) > limit) return false;
      read_some(20);
      ended_ = ended_ || ::waitpid(pid_, nullptr, WNOHANG) == pid_;
    }
    return true;
  }

 private:
  [[noreturn]] void exec(const strings& arguments) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nothing either
    // The test itself may have been started with other dispositions.
    for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE}) ::signal(number, SIG_DFL);
    for (const int number : opts_.ignored) ::signal(number, SIG_IGN);
    for (const std::string& variable : opts_.environment) {
      const auto equals = variable.find('=');
      if (equals == variable.npos) {
        ::unsetenv(variable.c_str());
      } else {
        ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
      }
    }
    std::vector<char*> argv;
    for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(125);
  }

  void start_on_pipes(const strings& arguments) {
    int in[2], out[2], err[2];
    for (int* const ends : {in, out, err}) REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    began_ = clock::now();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::dup2(err[1], 2);
      exec(arguments);
    }
    for (const int fd : {in[0], out[1], err[1]}) ::close(fd);
    if (!opts_.input.empty()) {
      REQUIRE(::write(in[1], opts_.input.data(), opts_.input.size()) > 0);
    }
    ::close(in[1]);
    out_ = out[0];
    err_ = err[0];
    if (opts_.close_output) ::close(std::exchange(out_, -1));
  }

  void start_on_terminal(const strings& arguments) {
    winsize size{24, 80, 0, 0};
    began_ = clock::now();
    pid_ = ::forkpty(&out_, nullptr, nullptr, &size);
    if (pid_ == 0) exec(arguments);
    REQUIRE(pid_ > 0);
    in_ = ::dup(out_);
  }

  // Returns false when both outputs are at their end, or if nothing is ready and `wait_ms` is 0.
  bool read_some(int wait_ms) {
    const bool paused =
        opts_.read_limit >= 0 && text_[0].size() >= static_cast<std::size_t>(opts_.read_limit);
    pollfd ready[] = {{paused ? -1 : out_, POLLIN, 0}, {err_, POLLIN, 0}};
    ::poll(ready, 2, wait_ms);
    for (int i = 0; i < 2; ++i) {
      if (ready[i].fd < 0 || (ready[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      char bytes[65536];
      const ssize_t size = ::read(ready[i].fd, bytes, sizeof bytes);
      if (size > 0) {
        text_[i].append(bytes, static_cast<std::size_t>(size));
      } else {
        ::close(std::exchange(i == 0 ? out_ : err_, -1));
      }
    }
    if (wait_ms == 0 && ready[0].revents == 0 && ready[1].revents == 0) return false;
    return out_ >= 0 || err_ >= 0;
  }

  setting opts_;
  std::string mark_;
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  std::string text_[2];
  clock::time_point began_;
  double seconds_ = 0;
  int status_ = -1;
  bool ended_ = false;
};

/// `-n ranks sh -c script`, with options before it.
inline strings shell(int ranks, const std::string& script, strings options = {}) {
  options.insert(options.end(), {"-n", std::to_string(ranks), "sh", "-c", script});
  return options;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

/// A script that says which start it belongs to. It fails in the first `failing` ones, on `rank`.
inline std::string fails_at_first(int failing, int rank) {
  return "echo start $COLLS_RESTART_COUNT of $COLLS_MAX_RESTARTS size $COLLS_WORLD_SIZE;"
         "[ $COLLS_RANK = " +
         std::to_string(rank) + " ] && [ $COLLS_RESTART_COUNT -lt " + std::to_string(failing) +
         " ] && exit 3; [ $COLLS_RESTART_COUNT -lt " + std::to_string(failing) +
         " ] && exec sleep 1000; exit 0";
}

}  // namespace launcher_test
