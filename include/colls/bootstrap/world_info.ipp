// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of world_info.hpp: formats and parses the texts in which ranks publish their
// addresses and machines.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/store_server.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/driver/local_socket.hpp>
#include <colls/os/procfs.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>

namespace colls::detail {

COLLS_ONCE std::string rank_info::text() const {
  char line[1024];
  char usable[core_set::max_digits + 1];
  cores.write(usable);
  std::snprintf(line, sizeof line, "%s %d %s %s %llu %s %d %s %lld %llx",
                address.address().to_string().c_str(), address.port(), boot.c_str(), host.c_str(),
                static_cast<unsigned long long>(network), transport.c_str(), checksum ? 1 : 0,
                usable, static_cast<long long>(pid), static_cast<unsigned long long>(nonce));
  return line;
}

COLLS_ONCE std::optional<rank_info> rank_info::parse(const std::string& text) {
  char address[64];
  char boot[64];
  char host[256];
  char transport[max_transport_name + sizeof "/ucx_only-1234.1234.1234"];
  static_assert(sizeof transport == 56);
  char usable[core_set::max_digits + 1];
  static_assert(sizeof usable == 257);
  int port = 0;
  int checksum = 0;
  unsigned long long network = 0;
  rank_info info;
  boost::system::error_code invalid;
  if (std::sscanf(text.c_str(), "%63s %d %63s %255s %llu %55s %d %256s", address, &port, boot, host,
                  &network, transport, &checksum, usable) != 8 ||
      !core_set::read(usable, info.cores)) {
    return std::nullopt;
  }
  const auto numeric = boost::asio::ip::make_address(address, invalid);
  if (invalid || port <= 0 || port > 65535) return std::nullopt;
  info.address = {numeric, static_cast<std::uint16_t>(port)};
  info.boot = boot;
  info.host = host;
  info.network = network;
  info.transport = transport;
  info.checksum = checksum != 0;
  return info;
}

COLLS_ONCE rank_info rank_info::of_this_process() {
  rank_info result;
  result.boot = boot_id();
  if (result.boot.empty()) result.boot = "-";
  char host[256] = {};
  const bool is_named = ::gethostname(host, sizeof host - 1) == 0 && host[0] != 0;
  result.host = is_named ? host : "-";
  result.network = network_namespace();
  result.cores = core_set::of_this_thread();
  result.pid = ::getpid();
  fill_random(&result.nonce, sizeof result.nonce);
  return result;
}

COLLS_ONCE std::string rank_info::host_id() const {
  return machine() + " " + (network != 0 ? std::to_string(network) : host);
}

COLLS_ONCE std::string world_info_text(const world_info& info) {
  std::string text;
  for (std::size_t r = 0; r < info.node_of.size(); ++r) {
    const int node = info.node_of[r];
    const int machine = info.machine_of[static_cast<std::size_t>(node)];
    text += std::to_string(node) + ' ' + std::to_string(machine) + ' ' +
            std::to_string(info.cores_of[static_cast<std::size_t>(machine)]);
    if (!info.address_book.empty()) {
      text += ' ' + info.address_book[r].address().to_string() + ' ' +
              std::to_string(info.address_book[r].port());
    }
    text += '\n';
  }
  return text;
}

COLLS_ONCE bool parse_world_info(const std::string& text, world_info& result) {
  result.node_of.clear();
  result.machine_of.clear();
  result.cores_of.clear();
  result.address_book.clear();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    int node = -1;
    int machine = -1;
    int cores = -1;
    char address[64] = {};
    unsigned port = 0;
    const int fields =
        std::sscanf(line.c_str(), "%d %d %d %63s %u", &node, &machine, &cores, address, &port);
    boost::system::error_code invalid;
    const auto numeric = boost::asio::ip::make_address(address, invalid);
    const bool has_address = fields == 5 && !invalid && port > 0 && port <= 65535;
    // The text numbers nodes and machines in the order in which they first occur. Therefore a new
    // node has the number `nodes`, and a new machine has the number `machines`.
    const auto nodes = static_cast<int>(result.machine_of.size());
    const auto machines = static_cast<int>(result.cores_of.size());
    if (node < 0 || node > nodes || machine < 0 || machine > machines || cores < 0 ||
        (fields != 3 && !has_address)) {
      return false;
    }
    if (machine == machines) result.cores_of.push_back(cores);
    if (node == nodes) result.machine_of.push_back(machine);
    if (result.machine_of[static_cast<std::size_t>(node)] != machine) return false;
    result.node_of.push_back(node);
    if (has_address) result.address_book.emplace_back(numeric, static_cast<std::uint16_t>(port));
  }
  const auto size = static_cast<std::size_t>(result.size);
  return result.node_of.size() == size &&
         (result.address_book.empty() || result.address_book.size() == size);
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE void world_info::compute_local_ranks() {
  const auto machine = [this](int n) { return machine_of[static_cast<std::size_t>(n)]; };
  node = node_of[static_cast<std::size_t>(rank)];
  local_rank = 0;
  local_size = 0;
  ranks_on_machine = 0;
  for (int r = 0; r < size; ++r) {
    const int its_node = node_of[static_cast<std::size_t>(r)];
    if (its_node == node) {
      if (r < rank) ++local_rank;
      ++local_size;
    }
    if (machine(its_node) == machine(node)) ++ranks_on_machine;
  }
}

COLLS_ONCE int world_info::cores() const {
  const auto machine = static_cast<std::size_t>(machine_of[static_cast<std::size_t>(node)]);
  return machine < cores_of.size() && cores_of[machine] > 0 ? cores_of[machine] : detail::cores();
}

COLLS_ONCE int world_info::min_node_cores() const {
  if (cores_of.empty()) return 0;
  std::vector<int> on_node(machine_of.size());
  std::vector<int> on_machine(cores_of.size());
  for (const int its_node : node_of) {
    ++on_node[static_cast<std::size_t>(its_node)];
    ++on_machine[static_cast<std::size_t>(machine_of[static_cast<std::size_t>(its_node)])];
  }
  int least = std::numeric_limits<int>::max();
  for (std::size_t n = 0; n < on_node.size(); ++n) {
    if (on_node[n] == 0) continue;  // the node has no rank of this world
    const auto machine = static_cast<std::size_t>(machine_of[n]);
    if (cores_of[machine] == 0) return 0;
    // Nodes on one machine share its cores in proportion to their numbers of ranks. A node's share
    // is rounded down. Therefore the share is less than the node's number of ranks if and only if
    // the machine has more ranks than cores.
    const auto share = std::int64_t{cores_of[machine]} * on_node[n] / on_machine[machine];
    least = std::min(least, std::max(static_cast<int>(share), 1));
  }
  return least;
}

COLLS_ONCE std::error_code world_info::listen() {
  if (const std::error_code ec = peer_listener.listen({address, 0})) return ec;
  if (shares_memory()) {
    if (const std::error_code ec = shm::listen_local(peer_listener.local(), local_listener)) {
      log_warn("rank %d: no local socket, so no shared memory: %s", rank, ec.message().c_str());
    }
  }
  return {};
}

COLLS_ONCE task<endpoint> world_info::address_of(int peer) const {
  if (!address_book.empty()) co_return address_book[static_cast<std::size_t>(peer)];
  const std::string text = co_await kv_store->get(detail::rank_key(peer));
  const auto info = detail::rank_info::parse(text);
  if (!info) detail::raise(errc::protocol_error, "rank %d published no address", peer);
  co_return info->address;
}

COLLS_ONCE task<bool> world_info::authenticate(stream& connection, int peer) const {
  const hello local = make_hello(connection_purpose::peer);
  const hello remote = co_await prove(connection, local, key);
  if (remote.rank != peer) {
    detail::raise(errc::protocol_error, "rank %d listens where rank %d was expected", remote.rank,
                  peer);
  }
  const verdict answer = co_await await_verdict(connection, local);
  co_return answer == verdict::accepted;
}

COLLS_ONCE task<std::vector<std::string>> world_info::exchange(std::string own) const {
  if (own.size() > max_exchanged_size) {
    detail::raise(errc::invalid_argument,
                  "a text of %zu bytes is too long for an exchange: at most %zu", own.size(),
                  max_exchanged_size);
  }
  std::vector<std::string> all;
  if (size == 1) {
    all.push_back(std::move(own));
    co_return all;
  }
  if (!pass_texts)
    detail::raise(errc::invalid_argument, "texts are exchanged only while a transport is made");
  auto passing = pass_texts(std::move(own));
  all = co_await passing;
  for (std::size_t r = 0; r < all.size(); ++r)
    detail::check_passed_text(all[r], static_cast<int>(r));
  co_return all;
}

COLLS_ONCE task<> abandon(world_info& info, failure reason, time_point deadline) {
  if (info.kv_store == nullptr) co_return;
  // A failure that names a dead rank would be taken for the death of that rank.
  if (reason.code == errc::peer_failed) reason.code = errc::join_failed;
  reason.culprit = -1;
  reason.observer = info.rank;
  try {
    co_await info.kv_store->report_failure(reason, deadline);
  } catch (const error& thrown) {
    log_debug("the store is gone already: %s", thrown.record().detail);
  }
  co_await leave(info, deadline);
}

COLLS_ONCE void exclude(world_info& info, int rank, bool is_excluded) {
  if (info.server) info.server->exclude(rank, is_excluded);
}

COLLS_ONCE task<> leave(world_info& info, time_point deadline) {
  if (info.kv_store) co_await info.kv_store->leave(deadline);
  if (info.server) {
    co_await info.server->drain(deadline);
    info.server->close();
  }
}

}  // namespace colls
