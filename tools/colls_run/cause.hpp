// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Decides which of several ranks that fail at about the same time is the cause of the failure.

#include "report.hpp"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace launcher {

struct failed_child {
  int local = 0;   // rank on this node
  int status = 0;  // 0: it ended without leaving the world
  std::chrono::steady_clock::time_point time;
};

/// The first of several related failures. A dying process closes its connections before its parent
/// sees its death, so a rank that fails because of the closed connection may be seen first. The
/// cause is therefore chosen among all ranks that fail within a short time.
class cause {
 public:
  explicit cause(boost::asio::io_context& io) : timer_(io) {}

  /// Whether a local rank still runs.
  std::function<bool(int local)> running;
  /// Called for each failed rank, the cause first.
  std::function<void(const failed_child&)> report;

  /// The store has reported that this rank failed; the first reported rank is the suspect. With
  /// `died` its connection ended without a goodbye, so exit status 0 does not clear it. Otherwise
  /// other ranks gave it up, for example after a deadline, and may continue: if it ends much later,
  /// that has another cause.
  void suspect(int local, bool died) {
    if (died) {
      if (died_ < 0) died_ = local;
    } else if (blamed() < 0) {
      blamed_ = local;
      blamed_at_ = clock::now();
    }
  }
  bool has_suspect() const { return died_ >= 0 || blamed() >= 0; }
  /// Returns whether ranks have failed that are not reported yet.
  bool is_deciding() const { return !waiting_.empty(); }

  /// A rank has exited with status 0. This is not a failure in itself. If the rank is suspected of
  /// having died, it is the cause of other ranks' failures.
  void exited_well(const failed_child& it) {
    if (blamed_ == it.local) blamed_ = -1;
    if (died_ != it.local || found_) return;
    silent_exit_ = it;
    if (!waiting_.empty()) decide();
  }

  void failed(const failed_child& it) {
    waiting_.push_back(it);
    if (found_ || order_of_blame(it) == 0 || (it.local == died_ && blamed() < 0)) {
      decide();
    } else if (waiting_.size() == 1) {
      decide_after(std::chrono::milliseconds(50));
    }
  }

  /// Decides now.
  void decide() {
    if (waiting_.empty()) return;
    timer_.cancel();
    found_ = true;
    if (silent_exit_) waiting_.push_back(*std::exchange(silent_exit_, std::nullopt));
    const auto first = std::min_element(waiting_.begin(), waiting_.end(),
                                        [this](const failed_child& a, const failed_child& b) {
                                          return order_of_blame(a) < order_of_blame(b);
                                        });
    std::rotate(waiting_.begin(), first, first + 1);
    for (const failed_child& it : std::exchange(waiting_, {})) report(it);
  }

 private:
  using clock = std::chrono::steady_clock;

  /// The rank that others gave up, for as long as its end may follow from that; -1: none.
  int blamed() const { return clock::now() - blamed_at_ < std::chrono::seconds(5) ? blamed_ : -1; }

  // The rank with the lowest value is the cause; among equals the first is. A rank that is given
  // up, or that gives up another one, may end without a goodbye, but it does not crash, exit with
  // code 0 or end by SIGKILL because of that.
  int order_of_blame(const failed_child& it) const {
    if (it.local == died_ && (is_independent_failure(it.status) || it.status == 0)) return 0;
    if (it.local == blamed()) return 1;
    if (it.local == died_) return 2;
    return is_independent_failure(it.status) ? 3 : 4;
  }

  bool runs(int suspect) const { return suspect >= 0 && running(suspect); }

  void decide_after(std::chrono::milliseconds moment) {
    timer_.expires_after(moment);
    timer_.async_wait([this, moment](boost::system::error_code ec) {
      if (ec) return;
      const bool awaited = (runs(died_) || runs(blamed())) && moment.count() < 200;
      awaited ? decide_after(std::chrono::milliseconds(200)) : decide();
    });
  }

  boost::asio::steady_timer timer_;
  std::vector<failed_child> waiting_;
  std::optional<failed_child> silent_exit_;  // of `died_`, if it exited with status 0
  int died_ = -1;
  int blamed_ = -1;
  clock::time_point blamed_at_;
  bool found_ = false;
};

}  // namespace launcher
