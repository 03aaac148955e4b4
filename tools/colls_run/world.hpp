// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What the ranks are told: their place, where to meet, and the secret that they share.

#include "options.hpp"

#include <colls/bootstrap/dial.hpp>
#include <colls/bootstrap/environment_variables.hpp>

#include <unistd.h>

#include <map>

namespace launcher {

/// Something outside of the command line is wrong: one line, exit status 1.
struct start_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The secret of all nodes, as their ranks would read it; empty: none was given.
inline std::string common_secret() {
  const auto look = [](void*, const char* name) -> const char* { return std::getenv(name); };
  try {
    return colls::detail::read_secret({look, nullptr});
  } catch (const colls::error& wrong) {
    throw start_error(wrong.record().detail);
  }
}

/// Whether this launcher's own connection to the store has checksums, as its ranks' have.
inline bool common_checksum() {
  const char* const text = std::getenv("COLLS_CHECKSUM");
  try {
    return text != nullptr && colls::detail::parse_switch("COLLS_CHECKSUM", text);
  } catch (const colls::error& wrong) {
    throw start_error(wrong.record().detail);
  }
}

/// Binds what node 0 serves the others at. The port is bound before any rank hears of it.
inline colls::listener serve_at(const options& o, const std::string& host, int port) {
  std::string why;
  const auto addresses = colls::detail::addresses_of(host, &why);
  if (addresses.empty()) throw start_error(fmt::format("--master-addr {}: {}", host, why));
  colls::listener made;
  std::error_code ec;
  for (const auto& address : addresses) {
    if (o.nodes > 1 && address.is_loopback() && address.to_string() != host &&
        host != "localhost") {
      throw start_error(fmt::format(
          "--master-addr {} is {} on this node, where no other reaches it: pass its number", host,
          address.to_string()));
    }
    ec = made.listen({address, static_cast<std::uint16_t>(port)});
    if (!ec) return made;
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

/// What every rank's environment has in common with the others'.
struct world {
  std::string secret;
  std::string job;
  std::uint64_t job_hash = 0;
  std::string store;
  bool checksum = false;
};

/// Where this world's ranks meet; `served` becomes the socket for that if this is node 0.
inline world meet(const options& o, colls::listener& served) {
  world made;
  made.checksum = common_checksum();
  std::string host = o.master_addr.empty() ? "127.0.0.1" : o.master_addr;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const int port = o.nodes > 1 && o.master_port == 0 ? 29500 : o.master_port;
  if (o.nodes == 1) {
    made.secret = colls::detail::draw_secret();
    made.job = colls::detail::draw_secret().substr(0, 16);
  } else {
    made.secret = common_secret();
    made.job = o.job.empty() ? fmt::format("port {}", port) : o.job;
    if (made.secret.empty()) {
      throw usage_error(fmt::format(
          "--nnodes {} needs a secret that is equal on all nodes: set COLLS_SECRET_FILE to a file "
          "that only you can read (head -c 32 /dev/urandom | base64 > FILE; chmod 600 FILE; copy "
          "it to each node), or set COLLS_SECRET",
          o.nodes));
    }
  }
  made.job_hash = colls::detail::hash_of(made.job);
  if (o.node_rank == 0) {
    served = serve_at(o, host, port);
    const colls::endpoint at = served.local();
    made.store = "tcp://" + colls::detail::host_and_port(at.address().to_string(), at.port());
  } else {
    made.store = "tcp://" + colls::detail::host_and_port(host, port);
  }
  return made;
}

/// The whole environment of one local rank, as execve wants it.
inline std::vector<std::string> environment_of(int local_rank, const options& o, const world& w) {
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
  all.erase("COLLS_TERMINAL");
  if (::isatty(STDOUT_FILENO) != 0) set("COLLS_TERMINAL", "1");
  std::vector<std::string> made;
  for (const auto& [name, text] : all) made.push_back(text);
  return made;
}

}  // namespace launcher
