// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// world_info: what a rank knows about its world after bootstrap.

#include <colls/bootstrap/handshake.hpp>
#include <colls/bootstrap/store.hpp>
#include <colls/driver/socket.hpp>
#include <colls/os/cpu_affinity.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace colls {

class store_server;

/// The result of bootstrap: ranks, nodes, addresses, listeners, and the secret of the job.
struct world_info {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int nodes = 1;
  int ranks_on_machine = 1;              // ranks on all nodes of this machine
  std::vector<int> node_of{0};           // of every rank
  std::vector<int> machine_of{0};        // of every node
  std::vector<int> cores_of;             // of every machine: usable by its ranks; 0: unknown
  std::shared_ptr<store> kv_store;       // null in a world of one
  std::shared_ptr<store_server> server;  // on the rank that hosts the store, else null
  listener peer_listener;                // for peer connections by TCP; closed in a world of one
  listener local_listener;               // the same for ranks of this user on this node
  boost::asio::ip::address address;      // of this host, as the other ranks reach it
  secret key;
  std::uint64_t job = 0;
  config cfg;
  /// Listening addresses of all ranks. Empty in a large world, where ranks ask the store.
  std::vector<endpoint> address_book;

  /// Computes `node`, `local_rank`, `local_size` and `ranks_on_machine` from the lists.
  void compute_local_ranks();
  /// Returns the number of cores that the ranks of this machine may use together.
  int cores() const;
  /// Returns whether this machine has more ranks than cores.
  bool is_oversubscribed() const { return ranks_on_machine > cores(); }
  /// Returns the smallest share that any node has of the cores of its machine, equal on all ranks;
  /// 0 if the cores of some machine are unknown.
  int min_node_cores() const;
  /// Returns whether ranks of one node share memory; equal on all ranks.
  bool shares_memory() const { return !(cfg.transport == "tcp"); }
  /// Opens both listeners. Without a local socket it logs a warning and goes on without shared
  /// memory.
  std::error_code listen();

  /// Returns the listening address of a rank. This object must outlive the task and not be moved.
  task<endpoint> address_of(int peer) const;
  /// The connecting side of the handshake with `peer`. Returns true if `peer` accepts the
  /// connection, false if it already has another one. Throws as `prove` does.
  task<bool> authenticate(stream& connection, int peer) const;

  hello make_hello(connection_purpose purpose) const {
    hello result;
    result.purpose = purpose;
    result.job = job;
    result.rank = rank;
    result.world = size;
    result.checksum = cfg.checksum;
    return result;
  }
};

namespace detail {

inline std::string rank_key(int rank) { return "colls/rank/" + std::to_string(rank); }
inline std::string host_key(int rank) { return "colls/host/" + std::to_string(rank); }
inline std::string left_key(int rank) { return "colls/left/" + std::to_string(rank); }

/// What a rank publishes about itself in the store.
struct rank_info {
  endpoint address;  // of its peer listener
  std::string boot;
  std::string host;
  std::uint64_t network = 0;
  std::string transport = "hybrid";
  bool checksum = false;
  core_set cores;
  std::int64_t pid = 0;
  std::uint64_t nonce = 0;

  std::string text() const;
  static std::optional<rank_info> parse(const std::string& text);
  static rank_info of_this_process();
  /// Identifies the machine: ranks with equal values share cores.
  const std::string& machine() const { return boot != "-" ? boot : host; }
  /// Identifies the node: ranks with equal values can connect by local sockets.
  std::string host_id() const;
};

/// In a world of at most this many ranks every rank has all addresses, and does not depend on the
/// store after bootstrap.
inline constexpr std::size_t max_address_book_size = 1024;

/// Returns what rank 0 publishes: a line for each rank with its node, the machine of the node, the
/// cores of the machine and, if there is an address book, the address of the rank.
std::string world_info_text(const world_info& info);
/// Parses the text into `result`. Returns false if it is malformed or not of a world of
/// `result.size`.
bool parse_world_info(const std::string& text, world_info& result);

}  // namespace detail

/// Leaves the world in order: says goodbye to the store. The rank that hosts the store waits until
/// all others have said goodbye or failed, or until the deadline.
task<> leave(world_info& info, time_point deadline);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/world_info.ipp>
#endif
