// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Connects a launcher with the coordinator on node 0.

#include "launcher_messages.hpp"
#include "world.hpp"

#include <colls/bootstrap/launcher_store.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace launcher {

// Messages are values in the store of the launchers. A launcher has a number there, by which the
// server notices that it has gone.
inline constexpr const char* launchers_key = "launchers";
inline std::string to_coordinator_key(int launcher, int message) {
  return fmt::format("launchers/{}/to/{}", launcher, message);
}
inline std::string from_coordinator_key(int launcher, int message) {
  return fmt::format("launchers/{}/from/{}", launcher, message);
}

/// Sends messages to the coordinator, and receives its messages, both in order.
class launcher_link {
 public:
  /// How long launchers wait for each other, as long as ranks do.
  static constexpr colls::time_point patience = 300 * colls::seconds;

  /// Connects to the coordinator at `shared.launchers`, and begins with `join`.
  launcher_link(colls::engine& driver, const options& o, const world& shared)
      : engine_(driver), shared_(shared), tasks_(driver) {
    send(join_message::of(o).text());
    tasks_.start(connect());
  }

  /// Called when a message has come, and when the connection is lost.
  std::function<void()> on_change;

  void send(std::string text) {
    unsent_.push_back(std::move(text));
    send_waiting();
  }
  /// Returns the next message, or nothing if none has come.
  std::optional<std::string> take() {
    if (received_.empty()) return std::nullopt;
    std::string text = std::move(received_.front());
    received_.pop_front();
    return text;
  }
  /// Returns why there is no connection any more, or an empty text.
  const std::string& problem() const { return problem_; }

  /// Says goodbye. Ends when the coordinator knows it, or after a second.
  void leave() {
    if (store_) tasks_.start(say_goodbye());
  }
  bool is_gone() const { return !store_ || is_gone_ || !problem_.empty(); }

 private:
  colls::hello make_hello(int number) const {
    colls::hello me = colls::detail::make_launcher_hello(shared_.job, shared_.checksum);
    me.rank = number;
    return me;
  }

  // Tries until node 0 answers. Throws the last error if that takes too long, or if another attempt
  // would not help.
  colls::task<std::shared_ptr<colls::tcp_store>> dial(int number) {
    const auto address = colls::detail::parse_address(shared_.launchers);
    const colls::hello me = make_hello(number);
    const colls::time_point began = engine_.now();
    bool has_said = false;
    for (;;) {
      colls::failure last(colls::errc::resolve_failed);
      last.set_detail("the host name %s is unknown", address.host.c_str());
      for (const auto& host : colls::detail::resolve_host(address.host)) {
        const colls::endpoint target(host, static_cast<std::uint16_t>(address.port));
        colls::secret key(shared_.secret);
        try {
          auto store = co_await colls::detail::dial_store_once(
              engine_, target, me, key, began + patience, 10 * colls::seconds);
          co_return store;
        } catch (const colls::error& failed) {
          last = failed.record();
        }
        if (is_permanent(last.code)) throw colls::error(last);
      }
      const colls::time_point waited = engine_.now() - began;
      if (waited >= patience) throw colls::error(last);
      if (waited >= 10 * colls::seconds && !std::exchange(has_said, true))
        print_line(fmt::format("waiting for node 0: {}", refusal_text(last)));
      co_await engine_.sleep_until(engine_.now() + 100 * colls::milliseconds);
    }
  }
  static bool is_permanent(colls::errc code) {
    return code == colls::errc::auth_failed || code == colls::errc::version_mismatch ||
           code == colls::errc::crypto_failed || code == colls::errc::insecure_bind;
  }

  colls::task<> connect() {
    std::optional<colls::failure> failed;
    try {
      auto first_dial = dial(-1);
      const std::shared_ptr<colls::tcp_store> first = co_await first_dial;
      const std::int64_t number = co_await first->add(launchers_key, 1);
      co_await first->leave(engine_.now() + colls::seconds);
      number_ = static_cast<int>(number);
      auto second_dial = dial(number_);
      store_ = co_await second_dial;
      send_waiting();
      for (int message = 1;; ++message) {
        std::string text =
            co_await store_->get(from_coordinator_key(number_, message), colls::never - 1);
        received_.push_back(std::move(text));
        if (on_change) on_change();
      }
    } catch (const colls::error& lost) {
      failed = lost.record();
    }
    if (has_left_) co_return;
    problem_ = store_ ? fmt::format("the launcher of node 0 is gone ({})", failed->detail)
               : is_permanent(failed->code)
                   ? fmt::format("node 0 does not take this node: {}", failed->detail)
                   : fmt::format("node 0 has not answered within {} s: {}",
                                 patience / colls::seconds, refusal_text(*failed));
    if (on_change) on_change();
  }

  void send_waiting() {
    if (store_ && !unsent_.empty() && !std::exchange(is_sending_, true)) tasks_.start(send_all());
  }
  colls::task<> send_all() {
    while (!unsent_.empty()) {
      const std::string text = std::move(unsent_.front());
      unsent_.pop_front();
      const std::string key = to_coordinator_key(number_, ++sent_);
      try {
        co_await store_->set(key, text);
      } catch (const colls::error& lost) {
        colls::log_debug("the launchers' store: %s", lost.what());
        break;
      }
    }
    is_sending_ = false;
  }

  colls::task<> say_goodbye() {
    const colls::time_point deadline = engine_.now() + colls::seconds;
    while (is_sending_ && engine_.now() < deadline) {
      co_await engine_.sleep_until(engine_.now() + colls::milliseconds);
    }
    has_left_ = true;
    try {
      co_await store_->leave(deadline);
    } catch (const colls::error& lost) {
      colls::log_debug("the launchers' store: %s", lost.what());
    }
    is_gone_ = true;
  }

  colls::engine& engine_;
  const world& shared_;
  std::shared_ptr<colls::tcp_store> store_;
  int number_ = 0;
  int sent_ = 0;
  std::deque<std::string> unsent_, received_;
  bool is_sending_ = false;
  bool has_left_ = false;
  bool is_gone_ = false;
  std::string problem_;
  colls::task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace launcher
