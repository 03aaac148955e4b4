// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The rendezvous of the launchers of a job with several nodes. Before each start of the ranks, node
// 0 decides which nodes take part.

#include "options.hpp"
#include "report.hpp"
#include "world.hpp"

#include <colls/bootstrap/dial.hpp>
#include <colls/bootstrap/environment_variables.hpp>

#include <functional>
#include <optional>
#include <sstream>

namespace launcher {

/// What all launchers know after a rendezvous.
struct start_decision {
  int restarts = 0;        // how often the ranks have been started before
  std::vector<int> nodes;  // the nodes that take part, by the numbers that --node-rank gave them

  std::string text() const { return fmt::format("{} {}", restarts, fmt::join(nodes, " ")); }

  static std::optional<start_decision> parse(const std::string& text) {
    std::istringstream in(text);
    start_decision result;
    if (!(in >> result.restarts) || result.restarts < 0) return std::nullopt;
    for (int node = -1; in >> node;) {
      if (node < 0 || (!result.nodes.empty() && node <= result.nodes.back())) return std::nullopt;
      result.nodes.push_back(node);
    }
    if (!in.eof() || result.nodes.empty() || result.nodes.front() != 0) return std::nullopt;
    return result;
  }
};

/// Node 0 serves a store for the launchers at the address at which it serves the ranks later. The
/// other launchers join that store as ranks whose numbers are those of their nodes. A launcher that
/// comes while ranks run is refused by their store, and tries again until the next rendezvous.
class rendezvous : colls::failure_listener {
 public:
  /// `patience` is how long a launcher waits for the others, or for node 0. With enough nodes, node
  /// 0 starts once no other one has come for `settling_time`.
  rendezvous(colls::engine& driver, const options& opts, const world& w, colls::time_point patience,
             colls::time_point settling_time = 30 * colls::seconds)
      : engine_(driver),
        options_(opts),
        world_(w),
        patience_(patience),
        settling_time_(settling_time) {}

  /// Prints a line for the user.
  std::function<void(const std::string& line)> print;

  /// Node 0: waits until all nodes are here, or until enough are here and no other one has come for
  /// 30 s. Throws start_error if fewer than the least number have come in time.
  colls::task<start_decision> host(const colls::listener& listener, int restarts) {
    const colls::time_point began = engine_.now();
    bool has_warned = false;
    for (;;) {
      colls::store_server server(engine_, make_hello(-1), colls::secret(world_.secret));
      const int copy = ::fcntl(listener.descriptor(), F_DUPFD_CLOEXEC, 3);
      const std::error_code ec = copy < 0 ? colls::detail::last_error() : server.adopt(copy);
      if (ec) throw start_error(fmt::format("cannot serve the other nodes: {}", ec.message()));
      colls::secret key(world_.secret);
      const colls::endpoint address = listener.local();
      const auto store = co_await colls::detail::dial_store_once(
          engine_, address, make_hello(-1), key, engine_.now() + 10 * colls::seconds,
          10 * colls::seconds);
      has_lost_node_ = false;
      store->listen_for_failures(this);
      start_decision decision{restarts, {0}};
      colls::time_point last_change = engine_.now();
      while (!has_lost_node_) {
        std::vector<int> here{0};
        for (int node = 1; node < options_.nodes; ++node) {
          if (server.has_joined(node)) here.push_back(node);
        }
        const colls::time_point now = engine_.now();
        if (here.size() > decision.nodes.size()) last_change = now;
        decision.nodes = std::move(here);
        const int count = static_cast<int>(decision.nodes.size());
        const bool is_enough = count >= options_.min_nodes;
        if (count == options_.nodes || (is_enough && now > last_change + settling_time_)) break;
        if (!is_enough && now > began + patience_) {
          throw start_error(fmt::format("{} after {} s: every node needs a colls-run of its own",
                                        missing(decision.nodes), patience_ / colls::seconds));
        }
        if (!is_enough && !has_warned && now > began + settling_time_) {
          has_warned = true;
          print(fmt::format("{} after 30 s, still waiting", missing(decision.nodes)));
        }
        co_await engine_.sleep_until(now + 10 * colls::milliseconds);
      }
      if (has_lost_node_) continue;
      const colls::time_point soon = engine_.now() + 10 * colls::seconds;
      co_await store->set(decision_key, decision.text(), soon);
      // The others leave when they have read it.
      co_await server.drain(soon);
      if (!has_lost_node_) co_return decision;
    }
  }

  /// Another node: waits for the decision of node 0. Throws start_error if node 0 cannot be reached.
  colls::task<start_decision> attend() {
    const auto address = colls::detail::parse_address(world_.store);
    colls::time_point last_contact = engine_.now();
    int refusals = 0;
    bool has_said = false;
    std::string reason = "no answer";
    for (;;) {
      bool is_connected = false;
      for (const auto& host : colls::detail::resolve_host(address.host)) {
        colls::secret key(world_.secret);
        bool connected = false;
        try {
          const colls::endpoint server(host, static_cast<std::uint16_t>(address.port));
          const auto store = co_await colls::detail::dial_store_once(
              engine_, server, make_hello(options_.node_rank), key,
              engine_.now() + 10 * colls::seconds, 10 * colls::seconds, &connected);
          refusals = 0;
          last_contact = engine_.now();
          const std::string text = co_await store->get(decision_key, colls::never - 1);
          co_await store->leave(engine_.now() + colls::seconds);
          const auto decision = start_decision::parse(text);
          if (!decision) throw start_error("node 0 has sent no decision: is it another version?");
          co_return *decision;
        } catch (const colls::error& failed) {
          colls::log_debug("the rendezvous: %s", failed.what());
          reason = failed.record().detail;
          const colls::errc code = failed.record().code;
          if (code == colls::errc::join_failed || code == colls::errc::rank_taken) {
            throw start_error(fmt::format("node 0 refuses this node: {}", reason));
          }
          const bool is_refused = code == colls::errc::auth_failed ||
                                  code == colls::errc::version_mismatch ||
                                  code == colls::errc::crypto_failed;
          refusals = is_refused ? refusals + 1 : 0;
          if (refusals >= 3) throw start_error(reason);
        }
        is_connected |= connected;
      }
      const colls::time_point now = engine_.now();
      if (is_connected) {
        last_contact = now;
        if (now > began_ + 2 * colls::seconds && !std::exchange(has_said, true)) {
          print("the job runs without this node, which waits for its next start");
        }
      }
      const colls::time_point limit = has_said ? settling_time_ : patience_;
      if (now > last_contact + limit) {
        throw start_error(fmt::format("node 0 cannot be reached at {} port {} for {} s: {}",
                                      address.host, address.port, limit / colls::seconds, reason));
      }
      co_await engine_.sleep_until(now + 100 * colls::milliseconds);
    }
  }

 private:
  static constexpr const char* decision_key = "colls-run/start";

  colls::hello make_hello(int node) const {
    colls::hello me;
    me.purpose = colls::connection_purpose::store;
    me.job = colls::detail::hash_of(world_.job + "/launchers");
    me.rank = node;
    me.world = options_.nodes;
    me.checksum = world_.checksum;
    return me;
  }

  std::string missing(const std::vector<int>& here) const {
    std::vector<int> absent;
    for (int node = 1; node < options_.nodes; ++node) {
      if (std::find(here.begin(), here.end(), node) == here.end()) absent.push_back(node);
    }
    return fmt::format("{} of {} nodes {} here, missing: node {}", here.size(), options_.nodes,
                       here.size() == 1 ? "is" : "are", rank_list(absent));
  }

  void rank_failed(int, const colls::reported_failure&) override { has_lost_node_ = true; }

  colls::engine& engine_;
  const options& options_;
  const world& world_;
  colls::time_point patience_;
  colls::time_point settling_time_;
  colls::time_point began_ = engine_.now();
  bool has_lost_node_ = false;
};

}  // namespace launcher
