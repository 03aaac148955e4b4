// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// On node 0: decides when the ranks of all nodes start, start again and end.

#include "launcher_link.hpp"
#include "launcher_messages.hpp"
#include "options.hpp"
#include "replacements.hpp"
#include "world.hpp"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace launcher {

/// Serves the store of the launchers. The ranks start once enough nodes have come: all of
/// `options::nodes`, or at least `options::min_nodes` and no further one for 30 s.
class coordinator final : colls::failure_listener {
 public:
  static constexpr colls::time_point patience_for_more_nodes = 30 * colls::seconds;

  coordinator(colls::engine& driver, const options& opts, const world& shared,
              const colls::listener& socket)
      : engine_(driver),
        options_(opts),
        own_(join_message::of(opts)),
        server_(driver, colls::detail::make_launcher_hello(shared.job, shared.checksum),
                colls::secret(shared.secret)),
        tasks_(driver) {
    const int copy = ::fcntl(socket.descriptor(), F_DUPFD_CLOEXEC, 3);
    const std::error_code ec = copy < 0 ? colls::detail::last_error() : server_.adopt(copy);
    if (ec) throw start_error(fmt::format("cannot serve the launchers: {}", ec.message()));
    if (opts.on_failure == failure_policy::replace) {
      replacing_.emplace(driver, opts, shared);
      replacing_->tell = [this](int index, const std::string& text) { tell(index, text); };
    }
    tasks_.start(connect(shared, socket.local()));
  }

  /// Called with lines for the user while ranks run.
  std::function<void(const std::string& line)> on_print;
  /// Called when the launcher of the node with this index has gone.
  std::function<void(int index)> on_node_lost;

  /// Returns the part that replaces ranks. It exists if `options::on_failure` is `replace`.
  std::optional<replacements>& replacing() { return replacing_; }
  /// Returns the socket at which this launcher serves the ranks of this start.
  const colls::listener& store_of_ranks() const { return store_of_ranks_; }
  /// Returns whether ranks of other nodes run.
  bool has_others() const {
    return std::any_of(nodes_.begin(), nodes_.end(), [](const auto& each) {
      return each.second.runs && each.second.joined.node_rank != 0;
    });
  }
  /// Waits until the other launchers have gone.
  colls::task<> drain() { return server_.drain(engine_.now() + 2 * colls::seconds); }

 private:
  // A launcher that is connected, by its number in the store.
  struct node {
    join_message joined;
    int index = -1;     // in the last start in which it has taken part
    bool runs = false;  // its ranks have been started, and it has not reported their end
    node_outcome outcome = node_outcome::good;
    int sent = 0;
  };

  colls::task<> connect(const world& shared, colls::endpoint address) {
    try {
      colls::secret key(shared.secret);
      const auto me = colls::detail::make_launcher_hello(shared.job, shared.checksum);
      store_ = co_await colls::detail::dial_store_once(engine_, address, me, key, colls::never,
                                                       10 * colls::seconds);
    } catch (const colls::error& failed) {
      colls::log_warn("the launchers' store: %s", failed.what());
      co_return;
    }
    store_->listen_for_failures(this);
    if (replacing_) replacing_->connect(store_);
    receive_from_more(0);
  }

  // Launchers have consecutive numbers, but one may die before it sends a message.
  void receive_from_more(int seen) {
    for (; receiving_ < seen + 16; ++receiving_) tasks_.start(receive(receiving_ + 1));
  }
  colls::task<> receive(int launcher) {
    try {
      for (int message = 1;; ++message) {
        const std::string text =
            co_await store_->get(to_coordinator_key(launcher, message), colls::never - 1);
        receive_from_more(launcher);
        handle(launcher, text);
      }
    } catch (const colls::error& lost) {
      colls::log_debug("the launchers' store: %s", lost.what());
    }
  }

  void handle(int launcher, const std::string& text) {
    std::istringstream in(text);
    const std::string kind = kind_of(in);
    if (kind == "join") {
      tasks_.start(join(launcher, join_message::parse(in)));
      return;
    }
    const auto sender = nodes_.find(launcher);
    if (sender == nodes_.end()) return;
    int value = 0;
    if (kind == "over") {
      const bool is_known =
          in >> value && value >= 0 && value <= static_cast<int>(node_outcome::final);
      return ended(launcher, is_known ? static_cast<node_outcome>(value) : node_outcome::failed);
    }
    if (kind == "final") return end_job(launcher);
    if (replacing_ && sender->second.runs) {
      replacing_->handle(sender->second.index, kind, in);
      place_waiting_nodes();
    }
  }

  colls::task<> join(int launcher, std::optional<join_message> message) {
    if (nodes_.contains(launcher)) co_return;
    // The launcher of this node may have been killed just now.
    if (message && find_node(message->node_rank) != nullptr)
      co_await engine_.sleep_until(engine_.now() + 2 * colls::seconds);
    if (lost_.contains(launcher)) co_return;
    const std::string problem = message ? find_problem(*message) : "it is not understood";
    if (!problem.empty()) {
      send(launcher, "refused " + problem);
      nodes_.erase(launcher);
      co_return;
    }
    nodes_[launcher].joined = *message;
    last_arrival_ = engine_.now();
    if (starts_ > 0 && replacing_) {
      place_waiting_nodes();
    } else {
      await_nodes();
    }
  }
  // Returns why a launcher cannot take part, or an empty text.
  std::string find_problem(const join_message& message) const {
    const std::string conflict = own_.conflict(message);
    if (!conflict.empty()) return conflict;
    if (const node* const other = find_node(message.node_rank)) {
      return fmt::format("host {} is --node-rank {} already", other->joined.host,
                         message.node_rank);
    }
    if (has_ended()) return "the job has ended";
    const bool takes_more = may_restart() || replacing_;
    return starts_ == 0 || takes_more ? "" : "the job has started without it";
  }
  bool has_ended() const { return is_over_ || (replacing_ && replacing_->is_dismissed()); }
  const node* find_node(int node_rank) const {
    for (const auto& [launcher, each] : nodes_) {
      if (each.joined.node_rank == node_rank) return &each;
    }
    return nullptr;
  }

  // A launcher has gone without a goodbye.
  void rank_failed(int launcher, const colls::reported_failure&) override {
    lost_.insert(launcher);
    const auto found = nodes_.find(launcher);
    if (found == nodes_.end()) return;
    const node lost = found->second;
    nodes_.erase(found);
    if (!lost.runs) return;
    if (on_print) {
      on_print(fmt::format("colls-run: the launcher of node {} (host {}) is gone",
                           lost.joined.node_rank, lost.joined.host));
    }
    if (on_node_lost) on_node_lost(lost.index);
    if (replacing_) {
      replacing_->lost(lost.index);
      place_waiting_nodes();
    }
    worst_ = std::max(worst_, node_outcome::failed);
    decide_end();
  }

  // The ranks of a node have ended.
  void ended(int launcher, node_outcome outcome) {
    const node it = nodes_[launcher];
    nodes_[launcher].runs = false;
    nodes_[launcher].outcome = outcome;
    if (it.runs) worst_ = std::max(worst_, outcome);
    if (replacing_ && it.index >= 0) replacing_->lost(it.index);
    // Its ranks may not even have started.
    if (outcome == node_outcome::leaving && it.runs && on_node_lost) on_node_lost(it.index);
    if (outcome == node_outcome::final || it.joined.node_rank == 0) end_job(launcher, outcome);
    if (may_restart() && outcome < node_outcome::leaving) return decide_end();
    send(launcher, "end");
    nodes_.erase(launcher);
    place_waiting_nodes();
    decide_end();
  }
  // A node ends the job. Node 0 does so, too, when its ranks have ended and do not start again.
  void end_job(int launcher, node_outcome outcome = node_outcome::final) {
    if (may_restart() && outcome < node_outcome::leaving) return;
    if (std::exchange(is_over_, true)) return;
    for (const auto& [other, each] : nodes_) {
      if (other == launcher) continue;
      send(other, fmt::format("end node {} has ended the job", nodes_[launcher].joined.node_rank));
    }
  }

  bool may_restart() const { return options_.on_failure == failure_policy::restart; }
  bool is_running() const {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [](const auto& each) { return each.second.runs; });
  }

  // The ranks start again if those of all nodes have ended, and one of them has failed.
  void decide_end() {
    if (!may_restart() || is_running() || is_over_) return;
    if (worst_ == node_outcome::good || starts_ > options_.max_restarts) {
      is_over_ = true;
      const bool is_good = worst_ == node_outcome::good;
      for (const auto& [launcher, each] : nodes_) {
        // What its own ranks have done is no news for a node.
        send(launcher, each.index < 0 ? "refused the job has ended"
                       : is_good || each.outcome != node_outcome::good
                           ? "end"
                           : "end ranks of other nodes have failed");
      }
      return;
    }
    last_arrival_ = engine_.now();
    await_nodes();
  }

  // Starts the ranks once enough nodes have come.
  void await_nodes() {
    start_if_complete();
    if (!is_running() && !std::exchange(is_waiting_, true)) tasks_.start(look_again());
  }
  colls::task<> look_again() {
    const colls::time_point began = engine_.now();
    bool has_said = false;
    while (!is_running() && !is_over_) {
      co_await engine_.sleep_until(engine_.now() + 200 * colls::milliseconds);
      start_if_complete();
      if (!is_running() && !is_over_ && engine_.now() > began + 2 * colls::seconds &&
          !std::exchange(has_said, true)) {
        print_line(fmt::format("{} of {} nodes have come; waiting for more", nodes_.size(),
                               options_.nodes));
      }
    }
    is_waiting_ = false;
  }
  void start_if_complete() {
    if (is_running() || is_over_ || find_node(0) == nullptr) return;
    const auto present = static_cast<int>(nodes_.size());
    const colls::time_point waited = engine_.now() - last_arrival_;
    const bool is_enough = present >= options_.min_nodes && waited >= patience_for_more_nodes;
    if (present == options_.nodes || is_enough) return start();
    if (present < options_.min_nodes && waited >= launcher_link::patience) {
      is_over_ = true;
      tell_all(fmt::format("end only {} of {} nodes have come within {} s", present,
                           options_.min_nodes, launcher_link::patience / colls::seconds));
    }
  }

  void start() {
    std::vector<int> order;  // the launchers, in the order of their nodes
    for (const auto& [launcher, each] : nodes_) order.push_back(launcher);
    std::sort(order.begin(), order.end(), [this](int a, int b) {
      return nodes_[a].joined.node_rank < nodes_[b].joined.node_rank;
    });
    try {
      store_of_ranks_ = listen_for_ranks(options_);
    } catch (const start_error& failed) {
      is_over_ = true;
      return tell_all(fmt::format("end {}", failed.what()));
    }
    worst_ = node_outcome::good;
    start_order made;
    made.restarts = starts_++;
    made.nodes = static_cast<int>(order.size());
    made.store = address_of(store_of_ranks_, options_);
    if (replacing_) replacing_->begin(made.nodes);
    for (const int launcher : order) {
      nodes_[launcher].runs = true;
      nodes_[launcher].index = made.node++;
      nodes_[launcher].outcome = node_outcome::good;
      start_order each = made;
      each.node = nodes_[launcher].index;
      send(launcher, each.text());
    }
  }

  // Starts replacements on nodes that have come after the start, where others have been lost.
  void place_waiting_nodes() {
    if (starts_ == 0 || !replacing_ || is_over_) return;
    if (has_ended()) {
      for (auto& [launcher, each] : nodes_) {
        if (!each.runs) send(launcher, "refused the job has ended");
      }
      std::erase_if(nodes_, [](const auto& each) { return !each.second.runs; });
      return;
    }
    for (auto& [launcher, each] : nodes_) {
      if (each.runs) continue;
      const int index = free_index();
      if (index < 0) return;
      each.index = index;
      each.runs = true;
      start_order made;
      made.node = index;
      made.nodes = std::max(index + 1, replacing_->first_nodes());
      made.replacement = replacing_->come(index);
      made.store = address_of(store_of_ranks_, options_);
      send(launcher, made.text());
      if (on_print) {
        on_print(
            fmt::format("colls-run: node {} (host {}) has come: its {} processes wait for places",
                        each.joined.node_rank, each.joined.host, options_.local_size));
      }
    }
  }
  int free_index() const {
    for (int index = 0; index < options_.nodes; ++index) {
      const bool is_taken = std::any_of(nodes_.begin(), nodes_.end(), [=](const auto& each) {
        return each.second.runs && each.second.index == index;
      });
      if (!is_taken) return index;
    }
    return -1;
  }

  void tell(int index, const std::string& text) {
    for (const auto& [launcher, each] : nodes_) {
      if (each.runs && (index < 0 || each.index == index)) send(launcher, text);
    }
  }
  void tell_all(const std::string& text) {
    for (const auto& [launcher, each] : nodes_) send(launcher, text);
  }
  void send(int launcher, const std::string& text) {
    tasks_.start(set(from_coordinator_key(launcher, ++nodes_[launcher].sent), text));
  }
  colls::task<> set(std::string key, std::string value) {
    try {
      co_await store_->set(key, value);
    } catch (const colls::error& lost) {
      colls::log_debug("the launchers' store: %s", lost.what());
    }
  }

  colls::engine& engine_;
  const options& options_;
  const join_message own_;
  colls::store_server server_;
  std::optional<replacements> replacing_;
  std::shared_ptr<colls::tcp_store> store_;
  colls::listener store_of_ranks_;
  std::map<int, node> nodes_;
  std::set<int> lost_;  // the launchers that have gone without a goodbye
  int receiving_ = 0;  // the launchers from which messages are received have numbers up to this one
  int starts_ = 0;     // of the ranks
  bool is_waiting_ = false;  // for nodes: `look_again` runs
  bool is_over_ = false;
  node_outcome worst_ = node_outcome::good;  // of the nodes that have ended in this start
  colls::time_point last_arrival_ = 0;
  colls::task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace launcher
