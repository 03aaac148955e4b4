// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The job from its first process to its last: outputs, signals, and what follows a failure.

#include "guard.hpp"
#include "options.hpp"
#include "rank_output.hpp"
#include "report.hpp"
#include "terminal_input.hpp"
#include "watched.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

namespace launcher {

/// The launcher's ends of what connects it to the guard and to the local ranks.
struct connections {
  std::chrono::steady_clock::time_point began;
  pid_t guard = 0;
  colls::detail::descriptor control;
  colls::detail::descriptor signals;                 // a signalfd
  std::vector<colls::detail::descriptor> out, err;   // by local rank
  colls::detail::descriptor input;                   // rank 0's, if a terminal feeds it
};

class job {
 public:
  using clock = std::chrono::steady_clock;

  job(boost::asio::io_context& io, colls::engine& on, const options& how, connections with)
      : io_(io),
        engine_(on),
        options_(how),
        guard_(with.guard),
        control_(std::move(with.control)),
        signals_(std::move(with.signals)),
        from_guard_(engine_, control_.get(), EPOLLIN, [this] { hear(); }),
        from_outside_(engine_, signals_.get(), EPOLLIN, [this] { take_signal(); }),
        timer_(io),
        settling_(io),
        out_(engine_, 1),
        began_(with.began) {
    // One terminal or one file for both: one queue, so that lines stay whole.
    if (!same_file(1, 2)) err_.emplace(engine_, 2);
    for (int i = 0; i < how.local_size; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::string prefix = how.prefix ? fmt::format("[{}] ", how.first_rank() + i) : "";
      ranks_.emplace_back();
      ranks_[at].out = std::make_unique<rank_output>(engine_, std::move(with.out[at]), out_, prefix);
      ranks_[at].err =
          std::make_unique<rank_output>(engine_, std::move(with.err[at]), errors(), prefix);
    }
    out_.on_change([this] { sink_changed(); });
    errors().on_change([this] { sink_changed(); });
    if (with.input) input_.emplace(engine_, std::move(with.input));
    from_guard_.enable();
    from_outside_.enable();
  }

  /// Called for every rank of this node that fails, the cause first.
  std::function<void(int rank, const std::string& how)> on_failure;
  /// Whether other nodes need this launcher after its last rank has ended.
  std::function<bool()> needed;

  /// A rank of another node has failed, or (-1) the launcher of node 0.
  void failed_elsewhere(int rank, const std::string& why) {
    if (first_failure_) return;
    first_failure_ = 1;
    cause_ = rank < 0 ? "node 0" : fmt::format("rank {}, on another node,", rank);
    say(rank < 0 ? fmt::format("colls-run: {}", why)
                 : fmt::format("colls-run: rank {}, on another node, failed: {}", rank, why));
    begin_to_end();
  }

  /// Turns everything until no process is left and all output is written. The exit status.
  int run() {
    while (!nobody_left_ || !out_.empty() || !errors().empty() || (needed && needed())) {
      io_.run_one();
    }
    return first_failure_.value_or(0);
  }

 private:
  struct rank_state {
    pid_t pid = 0;
    bool running = false;
    std::unique_ptr<rank_output> out, err;
  };
  struct failed_child {
    int local = 0;
    int status = 0;
    clock::time_point when;
  };
  enum class stage { running, grace, terminating, killing, given_up };

  static bool same_file(int a, int b) {
    struct stat first{}, second{};
    return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
  }

  sink& errors() { return err_ ? *err_ : out_; }
  void say(const std::string& line) {
    errors().line({}, line);
    errors().settle();
  }
  void sink_changed() {
    for (rank_state& rank : ranks_) {
      rank.out->sink_changed();
      rank.err->sink_changed();
    }
  }

  void order(message::kind what, int signal) {
    const message out{what, 0, signal};
    ::send(control_.get(), &out, sizeof out, MSG_NOSIGNAL);
  }

  // --- what the guard says ---------------------------------------------------------------------

  void hear() {
    message heard;
    ssize_t size = 0;
    while ((size = ::recv(control_.get(), &heard, sizeof heard, MSG_DONTWAIT)) == sizeof heard) {
      const auto at = static_cast<std::size_t>(heard.rank);
      switch (heard.what) {
        case message::kind::started:
          ranks_[at].pid = heard.value;
          ranks_[at].running = true;
          ++started_;
          break;
        case message::kind::not_started: not_started(heard.rank, heard.value); break;
        case message::kind::ended: ended(heard.rank, heard.value); break;
        case message::kind::nobody_left: finish(); break;
        default: break;
      }
    }
    if (size == 0) from_guard_.enable(false);  // SIGCHLD tells the rest
  }

  void not_started(int rank, int error) {
    first_failure_ = error == ENOENT ? 127 : 126;
    const std::string& program = options_.command[0];
    if (started_ > 0 || error == EAGAIN || error == ENOMEM) {
      say(fmt::format("colls-run: cannot start rank {}: {}", options_.first_rank() + rank,
                      ::strerror(error)));
    } else if (error == ENOENT && program.find('/') == program.npos) {
      const bool here = ::access(program.c_str(), X_OK) == 0;
      say(fmt::format("colls-run: {}: command not found{}", program,
                      here ? fmt::format("; did you mean ./{}?", program) : ""));
    } else if (error == ENOENT && ::access(program.c_str(), F_OK) == 0) {
      say(fmt::format("colls-run: {}: its interpreter was not found", program));
    } else {
      say(fmt::format("colls-run: {}: {}", program, ::strerror(error)));
    }
    cause_ = {};
    if (on_failure) on_failure(options_.first_rank() + rank, "could not be started");
    enter(stage::killing);
  }

  void ended(int local, int status) {
    rank_state& it = ranks_[static_cast<std::size_t>(local)];
    it.running = false;
    it.out->drain();
    it.err->drain();
    if (status != 0) failed(local, status);
    if (still_running() == 0 && started_ == options_.local_size && stage_ <= stage::grace) {
      wait_for(std::chrono::milliseconds(500), stage::terminating);  // what ranks left behind
    }
  }

  void failed(int local, int status) {
    failed_.push_back({local, status, clock::now()});
    if (first_failure_ || WIFSIGNALED(status)) {
      settle_cause();
    } else if (failed_.size() == 1) {
      settling_.expires_after(std::chrono::milliseconds(20));
      settling_.async_wait([this](boost::system::error_code ec) {
        if (!ec) settle_cause();
      });
    }
  }

  // A process closes its connections a moment before its death can be seen: a rank that fails by
  // that news may be seen first. A signal that killed another in the same moment is the cause.
  void settle_cause() {
    if (failed_.empty()) return;
    settling_.cancel();
    const auto cause = std::find_if(failed_.begin(), failed_.end(), [](const failed_child& it) {
      return WIFSIGNALED(it.status) && WTERMSIG(it.status) != SIGPIPE;
    });
    if (cause != failed_.end()) std::rotate(failed_.begin(), cause, cause + 1);
    for (const failed_child& it : std::exchange(failed_, {})) {
      if (on_failure) on_failure(options_.first_rank() + it.local, how_it_ended(it.status));
      if (!first_failure_) explain_first(it);
    }
  }

  void explain_first(const failed_child& it) {
    const int rank = options_.first_rank() + it.local;
    const int status = it.status;
    first_failure_ = exit_status(status);
    const bool of_our_signal =
        interrupted_ != 0 && (!WIFSIGNALED(status) || stage_ == stage::killing ||
                              WTERMSIG(status) == interrupted_);
    cause_ = fmt::format("{}rank {} ({})",
                         of_our_signal ? signal_name(interrupted_) + ", " : std::string(), rank,
                         how_it_ended(status));
    if (!of_our_signal) {
      const rank_state& of = ranks_[static_cast<std::size_t>(it.local)];
      const std::chrono::duration<double> lived = it.when - began_;
      const auto& last = of.err->last_lines();
      for (const std::string& line :
           explain({rank, of.pid, status, lived.count(), {last.begin(), last.end()},
                    out_.broken() != 0 || errors().broken() != 0})) {
        errors().line({}, line);
      }
      errors().settle();
    }
    begin_to_end();
  }

  // --- the end ---------------------------------------------------------------------------------

  int still_running() const {
    return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(),
                                          [](const rank_state& it) { return it.running; }));
  }

  // Others get `--grace` seconds to end by their own error.
  void begin_to_end() {
    if (options_.keep_going || stage_ != stage::running || still_running() == 0) return;
    stage_ = stage::grace;
    wait_for(std::chrono::duration<double>(options_.grace), stage::terminating);
  }

  void enter(stage next) {
    stage_ = next;
    if (next == stage::terminating) {
      say_who_gets("SIGTERM");
      order(message::kind::signal_all, SIGTERM);
      order(message::kind::signal_all, SIGCONT);
      wait_for(std::chrono::seconds(3), stage::killing);
    } else if (next == stage::killing) {
      if (still_running() > 0) say_who_gets("SIGKILL");
      order(message::kind::signal_all, SIGKILL);
      wait_for(std::chrono::seconds(3), stage::given_up);
    } else if (next == stage::given_up) {
      say("colls-run: some processes do not even end by SIGKILL; leaving them to the system");
      finish();
    }
  }

  void say_who_gets(const char* signal) {
    std::string who;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].running) {
        who += fmt::format("{}{}", who.empty() ? "" : ", ", options_.first_rank() + static_cast<int>(i));
      }
    }
    if (who.empty()) {
      say(fmt::format("colls-run: {} to the processes that ranks left behind", signal));
    } else {
      say(fmt::format("colls-run: {} to what still runs: rank {}", signal, who));
    }
  }

  template <class Duration>
  void wait_for(Duration time, stage next) {
    timer_.expires_after(std::chrono::duration_cast<clock::duration>(time));
    timer_.async_wait([this, next](boost::system::error_code ec) {
      if (!ec && !nobody_left_ && stage_ < next) enter(next);
    });
  }

  void finish() {
    if (std::exchange(nobody_left_, true)) return;
    settle_cause();
    timer_.cancel();
    for (rank_state& rank : ranks_) {
      rank.out->finish();
      rank.err->finish();
    }
    if (!cause_.empty() && (started_ > 1 || interrupted_ != 0)) {
      say(fmt::format("colls-run: exit status {}: {} was the first to fail", *first_failure_, cause_));
    }
    // The guard ends when it finds nobody at the other end.
    from_guard_.enable(false);
    control_ = {};
  }

  // --- signals ---------------------------------------------------------------------------------

  void take_signal() {
    signalfd_siginfo got;
    while (::read(signals_.get(), &got, sizeof got) == sizeof got) {
      const int signal = static_cast<int>(got.ssi_signo);
      if (signal == SIGCHLD) {
        child_ended();
      } else if (signal == SIGTSTP) {
        order(message::kind::signal_ranks, SIGSTOP);
        ::kill(::getpid(), SIGSTOP);
      } else if (signal == SIGCONT) {
        order(message::kind::signal_ranks, SIGCONT);
        if (input_) input_->resume();
      } else if (signal == SIGUSR1 || signal == SIGUSR2) {
        order(message::kind::signal_ranks, signal);
      } else {
        asked_to_end(signal);
      }
    }
  }

  void asked_to_end(int signal) {
    if (nobody_left_) {
      // Only output that nobody takes, or another node, keeps us.
      ::_exit(128 + signal);
    }
    if (signal == SIGINT && interrupted_ == SIGINT) {
      enter(stage::killing);
      return;
    }
    interrupted_ = signal;
    say(fmt::format("colls-run: {} sent to {} ranks{}", signal_name(signal), still_running(),
                    signal == SIGINT ? "; once more kills them" : ""));
    order(message::kind::signal_ranks, signal);
    begin_to_end();
  }

  // The guard ends last. If it was killed, its children are ours now.
  void child_ended() {
    for (;;) {
      const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
      if (pid == guard_ && !nobody_left_) {
        guard_killed_ = true;
        if (!first_failure_) first_failure_ = 1;
        say("colls-run: the process that guards the ranks was killed; ending them");
      }
      if (pid <= 0) {
        if (guard_killed_ && pid < 0 && errno == ECHILD) return finish();
        break;
      }
    }
    if (guard_killed_) signal_descendants(SIGKILL);
  }

  boost::asio::io_context& io_;
  colls::engine& engine_;
  const options& options_;
  pid_t guard_;
  colls::detail::descriptor control_;
  colls::detail::descriptor signals_;
  watched from_guard_;
  watched from_outside_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer settling_;
  sink out_;
  std::optional<sink> err_;
  std::optional<terminal_input> input_;
  std::vector<rank_state> ranks_;
  clock::time_point began_;
  std::vector<failed_child> failed_;  // not told yet
  int started_ = 0;
  int interrupted_ = 0;  // the signal that asked us to end
  stage stage_ = stage::running;
  std::optional<int> first_failure_;  // its exit status
  std::string cause_;
  bool guard_killed_ = false;
  bool nobody_left_ = false;
};

}  // namespace launcher
