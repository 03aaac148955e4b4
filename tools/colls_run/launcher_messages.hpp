// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The messages between the launchers of a job and the coordinator on node 0: one line of text each,
// which begins with its kind.

#include "options.hpp"
#include "report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <istream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace launcher {

/// The first message of a launcher: who it is, and the options that are equal on all nodes.
struct join_message {
  int node_rank = 0;
  int max_nodes = 1;
  int min_nodes = 1;
  int local_size = 0;
  int policy = 0;
  int max_restarts = 0;
  std::string host;

  static join_message of(const options& o) {
    return {o.node_rank,    o.nodes,    o.min_nodes, o.local_size, static_cast<int>(o.on_failure),
            o.max_restarts, host_name()};
  }
  std::string text() const {
    return fmt::format("join {} {} {} {} {} {} {}", node_rank, max_nodes, min_nodes, local_size,
                       policy, max_restarts, host);
  }
  static std::optional<join_message> parse(std::istream& in) {
    join_message it;
    if (!(in >> it.node_rank >> it.max_nodes >> it.min_nodes >> it.local_size >> it.policy >>
          it.max_restarts >> it.host) ||
        it.node_rank < 0 || it.node_rank >= it.max_nodes) {
      return std::nullopt;
    }
    return it;
  }
  /// Returns why a launcher with the options of `other` cannot take part, or an empty text.
  std::string conflict(const join_message& other) const {
    const auto differs = [](const char* option, auto here, auto there) {
      return here == there ? std::string()
                           : fmt::format("{} is {} there and {} on node 0", option, there, here);
    };
    const auto nodes = [](const join_message& it) {
      return it.min_nodes == it.max_nodes ? std::to_string(it.max_nodes)
                                          : fmt::format("{}:{}", it.min_nodes, it.max_nodes);
    };
    const auto policy_name = [](int number) {
      return std::string(number >= 0 && number < static_cast<int>(std::size(policy_names))
                             ? policy_names[number]
                             : "unknown");
    };
    for (const std::string& found :
         {differs("--nnodes", nodes(*this), nodes(other)),
          differs("--nproc-per-node", local_size, other.local_size),
          differs("--on-failure", policy_name(policy), policy_name(other.policy)),
          differs("--max-restarts", max_restarts, other.max_restarts)}) {
      if (!found.empty()) return found;
    }
    return "";
  }
};

/// The order to start the ranks of a node.
struct start_order {
  int restarts = 0;     // how often all ranks have been started again
  int node = 0;         // the node's index in this start
  int nodes = 1;        // in this start
  int replacement = 0;  // the number of the first process as a replacement, or 0 if it is none
  std::string store;    // the address of the ranks' store

  std::string text() const {
    return fmt::format("start {} {} {} {} {}", restarts, node, nodes, replacement, store);
  }
  static std::optional<start_order> parse(std::istream& in) {
    start_order it;
    if (!(in >> it.restarts >> it.node >> it.nodes >> it.replacement >> it.store) ||
        it.restarts < 0 || it.node < 0 || it.node > 65535 || it.nodes < 1 || it.nodes > 65536 ||
        it.replacement < 0) {
      return std::nullopt;
    }
    return it;
  }
};

/// How the ranks of a node have ended.
enum class node_outcome {
  good,
  failed,   // another start may help
  leaving,  // the user has ended this node, but not the job
  final,    // the job has to end
};

/// Reads the kind of a message.
inline std::string kind_of(std::istream& in) {
  std::string kind;
  in >> kind;
  return kind;
}

/// Returns the rest of a message, without the space before it.
inline std::string rest_of(std::istream& in) {
  std::string rest;
  std::getline(in >> std::ws, rest);
  return rest;
}

}  // namespace launcher
