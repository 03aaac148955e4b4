// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// world_info: the information that a rank has about its world after bootstrap. A node is a group of
// ranks that can connect to each other through local (AF_UNIX) sockets. A machine that runs several
// containers may have several nodes.

#include <colls/bootstrap/fabric.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/bootstrap/store.hpp>
#include <colls/driver/socket.hpp>
#include <colls/os/cpu_affinity.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace colls {

class store_server;

/// The length of the longest text that `world_info::exchange` passes.
inline constexpr std::size_t max_exchanged_size = 4096;

/// The result of bootstrap: the ranks, nodes and addresses of the world, the listeners of this
/// rank, and the secret of the job.
struct world_info {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int nodes = 1;
  int ranks_on_machine = 1;              // the number of ranks on all nodes of this machine
  std::vector<int> node_of{0};           // the node of each rank
  std::vector<int> machine_of{0};        // the machine of each node
  std::vector<int> cores_of;             // the usable cores of each machine, or 0 if unknown
  std::shared_ptr<store> kv_store;       // null in a world of one and in a subworld
  std::shared_ptr<store_server> server;  // on the rank that hosts the store, else null
  listener peer_listener;                // accepts TCP connections; not open in a world of one
  listener local_listener;               // accepts this user's ranks on this node by local sockets
  boost::asio::ip::address address;      // the address at which other ranks reach this machine
  secret key;
  std::uint64_t job = 0;
  int number = 0;                        // see `next_world`
  const char* transport_name = nullptr;  // of a transport that is not of colls, else null
  config cfg;
  /// The time by which the transport must have been made.
  time_point deadline = never;
  /// How `exchange` passes texts. Null in a world of one, and when the transport has been made.
  std::function<task<std::vector<std::string>>(std::string own)> pass_texts;
  /// Reads from the store what the other ranks tell a replacement when they admit it. Null in a
  /// world of one.
  std::function<task<std::string>()> read_admission;
  /// The listening addresses of all ranks. If a world was formed through a store and has more than
  /// `max_address_book_size` ranks, this member is empty, and the ranks look up addresses in the
  /// store.
  std::vector<endpoint> address_book;

  /// Passes a text of every rank to all ranks, and returns the texts of all ranks in the order of
  /// the ranks. All ranks must call this function equally often, one call after the other. A text
  /// has at most `max_exchanged_size` bytes, and all texts together 8 MiB. Throws if a rank fails,
  /// or at `deadline`. A transport calls this function before it is constructed, for example to
  /// publish an address.
  task<std::vector<std::string>> exchange(std::string own) const;

  /// Computes `node`, `local_rank`, `local_size` and `ranks_on_machine` from `node_of` and
  /// `machine_of`.
  void compute_local_ranks();
  /// Returns the number of cores that the ranks on this machine may use together.
  int cores() const;
  /// Returns whether this machine has more ranks than cores.
  bool is_oversubscribed() const { return ranks_on_machine > cores(); }
  /// Returns the number of cores of the node that has the fewest cores. If a machine has several
  /// nodes, this function divides the machine's cores among these nodes in proportion to their
  /// numbers of ranks. Returns 0 if the number of cores is unknown for at least one machine. The
  /// result is the same on all ranks.
  int min_node_cores() const;
  /// Returns whether ranks on the same node communicate through shared memory. The result is the
  /// same on all ranks.
  bool shares_memory() const { return detail::uses_shared_memory(cfg.transport.str()); }
  /// Opens the peer listener and, if ranks share memory, the local listener. Returns the error if
  /// the peer listener cannot be opened. If only the local listener cannot be opened, logs a
  /// warning. This rank then shares no memory with other ranks.
  std::error_code listen();

  /// Returns the listening address of the rank `peer`. This object must outlive the task, and must
  /// not be moved before the task completes.
  task<endpoint> address_of(int peer) const;
  /// Performs the connecting side of the handshake with `peer`. Returns true if `peer` accepts the
  /// connection, and false if `peer` already has another connection to this rank. Throws the
  /// errors of `prove` and `await_verdict`.
  task<bool> authenticate(stream& connection, int peer) const;

  hello make_hello(connection_purpose purpose) const {
    hello result;
    result.purpose = purpose;
    result.job = job;
    result.generation = static_cast<std::uint32_t>(cfg.generation);
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

/// The length of the longest name of a transport.
inline constexpr std::size_t max_transport_name = 31;

/// Returns whether a transport that is not one of colls may have the name `name`.
constexpr bool is_transport_name(std::string_view name) {
  for (const char each : name) {
    if (each <= ' ' || each > '~') return false;
  }
  return !name.empty() && name.size() <= max_transport_name && name != "hybrid" && name != "tcp" &&
         name != "shm" && !uses_ucx(name);
}

/// Throws `protocol_error` if the text that the rank `rank` has passed is too long for an exchange.
inline void check_passed_text(const std::string& text, int rank) {
  if (text.size() > max_exchanged_size)
    raise(errc::protocol_error, "rank %d has passed too long a text", rank);
}

/// The information that a rank publishes about itself in the store.
struct rank_info {
  endpoint address;  // the address of the peer listener
  std::string boot;
  std::string host;
  std::uint64_t network = 0;
  // The setting. The name of a transport that is not of colls and a slash come first, a hyphen and
  // the version of UCX follow.
  std::string transport = "hybrid";
  bool checksum = false;
  core_set cores;
  std::int64_t pid = 0;
  std::uint64_t nonce = 0;

  std::string text() const;
  static std::optional<rank_info> parse(const std::string& text);
  static rank_info of_this_process();
  /// Returns an identifier of the machine. Ranks with equal identifiers run on the same machine.
  const std::string& machine() const { return boot != "-" ? boot : host; }
  /// Returns an identifier of the node. Ranks with equal identifiers can connect to each other
  /// through local (AF_UNIX) sockets.
  std::string host_id() const;
};

/// The maximum size of a world in which every rank receives the addresses of all ranks during
/// bootstrap. After bootstrap, the ranks of such a world do not depend on the store.
inline constexpr std::size_t max_address_book_size = 1024;

/// Returns the text with which rank 0 describes the world to the other ranks. The text has one line
/// per rank. A line contains the rank's node, the node's machine, the machine's number of cores
/// and, if there is an address book, the rank's address.
std::string world_info_text(const world_info& info);
/// Parses `text` into `result`. Returns false if the text is malformed or does not describe
/// `result.size` ranks.
bool parse_world_info(const std::string& text, world_info& result);

}  // namespace detail

/// Tells the other ranks, by the store, that this rank could not make its transport, and why. Then
/// leaves the world.
task<> abandon(world_info& info, failure reason, time_point deadline);

/// Tells the store that this rank leaves the world. If this rank hosts the store, also waits until
/// every other rank has left or failed, or until `deadline` has passed.
task<> leave(world_info& info, time_point deadline);
/// Sets whether the ranks have agreed to go on without `rank`. `leave` then does not wait for it.
void exclude(world_info& info, int rank, bool is_excluded);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/world_info.ipp>
#endif
