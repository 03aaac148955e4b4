// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What the launchers of a world have in common: the store of node 0, and the news of failed ranks.

#include "options.hpp"
#include "report.hpp"
#include "world.hpp"

#include <colls/rendezvous/reach.hpp>

#include <functional>
#include <memory>
#include <optional>

namespace launcher {

/// Node 0's launcher serves the store to all ranks and announces its own failures there; those of
/// other nodes report theirs. With several nodes each also hears what the others announce.
class failure_channel : colls::failure_listener {
 public:
  failure_channel(colls::engine& on, const options& how, const world& w, const colls::listener& served)
      : engine_(on), options_(how), world_(w), tasks_(on) {
    if (served.is_open()) {
      at_ = served.local();
      server_.emplace(on, mine(), colls::secret(w.secret));
      server_->adopt(::fcntl(served.descriptor(), F_DUPFD_CLOEXEC, 3));
    }
    if (how.nodes > 1) tasks_.start(attach());
  }

  /// A rank of another node has failed.
  std::function<void(int rank, const std::string& why)> on_failure;

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

  /// Whether this launcher has to stay although its own ranks have ended.
  bool needed() const {
    if (options_.nodes == 1) return false;
    const auto patience = static_cast<colls::time_point>((options_.grace + 5) * 1e9);
    if (failed_at_ != colls::never && engine_.now() > failed_at_ + patience) return false;
    return server_ ? server_->present() > 0 : store_ != nullptr && reporting_;
  }

 private:
  colls::hello mine() const {
    colls::hello me;
    me.what = colls::purpose::store;
    me.job = colls::detail::hash_of(world_.job);
    me.world = options_.size();
    return me;
  }

  // Tries until it succeeds or the launcher ends. The ranks meet the same obstacles and name them.
  colls::task<> attach() {
    const colls::secret shared(world_.secret);
    const auto place = colls::detail::parse_address(world_.store);
    colls::detail::back_off pause;
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
        }
      }
      if (!store_) co_await engine_.sleep_until(engine_.now() + pause.next());
    }
    store_->listen_for_failures(this);
    report();
  }

  void report() {
    if (store_ && !reporting_ && !unreported_.empty()) tasks_.start(send_reports());
  }

  colls::task<> send_reports() {
    reporting_ = true;
    while (!unreported_.empty()) {
      const colls::failure why = unreported_.front();
      unreported_.erase(unreported_.begin());
      try {
        co_await store_->report_failure(why);
      } catch (const colls::error& lost) {
        colls::log_debug("the store: %s", lost.what());
      }
    }
    reporting_ = false;
  }

  void rank_failed(int rank, const colls::failure& why) override {
    const bool ours = rank >= options_.first_rank() &&
                      rank < options_.first_rank() + options_.local_size;
    if (ours) return;
    failed_at_ = std::min(failed_at_, engine_.now());
    if (on_failure) on_failure(rank, why.detail);
  }

  colls::engine& engine_;
  const options& options_;
  const world& world_;
  colls::endpoint at_;
  std::optional<colls::store_server> server_;
  std::shared_ptr<colls::tcp_store> store_;
  std::vector<colls::failure> unreported_;
  bool reporting_ = false;
  colls::time_point failed_at_ = colls::never;
  colls::task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace launcher
