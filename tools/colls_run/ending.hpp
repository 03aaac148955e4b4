// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The stages in which a job is ended: a grace period, SIGTERM, SIGKILL.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>

namespace launcher {

enum class stage { running, grace, terminating, killing, abandoned };

/// Moves from one stage to a later one, never back, and calls `entered` for each stage after
/// `grace`.
class ending {
 public:
  explicit ending(boost::asio::io_context& io) : timer_(io) {}

  std::function<void(stage)> entered;

  stage current() const { return stage_; }

  /// Starts the period in which the remaining ranks may end by themselves.
  void begin(std::chrono::duration<double> grace) {
    if (stage_ != stage::running) return;
    stage_ = stage::grace;
    schedule(stage::terminating, grace);
  }

  /// No rank is left. Processes that the ranks left behind get a shorter grace period.
  void no_rank_left() {
    if (stage_ <= stage::grace) schedule(stage::terminating, std::chrono::milliseconds(500));
  }

  void enter(stage next) {
    stage_ = next;
    timer_.cancel();
    if (next == stage::terminating) schedule(stage::killing, std::chrono::seconds(3));
    if (next == stage::killing) schedule(stage::abandoned, std::chrono::seconds(3));
    entered(next);
  }

  void stop() { timer_.cancel(); }

 private:
  void schedule(stage next, std::chrono::duration<double> delay) {
    timer_.expires_after(std::chrono::duration_cast<boost::asio::steady_timer::duration>(delay));
    timer_.async_wait([this, next](boost::system::error_code ec) {
      if (!ec && stage_ < next) enter(next);
    });
  }

  boost::asio::steady_timer timer_;
  stage stage_ = stage::running;
};

}  // namespace launcher
