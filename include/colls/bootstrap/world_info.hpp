// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a rank knows of its world once all ranks have met.

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

/// What a rank knows once all ranks have come: who is where, and how to prove to be one of them.
struct membership {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int node = 0;
  int nodes = 1;
  int beside = 1;                        // ranks of this machine: of all its nodes
  std::vector<int> node_of{0};           // of every rank
  std::vector<int> machine_of{0};        // of every node
  std::vector<int> cores_of;             // of every machine: how many its ranks may use together
  std::shared_ptr<store> rendezvous;     // null in a world of one
  std::shared_ptr<store_server> server;  // on the rank that serves the store, else null
  listener link_listener;                // where the other ranks dial; closed in a world of one
  listener local_listener;               // the same for this user's ranks on this host
  boost::asio::ip::address address;      // of this host, as the other ranks reach it
  secret key;
  std::uint64_t job = 0;
  config cfg;
  std::vector<endpoint> book;  // where every rank listens; empty in a large world: the store says

  /// Finds out where this rank is, and who is beside it, by the lists.
  void find_own_place();
  /// How many cores the ranks of this machine may use together.
  int cores() const;
  /// Whether they outnumber these.
  bool shares_cores() const { return beside > cores(); }
  /// A host's part of its machine's cores, of the host that has the least, and equal on all ranks;
  /// 0: some system does not say.
  int fewest_cores() const;
  /// Whether ranks of one host do; equal on all ranks.
  bool shares_memory() const { return !(cfg.transport == "tcp"); }
  /// Opens both listeners.
  std::error_code listen();

  /// Where a rank listens. The membership must stay where it is until the task has ended.
  task<endpoint> address_of(int peer) const;
  /// Dialling side of a link to `peer`: true if the connection is to be used, false if `peer` has
  /// another one. Throws as `prove` does.
  task<bool> introduce(stream& link, int peer) const;

  hello greeting(purpose what) const {
    hello mine;
    mine.what = what;
    mine.job = job;
    mine.rank = rank;
    mine.world = size;
    mine.checksum = cfg.checksum;
    return mine;
  }
};

namespace detail {

inline std::string rank_key(int rank) { return "colls/rank/" + std::to_string(rank); }
inline std::string host_key(int rank) { return "colls/host/" + std::to_string(rank); }
inline std::string left_key(int rank) { return "colls/left/" + std::to_string(rank); }

/// What a rank publishes of itself.
struct rank_card {
  endpoint where;
  std::string boot;
  std::string host;
  std::uint64_t network = 0;
  std::string transport = "hybrid";
  bool checksum = false;
  core_set cores;
  std::int64_t pid = 0;
  std::uint64_t nonce = 0;

  std::string text() const;
  static std::optional<rank_card> parse(const std::string& text);
  static rank_card of_this_process();
  /// Ranks with equal ones share cores.
  const std::string& machine() const { return boot != "-" ? boot : host; }
  /// Ranks with equal ones are of one host: local sockets reach those, and no others.
  std::string place() const;
};

/// In a world of at most so many ranks each knows where all others listen, whoever served the store
/// and is gone.
inline constexpr std::size_t longest_book = 1024;

/// What rank 0 tells all: a line for each rank with its node, that one's machine and its cores and,
/// from the book, where it listens.
std::string membership_text(const membership& all);
/// False: no rank 0 of a world of `into.size` would say that.
bool read_membership(const std::string& text, membership& into);

}  // namespace detail

/// The orderly end: says goodbye to the store; the rank that serves it stays until all others have
/// said goodbye or died, or the deadline is past.
task<> leave(membership& all, time_point deadline);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/world_info.ipp>
#endif
