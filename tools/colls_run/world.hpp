// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Makes the environment of the ranks: their rank and place, the address of the store, the secret.

#include "options.hpp"

#include <colls/bootstrap/dial.hpp>
#include <colls/bootstrap/environment_variables.hpp>

#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <istream>
#include <map>

namespace launcher {

/// An error outside of the command line: printed in one line, exit status 1.
struct start_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The secret of all nodes, read as a rank would read it; empty: none was given.
inline std::string common_secret() {
  const auto look = [](void*, const char* name) -> const char* { return std::getenv(name); };
  try {
    return colls::detail::read_secret({look, nullptr});
  } catch (const colls::error& wrong) {
    throw start_error(wrong.record().detail);
  }
}

/// Returns whether this launcher's own connection to the store has checksums, as those of its
/// ranks.
inline bool common_checksum() {
  const char* const text = std::getenv("COLLS_CHECKSUM");
  try {
    return text != nullptr && colls::detail::parse_switch("COLLS_CHECKSUM", text);
  } catch (const colls::error& wrong) {
    throw start_error(wrong.record().detail);
  }
}

/// Returns why a store refuses a launcher, with a hint if it belongs to another job.
inline std::string refusal_text(const colls::failure& refused) {
  const std::string detail = refused.detail;
  const bool is_other = detail.find("another job") != detail.npos;
  return detail + (is_other ? " Or do --on-failure or --nnodes differ there?" : "");
}

/// Binds a listener at which node 0 serves a store, before anyone is told its port.
inline colls::listener listen_at(const options& o, const std::string& host, int port) {
  std::string reason;
  const auto addresses = colls::detail::resolve_host(host, &reason);
  if (addresses.empty()) throw start_error(fmt::format("--master-addr {}: {}", host, reason));
  colls::listener listener;
  std::error_code ec;
  for (const auto& address : addresses) {
    if (o.nodes > 1 && address.is_loopback() && address.to_string() != host &&
        host != "localhost") {
      throw start_error(fmt::format(
          "--master-addr {} is {} on this node, which no other node can reach: pass a numeric "
          "address",
          host, address.to_string()));
    }
    ec = listener.listen({address, static_cast<std::uint16_t>(port)});
    if (!ec) return listener;
  }
  if (ec == std::errc::address_in_use) {
    throw start_error(
        fmt::format("{} port {} is in use: choose another --master-port", host, port));
  }
  if (ec == std::errc::address_not_available) {
    throw start_error(fmt::format(
        "{} is no address of this node: --master-addr is that of node 0, and node 0 runs there",
        host));
  }
  throw start_error(fmt::format("cannot listen at {} port {}: {}", host, port, ec.message()));
}

/// Returns the address of node 0, without brackets.
inline std::string master_host(const options& o) {
  std::string host = o.master_addr.empty() ? "127.0.0.1" : o.master_addr;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return host;
}

/// Binds a listener for the ranks of one world. Its address for them has the name of node 0 that
/// the user has given, because other nodes may know node 0 by another number than node 0 itself.
inline colls::listener listen_for_ranks(const options& o) {
  return listen_at(o, master_host(o), 0);
}
inline std::string address_of(const colls::listener& listener, const options& o) {
  return "tcp://" + colls::detail::host_and_port(master_host(o), listener.local().port());
}

/// The settings that are equal on all ranks.
struct world {
  std::string secret;
  std::string job;
  std::string store;
  bool checksum = false;
  int restarts = 0;       // how often the ranks have been started again
  std::string launchers;  // the address of the store of the launchers, or empty if there is none
  int number = 0;         // of this world, see `colls::next_world`
  int generation = 0;     // how often replacements have come into the world
  /// For each rank the process that it is: the rank that it, or the process that it has replaced,
  /// had at the start. Empty if all ranks are those of the start.
  std::vector<int> members;

  /// Returns the name of the job as the ranks of this start know it.
  std::string started_job() const { return colls::detail::restarted_job(job, restarts); }
  int size(const options& o) const {
    return members.empty() ? o.size() : static_cast<int>(members.size());
  }
  int process_of(int rank) const {
    return members.empty() || rank < 0 ? rank : members[static_cast<std::size_t>(rank)];
  }
  /// Returns the message that tells the launchers of this world.
  std::string text() const {
    return fmt::format("world {} {} {} {}", number, generation, store, fmt::join(members, " "));
  }
  /// Changes this world to that of a message. Returns false if the message is malformed.
  bool read(std::istream& in, int processes) {
    members.clear();
    if (!(in >> number >> generation >> store)) return false;
    try {
      if (colls::detail::parse_address(store).kind != colls::detail::store_address::kind::tcp)
        return false;
    } catch (const colls::error&) {
      return false;
    }
    for (int each = 0; in >> each;) {
      if (each < 0 || each >= processes) return false;
      members.push_back(each);
    }
    return in.eof() && !members.empty();
  }
  /// Returns the rank of a process, or -1 if it is none.
  int rank_of(int process) const {
    if (members.empty()) return process;
    const auto found = std::find(members.begin(), members.end(), process);
    return found == members.end() ? -1 : static_cast<int>(found - members.begin());
  }
};

/// Determines the settings of all ranks. On node 0 `listener` becomes the socket of the store,
/// which is that of the launchers if there is a coordinator.
inline world make_world(const options& o, colls::listener& listener) {
  world result;
  result.checksum = common_checksum();
  const std::string host = master_host(o);
  const int port = o.nodes > 1 && o.master_port == 0 ? 29500 : o.master_port;
  if (o.nodes == 1) {
    result.secret = colls::detail::draw_secret();
    result.job = colls::detail::draw_secret().substr(0, 16);
  } else {
    result.secret = common_secret();
    result.job = o.job.empty() ? fmt::format("port {}", port) : o.job;
    if (result.secret.empty()) {
      throw usage_error(fmt::format(
          "--nnodes {} needs a secret that is equal on all nodes: set COLLS_SECRET_FILE to a file "
          "that only you can read (head -c 32 /dev/urandom | base64 > FILE; chmod 600 FILE; copy "
          "it to each node), or set COLLS_SECRET",
          o.nodes));
    }
  }
  if (o.node_rank == 0) {
    listener = listen_at(o, host, port);
    const colls::endpoint local = listener.local();
    result.store =
        "tcp://" + colls::detail::host_and_port(local.address().to_string(), local.port());
  } else {
    result.store = "tcp://" + colls::detail::host_and_port(host, port);
  }
  if (o.is_coordinated()) result.launchers = std::exchange(result.store, {});
  return result;
}

/// The complete environment of one local rank, as execve expects it. `replacement` is its number as
/// a replacement, or 0.
inline std::vector<std::string> environment_of(int local_rank, int replacement, const options& o,
                                               const world& w) {
  std::map<std::string, std::string> all;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    all.emplace(text.substr(0, text.find('=')), text);
  }
  const auto set = [&all](const std::string& name, const std::string& value) {
    all[name] = name + "=" + value;
  };
  if (o.local_size > 1 && all.count("OMP_NUM_THREADS") == 0) set("OMP_NUM_THREADS", "1");
  for (const std::string& variable : o.exported) {
    const auto equals = variable.find('=');
    if (equals != variable.npos) set(variable.substr(0, equals), variable.substr(equals + 1));
  }
  all.erase("COLLS_SECRET_FILE");
  set("COLLS_RANK", std::to_string(o.first_rank() + local_rank));
  set("COLLS_WORLD_SIZE", std::to_string(o.size()));
  set("COLLS_LOCAL_RANK", std::to_string(local_rank));
  set("COLLS_LOCAL_WORLD_SIZE", std::to_string(o.local_size));
  set("COLLS_NODE_RANK", std::to_string(o.node_rank));
  set("COLLS_NNODES", std::to_string(o.nodes));
  set("COLLS_STORE", w.store);
  set("COLLS_JOB", w.job);
  set("COLLS_SECRET", w.secret);
  for (const char* const name :
       {"COLLS_RESTART_COUNT", "COLLS_MAX_RESTARTS", "COLLS_LAUNCHER", "COLLS_REPLACEMENT"}) {
    all.erase(name);
  }
  if (o.on_failure == failure_policy::replace) set("COLLS_LAUNCHER", w.launchers);
  if (replacement > 0) set("COLLS_REPLACEMENT", std::to_string(replacement));
  if (o.restarts()) {
    set("COLLS_RESTART_COUNT", std::to_string(w.restarts));
    set("COLLS_MAX_RESTARTS", std::to_string(o.max_restarts));
  }
  all.erase("COLLS_TERMINAL");
  if (::isatty(STDOUT_FILENO) != 0) set("COLLS_TERMINAL", "1");
  std::vector<std::string> entries;
  for (const auto& [name, text] : all) entries.push_back(text);
  return entries;
}

}  // namespace launcher
