// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Which of the ranks that fail in one moment is the cause, and which failed because of it.

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
  std::chrono::steady_clock::time_point when;
};

/// A process closes its connections before its death can be seen: a rank that fails by that news
/// may be seen first. So the cause is looked for among those that fail in the same moment.
class cause {
 public:
  explicit cause(boost::asio::io_context& io) : timer_(io) {}

  /// Whether a local rank still runs.
  std::function<bool(int local)> running;
  /// Called for each that failed, in the order of their guilt.
  std::function<void(const failed_child&)> tell;

  /// The store heard that this one failed: the first it heard of is the one. `died`: its connection
  /// ended without a goodbye, so that its exit status does not clear it. Otherwise others gave it up,
  /// by a deadline for one, and may go on: that it ends much later has another cause.
  void suspect(int local, bool died) {
    if (died) {
      if (died_ < 0) died_ = local;
    } else if (blamed() < 0) {
      blamed_ = local;
      blamed_at_ = clock::now();
    }
  }
  bool has_suspect() const { return died_ >= 0 || blamed() >= 0; }

  /// A rank has exited with status 0. It is no failure of its own, but the cause of others' if it
  /// was suspected of having died.
  void ended_well(const failed_child& it) {
    if (blamed_ == it.local) blamed_ = -1;
    if (died_ != it.local || found_) return;
    silent_ = it;
    if (!waiting_.empty()) settle();
  }

  void failed(const failed_child& it) {
    waiting_.push_back(it);
    if (found_ || innocence(it) == 0 || (it.local == died_ && blamed() < 0)) {
      settle();
    } else if (waiting_.size() == 1) {
      settle_in(std::chrono::milliseconds(50));
    }
  }

  /// Decides now.
  void settle() {
    if (waiting_.empty()) return;
    timer_.cancel();
    found_ = true;
    if (silent_) waiting_.push_back(*std::exchange(silent_, std::nullopt));
    const auto first = std::min_element(waiting_.begin(), waiting_.end(),
                                        [this](const failed_child& a, const failed_child& b) {
                                          return innocence(a) < innocence(b);
                                        });
    std::rotate(waiting_.begin(), first, first + 1);
    for (const failed_child& it : std::exchange(waiting_, {})) tell(it);
  }

 private:
  using clock = std::chrono::steady_clock;

  /// The one that others gave up, while an end may follow from that; -1: none.
  int blamed() const { return clock::now() - blamed_at_ < std::chrono::seconds(5) ? blamed_ : -1; }

  // The lower, the sooner it is the cause; of equals the first is. Ranks that are given up, and those
  // that give up, may end without a goodbye, but no crash, SIGKILL or exit code 0 follows from that.
  int innocence(const failed_child& it) const {
    if (it.local == died_ && (is_own_doing(it.status) || it.status == 0)) return 0;
    if (it.local == blamed()) return 1;
    if (it.local == died_) return 2;
    return is_own_doing(it.status) ? 3 : 4;
  }

  bool runs(int suspect) const { return suspect >= 0 && running(suspect); }

  void settle_in(std::chrono::milliseconds moment) {
    timer_.expires_after(moment);
    timer_.async_wait([this, moment](boost::system::error_code ec) {
      if (ec) return;
      const bool awaited = (runs(died_) || runs(blamed())) && moment.count() < 200;
      awaited ? settle_in(std::chrono::milliseconds(200)) : settle();
    });
  }

  boost::asio::steady_timer timer_;
  std::vector<failed_child> waiting_;
  std::optional<failed_child> silent_;  // the one that died, if it exited with status 0
  int died_ = -1;
  int blamed_ = -1;
  clock::time_point blamed_at_;
  bool found_ = false;
};

}  // namespace launcher
