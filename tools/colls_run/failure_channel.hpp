// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What the launchers of a world have in common: the store of node 0, and the news of failed ranks.

#include "options.hpp"
#include "report.hpp"
#include "world.hpp"

#include <colls/bootstrap/dial.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace launcher {

/// Node 0's launcher serves the store to all ranks and announces its own failures there; those of
/// other nodes report theirs. Each hears what the store announces, which also sees ranks go.
class failure_channel final : colls::failure_listener {
 public:
  failure_channel(colls::engine& on, const options& how, const world& w,
                  const colls::listener& served)
      : engine_(on), options_(how), world_(w), tasks_(on) {
    if (served.is_open()) {
      at_ = served.local();
      server_.emplace(on, mine(), colls::secret(w.secret));
      const int copy = ::fcntl(served.descriptor(), F_DUPFD_CLOEXEC, 3);
      const std::error_code ec = copy < 0 ? colls::detail::last_error() : server_->adopt(copy);
      if (ec) throw start_error(fmt::format("cannot serve the ranks: {}", ec.message()));
    }
    tasks_.start(attach());
  }

  /// The store says that a rank has failed, also one of this node, or (-1) node 0's launcher has.
  /// `died`: it was in the world, or missed there, and ended without a goodbye.
  std::function<void(int rank, const std::string& why, bool died)> on_failure;

  /// A rank of this node has failed.
  void announce(int rank, const std::string& how) {
    const std::string why = fmt::format("{} (host {})", how, host_name());
    failed_at_ = std::min(failed_at_, engine_.now());
    if (server_) return server_->announce_failure(rank, why);
    colls::failure told(colls::errc::peer_failed);
    told.culprit = rank;
    told.say("%s", why.c_str());
    unreported_.push_back(told);
    report();
  }

  /// A rank of this node has ended with exit code 0: those that wait for it to join need not. Node
  /// 0's launcher decides, for its server knows which ranks have come.
  void ended_well(int rank) {
    if (server_) return look_for(rank);
    ended_.push_back(rank);
    report();
  }

  /// Of a rank that came to the store and has failed: the one that it missed there, which had ended
  /// with exit code 0 before anything showed that these are ranks of colls.
  std::optional<int> missed_by(int rank) const {
    return server_ && server_->has_come(rank) ? missed_ : std::nullopt;
  }

  /// Whether this launcher has to stay although its own ranks have ended: asked again and again.
  bool needed() {
    if (options_.nodes == 1) return false;
    const colls::time_point now = engine_.now();
    const auto patience = static_cast<colls::time_point>((options_.grace + 5) * 1e9);
    if (failed_at_ != colls::never && now > failed_at_ + patience) return false;
    if (server_ && server_->present() > 0) {
      idle_since_ = colls::never;
      return true;
    }
    idle_since_ = std::min(idle_since_, now);
    if (now > idle_since_ + 2 * colls::seconds) return false;
    if (!server_) return reporting_ || (has_news() && !locked_out_);
    if (store_ && !std::exchange(saying_over_, true)) tasks_.start(say_over());
    return !over_;
  }

 private:
  static constexpr const char* over_key = "colls-run/over";
  // How many lists of ranks that ended with exit code 0 were reported, and the lists.
  static constexpr const char* ended_key = "colls-run/ended";
  static std::string ended_list_key(std::int64_t number) {
    return fmt::format("{}/{}", ended_key, number);
  }

  colls::hello mine() const {
    colls::hello me;
    me.what = colls::purpose::store;
    me.job = world_.job_hash;
    me.world = options_.size();
    me.checksum = world_.checksum;
    return me;
  }

  // Tries until it succeeds or the launcher ends. The ranks meet the same obstacles and name them.
  colls::task<> attach() {
    colls::secret shared(world_.secret);
    const auto place = colls::detail::parse_address(world_.store);
    colls::time_point pause = 5 * colls::milliseconds;
    int refusals = 0;
    while (!store_) {
      std::vector<colls::endpoint> all;
      if (server_) {
        all.push_back(at_);
      } else {
        for (const auto& address : colls::detail::addresses_of(place.host)) {
          all.emplace_back(address, static_cast<std::uint16_t>(place.port));
        }
      }
      for (const colls::endpoint& where : all) {
        try {
          store_ = co_await colls::detail::dial_store(engine_, where, mine(), shared, colls::never,
                                                      10 * colls::seconds);
          break;
        } catch (const colls::error& failed) {
          colls::log_debug("the store: %s", failed.what());
          const auto code = failed.record().code;
          const bool final = code == colls::errc::auth_failed ||
                             code == colls::errc::version_mismatch ||
                             code == colls::errc::crypto_failed;
          refusals = final ? refusals + 1 : 0;
        }
      }
      if (refusals >= 3) {
        locked_out_ = true;
        co_return;
      }
      pause = std::min<colls::time_point>(2 * pause, 100 * colls::milliseconds);
      if (!store_) co_await engine_.sleep_until(engine_.now() + pause);
    }
    store_->listen_for_failures(this);
    colls::log_debug("this launcher hears of failures from the store of node 0");
    report();
    if (!server_) {
      co_await wait_for_the_end();
    } else if (options_.nodes > 1) {
      co_await hear_of_ended();
    }
  }

  // Node 0: those that other launchers report.
  colls::task<> hear_of_ended() {
    try {
      for (std::int64_t number = 1;; ++number) {
        const std::string list = co_await store_->get(ended_list_key(number), colls::never - 1);
        std::istringstream ranks(list);
        for (int rank = -1; ranks >> rank;) look_for(rank);
      }
    } catch (const colls::error& lost) {
      colls::log_debug("the store: %s", lost.what());
    }
  }

  // Node 0: that rank has ended with exit code 0. If it has not come, the ranks that have wait for it.
  // Where none has, these are no ranks of colls, or some come later.
  void look_for(int rank) {
    const bool is_known = std::find(absent_.begin(), absent_.end(), rank) != absent_.end();
    if (rank < 0 || rank >= options_.size() || is_known) return;
    if (!missed_ && !server_->has_come(rank)) missed_ = rank;
    absent_.push_back(rank);
    if (!std::exchange(looking_, true)) tasks_.start(tell_of_absent());
  }
  colls::task<> tell_of_absent() {
    for (;;) {
      std::erase_if(absent_, [this](int rank) { return server_->has_come(rank); });
      if (server_->present() > 0) {
        for (const int rank : std::exchange(absent_, {})) {
          server_->announce_failure(rank, "it ended (exit code 0) and had not joined");
        }
      }
      if (absent_.empty()) break;
      co_await engine_.sleep_until(engine_.now() + 100 * colls::milliseconds);
    }
    looking_ = false;
  }

  // Node 0's launcher ends last, and says so; without that word something has ended it.
  colls::task<> wait_for_the_end() {
    try {
      co_await store_->get(over_key, colls::never - 1);
    } catch (const colls::error& lost) {
      if (on_failure)
        on_failure(-1, fmt::format("the launcher of node 0 is gone ({})", lost.record().detail),
                   true);
    }
  }
  colls::task<> say_over() {
    try {
      co_await store_->set(over_key, "yes");
    } catch (const colls::error& lost) {
      colls::log_debug("the store: %s", lost.what());
    }
    over_ = true;
  }

  bool has_news() const { return !unreported_.empty() || !ended_.empty(); }

  void report() {
    if (store_ && !reporting_ && has_news()) tasks_.start(send_reports());
  }

  colls::task<> send_reports() {
    reporting_ = true;
    while (has_news()) {
      const colls::time_point soon = engine_.now() + 5 * colls::seconds;
      try {
        if (!unreported_.empty()) {
          const colls::failure why = unreported_.front();
          unreported_.erase(unreported_.begin());
          co_await store_->report_failure(why, soon);
        } else {
          const std::string list = fmt::format("{}", fmt::join(std::exchange(ended_, {}), " "));
          const std::int64_t number = co_await store_->add(ended_key, 1, soon);
          co_await store_->set(ended_list_key(number), list, soon);
        }
      } catch (const colls::error& lost) {
        colls::log_debug("the store: %s", lost.what());
      }
    }
    reporting_ = false;
  }

  void rank_failed(int rank, const colls::reported_failure& report) override {
    if (rank < 0) return;
    const colls::failure& why = report;
    // A communicator that was given up is no death: here it only tells whom to suspect.
    const bool died = why.code == colls::errc::peer_failed;
    const int local = rank - options_.first_rank();
    if (!died && (local < 0 || local >= options_.local_size)) return;
    if (died) failed_at_ = std::min(failed_at_, engine_.now());
    // Where no rank has joined, these are no ranks of colls: one that has ended is not missed.
    const bool missed = !server_ || server_->has_come(rank) || server_->present() > 0;
    if (on_failure) on_failure(rank, why.detail, died && missed);
  }

  colls::engine& engine_;
  const options& options_;
  const world& world_;
  colls::endpoint at_;
  std::optional<colls::store_server> server_;
  std::shared_ptr<colls::tcp_store> store_;
  std::optional<int> missed_;  // ended with exit code 0, the first that had not come to the store
  std::vector<colls::failure> unreported_;
  std::vector<int> ended_;   // with exit code 0, and not reported yet
  std::vector<int> absent_;  // node 0: ended with exit code 0, and maybe have not come
  bool looking_ = false;     // for these
  bool reporting_ = false;
  bool locked_out_ = false;  // another secret, another version
  bool saying_over_ = false;
  bool over_ = false;
  colls::time_point idle_since_ = colls::never;
  colls::time_point failed_at_ = colls::never;
  colls::task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace launcher
