// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The steps by which a job is brought to its end: time to end by itself, SIGTERM, SIGKILL.

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <functional>

namespace launcher {

enum class stage { running, grace, terminating, killing, given_up };

/// Goes from one stage to a later one, never back, and calls `entered` at each after `grace`.
class ending {
 public:
  explicit ending(boost::asio::io_context& io) : timer_(io) {}

  std::function<void(stage)> entered;

  stage now() const { return stage_; }

  /// Others have so long to end by themselves.
  void begin(std::chrono::duration<double> grace) {
    if (stage_ != stage::running) return;
    stage_ = stage::grace;
    then(stage::terminating, grace);
  }

  /// No rank is left; what they left behind has less time.
  void no_rank_left() {
    if (stage_ <= stage::grace) then(stage::terminating, std::chrono::milliseconds(500));
  }

  void enter(stage next) {
    stage_ = next;
    timer_.cancel();
    if (next == stage::terminating) then(stage::killing, std::chrono::seconds(3));
    if (next == stage::killing) then(stage::given_up, std::chrono::seconds(3));
    entered(next);
  }

  void stop() { timer_.cancel(); }

 private:
  void then(stage next, std::chrono::duration<double> after) {
    timer_.expires_after(std::chrono::duration_cast<boost::asio::steady_timer::duration>(after));
    timer_.async_wait([this, next](boost::system::error_code ec) {
      if (!ec && stage_ < next) enter(next);
    });
  }

  boost::asio::steady_timer timer_;
  stage stage_ = stage::running;
};

}  // namespace launcher
