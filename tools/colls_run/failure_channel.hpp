// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Connects the launchers of a world through the store of node 0, which distributes failures of
// ranks.

#include "options.hpp"
#include "report.hpp"
#include "world.hpp"

#include <colls/bootstrap/dial.hpp>
#include <colls/bootstrap/launcher_store.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace launcher {

/// The launcher of node 0 hosts the store for all ranks and announces the failures of its own ranks
/// there. The launchers of other nodes report theirs. Every launcher receives what the store
/// announces; the store itself notices ranks that disconnect. Ranks in its interface are those of
/// the start of the job.
class failure_channel final : colls::failure_listener {
 public:
  failure_channel(colls::engine& driver, const options& opts, const world& w,
                  const colls::listener& listener)
      : engine_(driver), options_(opts), world_(w), tasks_(driver) {
    if (listener.is_open()) {
      store_endpoint_ = listener.local();
      server_.emplace(driver, make_hello(), colls::secret(w.secret));
      const int copy = ::fcntl(listener.descriptor(), F_DUPFD_CLOEXEC, 3);
      const std::error_code ec = copy < 0 ? colls::detail::last_error() : server_->adopt(copy);
      if (ec) throw start_error(fmt::format("cannot serve the ranks: {}", ec.message()));
    }
    tasks_.start(attach());
  }

  /// Called when the store reports that a rank has failed, which may be a rank of this node, or
  /// that the launcher of node 0 has failed (-1). With `died` the rank had joined, or other ranks
  /// waited for it to join, and it ended without a goodbye.
  std::function<void(int rank, const std::string& reason, bool died)> on_failure;

  /// A rank of this node has failed.
  void announce(int process, const std::string& status) {
    const int rank = world_.rank_of(process);
    if (rank < 0) return;
    const std::string reason = fmt::format("{} (host {})", status, host_name());
    failure_time_ = std::min(failure_time_, engine_.now());
    if (server_) return server_->announce_failure(rank, reason);
    colls::failure failed(colls::errc::peer_failed);
    failed.culprit = rank;
    failed.set_detail("%s", reason.c_str());
    unreported_.push_back(failed);
    report();
  }

  /// A rank of this node has ended with exit code 0, so no other rank needs to wait for it to join.
  /// The launcher of node 0 decides, because its server knows which ranks have joined.
  void exited_well(int process) {
    const int rank = world_.rank_of(process);
    if (rank < 0) return;
    if (server_) return check_joined(rank);
    ended_.push_back(rank);
    report();
  }

  /// Processes of another node have failed. The server notices the end of those that have joined.
  void announce_unjoined(int first, int count, const char* reason) {
    for (int process = first; server_ && process < first + count; ++process) {
      const int rank = world_.rank_of(process);
      if (rank < 0 || rank >= world_.size(options_) || server_->has_joined(rank)) continue;
      server_->announce_failure(rank, reason);
    }
  }

  /// Tells the ranks how many replacements wait for a place.
  void announce_waiting(int count) {
    waiting_ = count;
    if (store_) tasks_.start(set_waiting(count, ++waiting_announcements_));
  }
  /// Returns the number of the world, see `colls::next_world`.
  int world_number() const { return world_.number; }

  /// Returns the rank for which failed rank `rank` may have waited in the store: one that ended
  /// with exit code 0 before any connection showed that the processes are ranks of colls.
  std::optional<int> absent_peer_of(int process) const {
    const int rank = world_.rank_of(process);
    const bool has_waited = missed_ && rank >= 0 && server_ && server_->has_joined(rank);
    return has_waited ? std::optional(world_.process_of(*missed_)) : std::nullopt;
  }

  /// Returns whether this launcher has to stay although its own ranks have ended. The launcher
  /// polls it until it returns false.
  bool needed() {
    if (options_.nodes == 1) return false;
    const colls::time_point now = engine_.now();
    const auto patience = static_cast<colls::time_point>((options_.grace + 5) * 1e9);
    if (failure_time_ != colls::never && now > failure_time_ + patience) return false;
    if (server_ && server_->present() > 0) {
      idle_since_ = colls::never;
      return true;
    }
    idle_since_ = std::min(idle_since_, now);
    if (now > idle_since_ + 2 * colls::seconds) return false;
    if (!server_) return reporting_ || (has_reports() && !rejected_);
    if (store_ && !std::exchange(announcing_end_, true)) tasks_.start(announce_end());
    return !end_announced_;
  }

 private:
  static constexpr const char* over_key = "colls-run/over";
  // The number of reported lists of ranks that ended with exit code 0, and the lists themselves.
  static constexpr const char* ended_key = "colls-run/ended";
  static std::string ended_list_key(std::int64_t number) {
    return fmt::format("{}/{}", ended_key, number);
  }

  colls::hello make_hello() const {
    colls::hello me;
    me.purpose = colls::connection_purpose::store;
    me.job = colls::detail::hash_of(world_.started_job());
    me.generation = static_cast<std::uint32_t>(world_.generation);
    me.world = world_.size(options_);
    me.checksum = world_.checksum;
    return me;
  }

  // Tries until it succeeds or the launcher ends. The ranks run into the same errors and report
  // them.
  colls::task<> attach() {
    colls::secret shared(world_.secret);
    const auto address = colls::detail::parse_address(world_.store);
    colls::time_point pause = 5 * colls::milliseconds;
    int refusals = 0;
    while (!store_) {
      std::vector<colls::endpoint> candidates;
      if (server_) {
        candidates.push_back(store_endpoint_);
      } else {
        for (const auto& host : colls::detail::resolve_host(address.host)) {
          candidates.emplace_back(host, static_cast<std::uint16_t>(address.port));
        }
      }
      for (const colls::endpoint& candidate : candidates) {
        try {
          store_ = co_await colls::detail::dial_store_once(engine_, candidate, make_hello(), shared,
                                                           colls::never, 10 * colls::seconds);
          break;
        } catch (const colls::error& failed) {
          colls::log_debug("the store: %s", failed.what());
          const auto code = failed.record().code;
          const bool final = code == colls::errc::auth_failed ||
                             code == colls::errc::version_mismatch ||
                             code == colls::errc::crypto_failed;
          refusals = final ? refusals + 1 : 0;
          const std::string reason = refusal_text(failed.record());
          const bool has_hint = reason != failed.record().detail;
          if (has_hint && !std::exchange(has_told_other_job_, true))
            colls::log_warn("%s", reason.c_str());
        }
      }
      if (refusals >= 3) {
        rejected_ = true;
        co_return;
      }
      pause = std::min<colls::time_point>(2 * pause, 100 * colls::milliseconds);
      if (!store_) co_await engine_.sleep_until(engine_.now() + pause);
    }
    store_->listen_for_failures(this);
    colls::log_debug("this launcher receives failures from the store of node 0");
    report();
    if (waiting_ > 0) announce_waiting(waiting_);
    if (!server_) {
      co_await wait_for_end();
    } else if (options_.nodes > 1) {
      co_await receive_exit_reports();
    }
  }

  // Node 0: receives the ranks that other launchers report.
  colls::task<> receive_exit_reports() {
    try {
      for (std::int64_t number = 1;; ++number) {
        const std::string list = co_await store_->get(ended_list_key(number), colls::never - 1);
        std::istringstream ranks(list);
        for (int rank = -1; ranks >> rank;) check_joined(rank);
      }
    } catch (const colls::error& lost) {
      colls::log_debug("the store: %s", lost.what());
    }
  }

  // Node 0: the rank has ended with exit code 0. If it has not joined, the ranks that have joined
  // wait for it. If none has joined, the processes are not ranks of colls, or some join later.
  void check_joined(int rank) {
    const bool is_known = std::find(absent_.begin(), absent_.end(), rank) != absent_.end();
    if (rank < 0 || rank >= world_.size(options_) || is_known) return;
    if (!missed_ && !server_->has_joined(rank)) missed_ = rank;
    absent_.push_back(rank);
    if (!std::exchange(checking_absent_, true)) tasks_.start(announce_absent());
  }
  colls::task<> announce_absent() {
    for (;;) {
      std::erase_if(absent_, [this](int rank) { return server_->has_joined(rank); });
      if (server_->present() > 0) {
        for (const int rank : std::exchange(absent_, {})) {
          server_->announce_failure(rank, "it ended (exit code 0) and had not joined");
        }
      }
      if (absent_.empty()) break;
      co_await engine_.sleep_until(engine_.now() + 100 * colls::milliseconds);
    }
    checking_absent_ = false;
  }

  // The launcher of node 0 ends last and announces its end. If the connection closes without this
  // announcement, that launcher has failed.
  colls::task<> wait_for_end() {
    try {
      co_await store_->get(over_key, colls::never - 1);
    } catch (const colls::error& lost) {
      if (on_failure) {
        on_failure(-1, fmt::format("the launcher of node 0 is gone ({})", lost.record().detail),
                   true);
      }
    }
  }
  colls::task<> announce_end() {
    try {
      co_await store_->set(over_key, "yes");
    } catch (const colls::error& lost) {
      colls::log_debug("the store: %s", lost.what());
    }
    end_announced_ = true;
  }

  colls::task<> set_waiting(int count, int number) {
    try {
      co_await store_->set(colls::detail::waiting_key(number), std::to_string(count));
    } catch (const colls::error& lost) {
      colls::log_debug("the store: %s", lost.what());
    }
  }

  bool has_reports() const { return !unreported_.empty() || !ended_.empty(); }

  void report() {
    if (store_ && !reporting_ && has_reports()) tasks_.start(send_reports());
  }

  colls::task<> send_reports() {
    reporting_ = true;
    while (has_reports()) {
      const colls::time_point deadline = engine_.now() + 5 * colls::seconds;
      try {
        if (!unreported_.empty()) {
          const colls::failure failed = unreported_.front();
          unreported_.erase(unreported_.begin());
          co_await store_->report_failure(failed, deadline);
        } else {
          const std::string list = fmt::format("{}", fmt::join(std::exchange(ended_, {}), " "));
          const std::int64_t number = co_await store_->add(ended_key, 1, deadline);
          co_await store_->set(ended_list_key(number), list, deadline);
        }
      } catch (const colls::error& lost) {
        colls::log_debug("the store: %s", lost.what());
      }
    }
    reporting_ = false;
  }

  void rank_failed(int rank, const colls::reported_failure& reported) override {
    if (rank < 0) return;
    const colls::failure& failed = reported;
    // A revoked communicator is no death; here it only identifies a suspect.
    const bool died = failed.code == colls::errc::peer_failed;
    const int process = world_.process_of(rank);
    const int local = process - options_.first_rank();
    if (!died && (local < 0 || local >= options_.local_size)) return;
    if (died) failure_time_ = std::min(failure_time_, engine_.now());
    if (died && !died_.insert(rank).second) return;
    // If no rank has joined, the processes are not ranks of colls, and none waits for another.
    const bool awaited = !server_ || server_->has_joined(rank) || server_->present() > 0;
    if (on_failure) on_failure(process, failed.detail, died && awaited);
  }

  colls::engine& engine_;
  const options& options_;
  const world world_;
  colls::endpoint store_endpoint_;
  std::optional<colls::store_server> server_;
  std::shared_ptr<colls::tcp_store> store_;
  std::optional<int> missed_;  // the first rank that ended with exit code 0 and had not joined
  std::vector<colls::failure> unreported_;
  std::set<int> died_;       // of which `on_failure` has heard
  std::vector<int> ended_;   // with exit code 0, not reported yet
  std::vector<int> absent_;  // node 0: ended with exit code 0, perhaps before they joined
  int waiting_ = 0;          // replacements
  int waiting_announcements_ = 0;
  bool checking_absent_ = false;  // `announce_absent` runs
  bool reporting_ = false;
  bool has_told_other_job_ = false;
  bool rejected_ = false;  // the store refused this launcher: another secret or version
  bool announcing_end_ = false;
  bool end_announced_ = false;
  colls::time_point idle_since_ = colls::never;
  colls::time_point failure_time_ = colls::never;
  colls::task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace launcher
