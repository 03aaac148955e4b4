// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Supervises the processes of a job: their output, signals, and the end of the job after a failure.

#include "cause.hpp"
#include "connections.hpp"
#include "ending.hpp"
#include "guard.hpp"
#include "launcher_messages.hpp"
#include "options.hpp"
#include "outputs.hpp"
#include "rank_output.hpp"
#include "report.hpp"
#include "terminal_input.hpp"
#include "watched_descriptor.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>

namespace launcher {

struct job_result {
  int status = 0;  // for `exit`
  node_outcome outcome = node_outcome::good;
  bool has_told_loss = false;  // it has printed that the launcher of node 0 is gone
};

class job {
 public:
  using clock = std::chrono::steady_clock;

  job(boost::asio::io_context& io, colls::engine& driver, const options& opts, connections ends)
      : io_(io),
        engine_(driver),
        options_(opts),
        guard_(ends.guard),
        control_(std::move(ends.control)),
        signals_(std::move(ends.signals)),
        guard_watch_(engine_, control_.get(), EPOLLIN, [this] { read_guard_messages(); }),
        signal_watch_(engine_, signals_.get(), EPOLLIN, [this] { read_signals(); }),
        cause_(io),
        ending_(io),
        outputs_(engine_),
        began_(ends.began) {
    for (int i = 0; i < opts.local_size; ++i) {
      const auto local = static_cast<std::size_t>(i);
      const std::string prefix = opts.prefix ? fmt::format("[{}] ", opts.first_rank() + i) : "";
      const auto reader = [&](colls::detail::descriptor& pipe, sink& destination) {
        return std::make_unique<rank_output>(engine_, std::move(pipe), destination, prefix);
      };
      ranks_.push_back({.out = reader(ends.out[local], outputs_.out()),
                        .err = reader(ends.err[local], outputs_.err())});
    }
    outputs_.on_change([this] {
      for (rank_state& rank : ranks_) {
        rank.out->sink_changed();
        rank.err->sink_changed();
      }
    });
    if (ends.input) input_.emplace(engine_, std::move(ends.input));
    cause_.running = [this](int local) { return ranks_[static_cast<std::size_t>(local)].running; };
    cause_.report = [this](const failed_child& it) { failed(it); };
    ending_.entered = [this](stage current) { entered(current); };
    guard_watch_.enable();
    signal_watch_.enable();
  }

  /// Called for every rank of this node that fails, the cause first.
  std::function<void(int rank, const std::string& reason)> on_failure;
  /// Called when a rank has ended with exit code 0.
  std::function<void(int rank)> on_success;
  /// Returns the rank for which a failed rank may have waited because it never joined.
  std::function<std::optional<int>(int rank)> absent_peer_of;
  /// Returns whether other nodes need this launcher after its last rank has ended.
  std::function<bool()> needed;

  /// Whether all ranks may be started again after a failure.
  bool has_restarts = false;

  /// Called with its local rank as soon as a process has ended; and then, once it is known whether
  /// it has failed, to ask for a replacement or to say that none is needed.
  std::function<void(int local)> on_ended;
  std::function<void(int local)> on_replacement_needed;
  std::function<void(int local, bool is_well)> on_done;

  /// Kills a process that the other ranks go on without, and asks for a replacement.
  void kill(int local) {
    rank_state& it = ranks_[static_cast<std::size_t>(local)];
    if (!it.is_alive() || std::exchange(it.is_killed, true)) return;
    print(fmt::format("colls-run: the others go on without rank {}: SIGKILL to it",
                      options_.first_rank() + local));
    command_guard(message::kind::kill, 0, local);
  }
  /// Starts the replacement for which this job has asked, which has this number and is the job's
  /// replacement `used`.
  void start_replacement(int local, int number, int used) {
    rank_state& it = ranks_[static_cast<std::size_t>(local)];
    if (!std::exchange(it.is_awaited, false)) return;
    it.is_replacement = true;
    it.is_killed = false;
    it.exited_well = {};
    it.err->forget_last_lines();
    print(fmt::format("colls-run: a replacement for rank {} starts, {} of at most {}",
                      options_.first_rank() + local, used, options_.max_restarts));
    is_empty_ = false;
    command_guard(message::kind::replace, number, local);
  }
  /// No replacement follows, for a reason that is empty where nothing has to be said.
  void refuse_replacement(int local, const std::string& reason) {
    rank_state& it = ranks_[static_cast<std::size_t>(local)];
    if (!std::exchange(it.is_awaited, false)) return;
    it.running = false;
    ++ended_;
    --starting_;
    if (!reason.empty()) {
      is_final_ = true;
      print(fmt::format("colls-run: no replacement for rank {}: {}", options_.first_rank() + local,
                        reason));
    }
    begin_ending();
    check_left();
    if (is_empty_ && starting_ == 0) finish();
  }
  /// Ends the replacements that wait for a place, because no rank is left that could give them one.
  void dismiss_waiting(bool has_success) {
    is_dismissed_ = true;
    has_success_ |= has_success;
    if (!has_success_) {
      if (!is_final_)
        print("colls-run: no rank is left with which the replacements could go on: ending them");
      if (!first_failure_) first_failure_ = 1;
    }
    refuse_replacements();
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].is_alive()) continue;
      ranks_[i].is_killed = true;
      command_guard(message::kind::kill, 0, static_cast<int>(i));
    }
  }
  /// Ends the ranks, because the whole job ends.
  void end(const std::string& reason) {
    is_final_ = true;
    if (!reason.empty() && remaining() > 0) {
      print(fmt::format("colls-run: {}", reason));
      if (!first_failure_) first_failure_ = 1;
    }
    refuse_replacements();
    begin_ending();
  }
  /// Prints a line of the launcher.
  void print(const std::string& line) { outputs_.print(line); }
  /// Called once when the job as a whole is to end, whatever the other nodes do.
  std::function<void()> on_final;
  /// Returns whether no rank of this node will run any more.
  bool is_final() const { return is_final_ || interrupted_ != 0; }
  /// Returns whether the ranks of this node are being ended, perhaps to start again.
  bool is_ending() const { return is_final() || (first_failure_ && !goes_on()); }

  /// The store reports that a rank has failed, or that the launcher of node 0 has failed (-1). With
  /// `died` the connection of the rank ended without a goodbye.
  void handle_reported_failure(int rank, const std::string& reason, bool died) {
    const bool others_go_on = goes_on();
    if (first_failure_ && !others_go_on) return;
    const int local = rank - options_.first_rank();
    if (rank >= 0 && local >= 0 && local < options_.local_size) {
      // The guard reports its exit soon, or has done so.
      const auto& exited_well = ranks_[static_cast<std::size_t>(local)].exited_well;
      if (!exited_well || died) cause_.suspect(local, died);
      if (exited_well) cause_.exited_well(*exited_well);
      return;
    }
    const std::string who = rank < 0 ? "" : fmt::format("rank {}, on another node,", rank);
    const std::string line =
        fmt::format("colls-run: {}{}{}", who, rank < 0 ? "" : " failed: ", reason);
    if (rank >= 0 && others_go_on) return print(line);
    is_final_ |= rank < 0;
    if (is_final_) refuse_replacements();
    if (others_go_on || !cause_.has_suspect()) {
      first_failure_ = 1;
      summary_ = rank < 0 ? "node 0" : who;
      print(line);
      has_told_loss_ |= rank < 0;
    }
    begin_ending();
  }

  /// Runs until no process is left and all output is written.
  job_result run() {
    while (!finished_ || !outputs_.empty() || (needed && needed())) {
      io_.run_one();
      if (outcome() == node_outcome::final && on_final) std::exchange(on_final, nullptr)();
    }
    return {status(), outcome(), has_told_loss_};
  }

 private:
  struct rank_state {
    pid_t pid = 0;
    bool running = false;
    bool is_replacement = false;
    bool is_killed = false;   // by this launcher, although it has not failed
    bool is_awaited = false;  // it has ended, and the launcher has asked for a replacement
    // Returns whether it has not ended. The guard may not have reported its start yet.
    bool is_alive() const { return running ? !is_awaited : pid == 0; }
    std::optional<failed_child> exited_well = {};  // set once it has ended with exit status 0
    std::unique_ptr<rank_output> out, err;
  };

  bool replaces() const {
    return options_.on_failure == failure_policy::replace && interrupted_ == 0 && !is_final_;
  }
  // Whether ranks go on after a failure of others.
  bool goes_on() const {
    const bool is_meant = options_.on_failure == failure_policy::shrink ||
                          options_.on_failure == failure_policy::replace;
    return is_meant && !is_final_;
  }

  // Another start does not help if the user has ended this one or a rank could not be started.
  bool starts_again() const {
    return has_restarts && first_failure_ && interrupted_ == 0 && !is_final_;
  }

  node_outcome outcome() const {
    if (interrupted_ != 0 && options_.node_rank > 0) return node_outcome::leaving;
    if (is_final_ || interrupted_ != 0) return node_outcome::final;
    return first_failure_ ? node_outcome::failed : node_outcome::good;
  }

  // Ranks that go on have done the work if one of them ends with exit status 0. No rank does the
  // work of one that fails later.
  int status() const {
    const bool is_good = goes_on() && has_success_ && !has_late_failure_ && interrupted_ == 0;
    return is_good ? 0 : first_failure_.value_or(0);
  }

  void command_guard(message::kind type, int value, int local = 0) {
    const message out{type, local, value};
    // If the guard is gone, `read_guard_messages` notices it.
    (void)::send(control_.get(), &out, sizeof out, MSG_NOSIGNAL);
  }

  // --- messages of the guard -------------------------------------------------------------------

  void read_guard_messages() {
    message in;
    ssize_t size = 0;
    while ((size = ::recv(control_.get(), &in, sizeof in, MSG_DONTWAIT)) == sizeof in) {
      const auto local = static_cast<std::size_t>(in.rank);
      switch (in.type) {
        case message::kind::started:
          ranks_[local].pid = in.value;
          if (!std::exchange(ranks_[local].running, true)) ++started_;
          if (ranks_[local].is_replacement) --starting_;
          break;
        case message::kind::not_started:
          not_started(in.rank, in.value);
          break;
        case message::kind::ended:
          ended(in.rank, in.value);
          break;
        case message::kind::all_ended:
          is_empty_ = true;
          cause_.decide();  // which may ask for replacements
          if (starting_ == 0) finish();
          break;
        default:
          break;
      }
    }
    if (size == 0) guard_watch_.enable(false);  // the guard is gone: SIGCHLD reports the rest
  }

  void not_started(int rank, int error) {
    is_final_ = true;
    rank_state& it = ranks_[static_cast<std::size_t>(rank)];
    if (it.is_replacement) {
      --starting_;
      ++ended_;
      it.running = false;
    }
    first_failure_ = error == ENOENT ? 127 : 126;
    rank += options_.first_rank();
    print(started_ == 0 && error != EAGAIN && error != ENOMEM
              ? explain_start_failure(options_.command[0], error)
              : fmt::format(
                    "colls-run: cannot start rank {}: {}{}", rank, ::strerror(error),
                    error == EAGAIN ? ": the limit on processes is reached (ulimit -u)" : ""));
    if (on_failure) on_failure(rank, "could not be started");
    ending_.enter(stage::killing);
  }

  void ended(int local, int status) {
    rank_state& it = ranks_[static_cast<std::size_t>(local)];
    it.running = false;
    ++ended_;
    it.out->drain();
    it.err->drain();
    if (on_ended) on_ended(local);
    const failed_child end{local, status, clock::now()};
    if (it.is_killed) {
      if (on_failure) on_failure(options_.first_rank() + local, describe_exit(status));
      return ask_for_replacement(local);
    }
    has_late_failure_ |= status != 0 && has_success_;
    has_success_ |= status == 0;
    if (status != 0) {
      if (!is_independent_failure(status)) suspect_absent_peer(options_.first_rank() + local);
      cause_.failed(end);
    } else {
      it.exited_well = end;
      cause_.exited_well(end);
      if (on_success) on_success(options_.first_rank() + local);
      if (on_done) on_done(local, true);
    }
    check_left();
  }

  // Called when a process may have been the last one.
  void check_left() {
    if (remaining() == 0 && !cause_.is_deciding()) ending_.no_rank_left();
  }

  // No answer comes, or none is of use.
  void refuse_replacements() {
    for (std::size_t i = 0; i < ranks_.size(); ++i) refuse_replacement(static_cast<int>(i), "");
  }
  // A process has failed. It counts as running until it is known whether a replacement follows.
  void ask_for_replacement(int local) {
    if (!replaces() || is_dismissed_) {
      if (on_done) on_done(local, false);
      begin_ending();
      return check_left();
    }
    rank_state& it = ranks_[static_cast<std::size_t>(local)];
    it.is_awaited = it.running = true;
    --ended_;
    ++starting_;
    on_replacement_needed(local);
  }

  void suspect_absent_peer(int rank) {
    const std::optional<int> absent = absent_peer_of ? absent_peer_of(rank) : std::nullopt;
    if (absent) handle_reported_failure(*absent, "", true);
  }

  void failed(const failed_child& it) {
    if (on_failure) on_failure(options_.first_rank() + it.local, describe_exit(it.status));
    if (!first_failure_ || goes_on()) explain_failure(it);
    ask_for_replacement(it.local);
  }

  void explain_failure(const failed_child& it) {
    const int rank = options_.first_rank() + it.local;
    const int status = it.status;
    const bool is_first = !first_failure_;
    if (is_first) first_failure_ = exit_status(status);
    const bool by_signal_to_launcher =
        interrupted_ != 0 && (!WIFSIGNALED(status) || ending_.current() == stage::killing ||
                              WTERMSIG(status) == interrupted_);
    if (is_first) {
      summary_ = fmt::format("{}rank {} ({})",
                             by_signal_to_launcher ? signal_name(interrupted_) + ", " : "", rank,
                             describe_exit(status));
    }
    if (!by_signal_to_launcher) {
      const rank_state& state = ranks_[static_cast<std::size_t>(it.local)];
      const std::chrono::duration<double> lifetime = it.time - began_;
      const auto& last = state.err->last_lines();
      print(explain({rank, state.pid, status, lifetime.count(), last, outputs_.broken()}));
    }
    begin_ending();
  }

  // --- the end ---------------------------------------------------------------------------------

  // Includes ranks whose start the guard has not reported yet.
  int remaining() const { return options_.local_size - ended_; }

  void begin_ending() {
    if ((goes_on() && interrupted_ == 0) || remaining() == 0) return;
    ending_.begin(std::chrono::duration<double>(options_.grace));
  }

  void entered(stage current) {
    if (current == stage::terminating) {
      print_receivers("SIGTERM");
      command_guard(message::kind::signal_all, SIGTERM);
      command_guard(message::kind::signal_all, SIGCONT);
    } else if (current == stage::killing) {
      print_receivers("SIGKILL");
      command_guard(message::kind::signal_all, SIGKILL);
    } else if (current == stage::abandoned) {
      print("colls-run: some processes do not end even after SIGKILL; leaving them to the system");
      is_final_ = true;
      finish();
    }
  }

  void print_receivers(const char* signal) {
    std::vector<int> running;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].running) running.push_back(options_.first_rank() + static_cast<int>(i));
    }
    if (!running.empty()) {
      print(fmt::format("colls-run: {} to what still runs: rank {}", signal, rank_list(running)));
    } else if (ended_ > 0) {
      print(fmt::format("colls-run: {} to the processes that ranks left behind", signal));
    }
  }

  void finish() {
    if (std::exchange(finished_, true)) return;
    cause_.decide();
    ending_.stop();
    for (rank_state& rank : ranks_) {
      rank.out->finish();
      rank.err->finish();
    }
    if (status() != 0 && !summary_.empty() && (started_ > 1 || interrupted_ != 0)) {
      const std::string end = starts_again() ? "" : fmt::format("exit status {}: ", status());
      print(fmt::format("colls-run: {}{} was the first to fail", end, summary_));
    }
    // The guard ends when the launcher closes its end of the socket.
    guard_watch_.enable(false);
    control_ = {};
  }

  // --- signals ---------------------------------------------------------------------------------

  void read_signals() {
    signalfd_siginfo got;
    while (::read(signals_.get(), &got, sizeof got) == sizeof got) {
      const int signal = static_cast<int>(got.ssi_signo);
      if (signal == SIGCHLD) {
        child_ended();
      } else if (signal == SIGTSTP) {
        command_guard(message::kind::signal_ranks, SIGSTOP);
        (void)::kill(::getpid(), SIGSTOP);  // a process may stop itself
      } else if (signal == SIGCONT) {
        command_guard(message::kind::signal_ranks, SIGCONT);
        if (input_) input_->resume();
      } else if (signal == SIGUSR1 || signal == SIGUSR2) {
        command_guard(message::kind::signal_ranks, signal);
      } else {
        end_on_signal(signal);
      }
    }
  }

  void end_on_signal(int signal) {
    if (finished_) {
      // The launcher waits only for unread output or for another node.
      ::_exit(128 + signal);
    }
    if (signal == SIGINT && interrupted_ == SIGINT) {
      ending_.enter(stage::killing);
      return;
    }
    interrupted_ = signal;
    print(fmt::format("colls-run: {} sent to {} ranks{}", signal_name(signal), remaining(),
                      signal == SIGINT ? "; once more kills them" : ""));
    command_guard(message::kind::signal_ranks, signal);
    refuse_replacements();
    begin_ending();
  }

  // The guard ends last. If it was killed, the launcher has adopted its children.
  void child_ended() {
    for (;;) {
      const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
      if (pid == guard_ && !finished_) {
        guard_killed_ = true;
        is_final_ = true;
        if (!first_failure_) first_failure_ = 1;
        print("colls-run: the process that guards the ranks was killed; ending them");
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
  watched_descriptor guard_watch_;
  watched_descriptor signal_watch_;
  cause cause_;
  ending ending_;
  outputs outputs_;
  std::optional<terminal_input> input_;
  std::vector<rank_state> ranks_;
  clock::time_point began_;
  int started_ = 0;
  int ended_ = 0;
  int starting_ = 0;                  // replacements of which the guard has not reported the start
  bool is_empty_ = false;             // the guard has said that no process is left
  bool has_told_loss_ = false;        // of the launcher of node 0
  bool is_dismissed_ = false;         // the replacements that wait are ended
  int interrupted_ = 0;               // the signal that ended the job
  std::optional<int> first_failure_;  // exit status of the first failure
  std::string summary_;               // the first rank to fail, for the last line
  bool is_final_ = false;             // another start would not help, or could do harm
  bool has_success_ = false;          // a rank has ended with exit status 0
  bool has_late_failure_ = false;     // a rank has failed after that
  bool guard_killed_ = false;
  bool finished_ = false;
};

}  // namespace launcher
