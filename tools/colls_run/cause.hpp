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
  /// ended without a goodbye, so that its exit status does not clear it.
  void suspect(int local, bool died) {
    if (suspect_ < 0) suspect_ = local;
    if (suspect_ == local) died_ |= died;
  }
  bool has_suspect() const { return suspect_ >= 0; }

  /// A rank has exited with status 0. It is no failure of its own, but the cause of others' if it
  /// was suspected of having died.
  void ended_well(const failed_child& it) {
    if (suspect_ != it.local) return;
    if (!died_) {
      suspect_ = -1;
    } else if (!found_) {
      silent_ = it;
      if (!waiting_.empty()) settle();
    }
  }

  void failed(const failed_child& it) {
    waiting_.push_back(it);
    if (found_ || it.local == suspect_) {
      settle();
    } else if (waiting_.size() == 1) {
      settle_in(std::chrono::milliseconds(50));
    }
  }

  /// Decides now. It is the suspect; else one that a crash or SIGKILL ended; else the first.
  void settle() {
    if (waiting_.empty()) return;
    timer_.cancel();
    found_ = true;
    if (silent_) waiting_.push_back(*std::exchange(silent_, std::nullopt));
    auto first = std::find_if(waiting_.begin(), waiting_.end(),
                              [this](const failed_child& it) { return it.local == suspect_; });
    if (first == waiting_.end()) {
      first = std::find_if(waiting_.begin(), waiting_.end(),
                           [](const failed_child& it) { return is_own_doing(it.status); });
    }
    if (first != waiting_.end()) std::rotate(waiting_.begin(), first, first + 1);
    for (const failed_child& it : std::exchange(waiting_, {})) tell(it);
  }

 private:
  void settle_in(std::chrono::milliseconds moment) {
    timer_.expires_after(moment);
    timer_.async_wait([this, moment](boost::system::error_code ec) {
      if (ec) return;
      const bool awaited = suspect_ >= 0 && running(suspect_) && moment.count() < 200;
      awaited ? settle_in(std::chrono::milliseconds(200)) : settle();
    });
  }

  boost::asio::steady_timer timer_;
  std::vector<failed_child> waiting_;
  std::optional<failed_child> silent_;  // the suspect, if it exited with status 0
  int suspect_ = -1;
  bool died_ = false;
  bool found_ = false;
};

}  // namespace launcher
