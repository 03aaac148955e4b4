// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The job from its first process to its last: outputs, signals, and what follows a failure.

#include "cause.hpp"
#include "connections.hpp"
#include "ending.hpp"
#include "guard.hpp"
#include "options.hpp"
#include "outputs.hpp"
#include "rank_output.hpp"
#include "report.hpp"
#include "terminal_input.hpp"
#include "watched.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace launcher {

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
        cause_(io),
        ending_(io),
        outputs_(engine_),
        began_(with.began) {
    for (int i = 0; i < how.local_size; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const std::string prefix = how.prefix ? fmt::format("[{}] ", how.first_rank() + i) : "";
      const auto reader = [&](colls::detail::descriptor& pipe, sink& to) {
        return std::make_unique<rank_output>(engine_, std::move(pipe), to, prefix);
      };
      ranks_.push_back({.out = reader(with.out[at], outputs_.out()),
                        .err = reader(with.err[at], outputs_.err())});
    }
    outputs_.on_change([this] {
      for (rank_state& rank : ranks_) {
        rank.out->sink_changed();
        rank.err->sink_changed();
      }
    });
    if (with.input) input_.emplace(engine_, std::move(with.input));
    cause_.running = [this](int local) { return ranks_[static_cast<std::size_t>(local)].running; };
    cause_.tell = [this](const failed_child& it) { failed(it); };
    ending_.entered = [this](stage now) { entered(now); };
    from_guard_.enable();
    from_outside_.enable();
  }

  /// Called for every rank of this node that fails, the cause first.
  std::function<void(int rank, const std::string& how)> on_failure;
  /// A rank has ended with exit code 0.
  std::function<void(int rank)> on_success;
  /// The rank that one which has failed may have waited for: it never joined.
  std::function<std::optional<int>(int rank)> missed_by;
  /// Whether other nodes need this launcher after its last rank has ended.
  std::function<bool()> needed;

  /// The store says that a rank has failed, or (-1) node 0's launcher has. `died`: a connection
  /// ended without a goodbye.
  void told_of_failure(int rank, const std::string& why, bool died) {
    if (first_failure_) return;
    const int local = rank - options_.first_rank();
    if (rank >= 0 && local >= 0 && local < options_.local_size) {
      // Its exit is seen in a moment, or was.
      const auto& ended_well = ranks_[static_cast<std::size_t>(local)].ended_well;
      if (!ended_well || died) cause_.suspect(local, died);
      if (ended_well) cause_.ended_well(*ended_well);
      return;
    }
    if (!cause_.has_suspect()) {
      first_failure_ = 1;
      in_short_ = rank < 0 ? "node 0" : fmt::format("rank {}, on another node,", rank);
      say(rank < 0 ? fmt::format("colls-run: {}", why)
                   : fmt::format("colls-run: rank {}, on another node, failed: {}", rank, why));
    }
    begin_to_end();
  }

  /// Turns everything until no process is left and all output is written. The exit status.
  int run() {
    while (!nobody_left_ || !outputs_.empty() || (needed && needed())) {
      io_.run_one();
    }
    return first_failure_.value_or(0);
  }

 private:
  struct rank_state {
    pid_t pid = 0;
    bool running = false;
    std::optional<failed_child> ended_well = {};  // with exit status 0
    std::unique_ptr<rank_output> out, err;
  };

  void say(const std::string& line) { outputs_.say(line); }

  void order(message::kind what, int signal) {
    const message out{what, 0, signal};
    // That the guard is gone is seen where its words are read.
    (void)::send(control_.get(), &out, sizeof out, MSG_NOSIGNAL);
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
        case message::kind::not_started:
          not_started(heard.rank, heard.value);
          break;
        case message::kind::ended:
          ended(heard.rank, heard.value);
          break;
        case message::kind::nobody_left:
          finish();
          break;
        default:
          break;
      }
    }
    if (size == 0) from_guard_.enable(false);  // SIGCHLD tells the rest
  }

  void not_started(int rank, int error) {
    first_failure_ = error == ENOENT ? 127 : 126;
    rank += options_.first_rank();
    say(started_ == 0 && error != EAGAIN && error != ENOMEM
            ? why_not_started(options_.command[0], error)
            : fmt::format(
                  "colls-run: cannot start rank {}: {}{}", rank, ::strerror(error),
                  error == EAGAIN ? ": there are as many processes as may be (ulimit -u)" : ""));
    if (on_failure) on_failure(rank, "could not be started");
    ending_.enter(stage::killing);
  }

  void ended(int local, int status) {
    rank_state& it = ranks_[static_cast<std::size_t>(local)];
    it.running = false;
    ++ended_;
    it.out->drain();
    it.err->drain();
    const failed_child end{local, status, clock::now()};
    if (status != 0) {
      if (!is_own_doing(status)) suspect_what_it_missed(options_.first_rank() + local);
      cause_.failed(end);
    } else {
      it.ended_well = end;
      cause_.ended_well(end);
      if (on_success) on_success(options_.first_rank() + local);
    }
    if (left() == 0) ending_.no_rank_left();
  }

  void suspect_what_it_missed(int rank) {
    const std::optional<int> absent = missed_by ? missed_by(rank) : std::nullopt;
    if (absent) told_of_failure(*absent, "", true);
  }

  void failed(const failed_child& it) {
    if (on_failure) on_failure(options_.first_rank() + it.local, how_it_ended(it.status));
    if (!first_failure_) explain_first(it);
  }

  void explain_first(const failed_child& it) {
    const int rank = options_.first_rank() + it.local;
    const int status = it.status;
    first_failure_ = exit_status(status);
    const bool of_our_signal =
        interrupted_ != 0 && (!WIFSIGNALED(status) || ending_.now() == stage::killing ||
                              WTERMSIG(status) == interrupted_);
    in_short_ = fmt::format("{}rank {} ({})",
                            of_our_signal ? signal_name(interrupted_) + ", " : std::string(), rank,
                            how_it_ended(status));
    if (!of_our_signal) {
      const rank_state& of = ranks_[static_cast<std::size_t>(it.local)];
      const std::chrono::duration<double> lived = it.when - began_;
      const auto& last = of.err->last_lines();
      say(explain({rank, of.pid, status, lived.count(), last, outputs_.broken()}));
    }
    begin_to_end();
  }

  // --- the end ---------------------------------------------------------------------------------

  // Also those of which the guard has yet to say that they started.
  int left() const { return options_.local_size - ended_; }

  void begin_to_end() {
    if (options_.keep_going || left() == 0) return;
    ending_.begin(std::chrono::duration<double>(options_.grace));
  }

  void entered(stage now) {
    if (now == stage::terminating) {
      say_who_gets("SIGTERM");
      order(message::kind::signal_all, SIGTERM);
      order(message::kind::signal_all, SIGCONT);
    } else if (now == stage::killing) {
      say_who_gets("SIGKILL");
      order(message::kind::signal_all, SIGKILL);
    } else if (now == stage::given_up) {
      say("colls-run: some processes do not even end by SIGKILL; leaving them to the system");
      finish();
    }
  }

  void say_who_gets(const char* signal) {
    std::vector<int> who;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].running) who.push_back(options_.first_rank() + static_cast<int>(i));
    }
    if (!who.empty()) {
      say(fmt::format("colls-run: {} to what still runs: rank {}", signal, listed(who)));
    } else if (ended_ > 0) {
      say(fmt::format("colls-run: {} to the processes that ranks left behind", signal));
    }
  }

  void finish() {
    if (std::exchange(nobody_left_, true)) return;
    cause_.settle();
    ending_.stop();
    for (rank_state& rank : ranks_) {
      rank.out->finish();
      rank.err->finish();
    }
    if (!in_short_.empty() && (started_ > 1 || interrupted_ != 0)) {
      say(fmt::format("colls-run: exit status {}: {} was the first to fail", *first_failure_,
                      in_short_));
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
        (void)::kill(::getpid(), SIGSTOP);  // a process may stop itself
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
      ending_.enter(stage::killing);
      return;
    }
    interrupted_ = signal;
    say(fmt::format("colls-run: {} sent to {} ranks{}", signal_name(signal), left(),
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
  cause cause_;
  ending ending_;
  outputs outputs_;
  std::optional<terminal_input> input_;
  std::vector<rank_state> ranks_;
  clock::time_point began_;
  int started_ = 0;
  int ended_ = 0;
  int interrupted_ = 0;               // the signal that asked us to end
  std::optional<int> first_failure_;  // its exit status
  std::string in_short_;              // who failed first, for the last line
  bool guard_killed_ = false;
  bool nobody_left_ = false;
};

}  // namespace launcher
