// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What ranks tell each other of themselves: the second half of world_info.hpp.

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

COLLS_ONCE std::string rank_card::text() const {
  char all[1024];
  char usable[core_set::longest + 1];
  cores.write(usable);
  std::snprintf(all, sizeof all, "%s %d %s %s %llu %s %d %s %lld %llx",
                where.address().to_string().c_str(), where.port(), boot.c_str(), host.c_str(),
                static_cast<unsigned long long>(network), transport.c_str(), checksum ? 1 : 0,
                usable, static_cast<long long>(pid), static_cast<unsigned long long>(nonce));
  return all;
}

COLLS_ONCE std::optional<rank_card> rank_card::parse(const std::string& text) {
  char address[64];
  char boot[64];
  char host[256];
  char transport[8];
  char usable[core_set::longest + 1];
  static_assert(sizeof usable == 257);
  int port = 0;
  int checksum = 0;
  unsigned long long network = 0;
  rank_card card;
  boost::system::error_code bad;
  if (std::sscanf(text.c_str(), "%63s %d %63s %255s %llu %7s %d %256s", address, &port, boot, host,
                  &network, transport, &checksum, usable) != 8 ||
      !core_set::read(usable, card.cores)) {
    return std::nullopt;
  }
  const auto numeric = boost::asio::ip::make_address(address, bad);
  if (bad || port <= 0 || port > 65535) return std::nullopt;
  card.where = {numeric, static_cast<std::uint16_t>(port)};
  card.boot = boot;
  card.host = host;
  card.network = network;
  card.transport = transport;
  card.checksum = checksum != 0;
  return card;
}

COLLS_ONCE rank_card rank_card::of_this_process() {
  rank_card mine;
  mine.boot = boot_id();
  if (mine.boot.empty()) mine.boot = "-";
  char host[256] = {};
  const bool is_named = ::gethostname(host, sizeof host - 1) == 0 && host[0] != 0;
  mine.host = is_named ? host : "-";
  mine.network = network_namespace();
  mine.cores = core_set::of_this_thread();
  mine.pid = ::getpid();
  fill_random(&mine.nonce, sizeof mine.nonce);
  return mine;
}

COLLS_ONCE std::string rank_card::place() const {
  return machine() + " " + (network != 0 ? std::to_string(network) : host);
}

COLLS_ONCE std::string membership_text(const membership& all) {
  std::string text;
  for (std::size_t r = 0; r < all.node_of.size(); ++r) {
    const int node = all.node_of[r];
    const int machine = all.machine_of[static_cast<std::size_t>(node)];
    text += std::to_string(node) + ' ' + std::to_string(machine) + ' ' +
            std::to_string(all.cores_of[static_cast<std::size_t>(machine)]);
    if (!all.book.empty()) {
      text += ' ' + all.book[r].address().to_string() + ' ' + std::to_string(all.book[r].port());
    }
    text += '\n';
  }
  return text;
}

COLLS_ONCE bool read_membership(const std::string& text, membership& into) {
  into.node_of.clear();
  into.machine_of.clear();
  into.cores_of.clear();
  into.book.clear();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    int node = -1;
    int machine = -1;
    int cores = -1;
    char address[64] = {};
    unsigned port = 0;
    const int found =
        std::sscanf(line.c_str(), "%d %d %d %63s %u", &node, &machine, &cores, address, &port);
    boost::system::error_code bad;
    const auto numeric = boost::asio::ip::make_address(address, bad);
    const bool has_address = found == 5 && !bad && port > 0 && port <= 65535;
    // Nodes are numbered as they come, and so are machines.
    const auto nodes = static_cast<int>(into.machine_of.size());
    const auto machines = static_cast<int>(into.cores_of.size());
    if (node < 0 || node > nodes || machine < 0 || machine > machines || cores < 0 ||
        (found != 3 && !has_address)) {
      return false;
    }
    if (machine == machines) into.cores_of.push_back(cores);
    if (node == nodes) into.machine_of.push_back(machine);
    if (into.machine_of[static_cast<std::size_t>(node)] != machine) return false;
    into.node_of.push_back(node);
    if (has_address) into.book.emplace_back(numeric, static_cast<std::uint16_t>(port));
  }
  const auto size = static_cast<std::size_t>(into.size);
  return into.node_of.size() == size && (into.book.empty() || into.book.size() == size);
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE void membership::find_own_place() {
  const auto machine = [this](int of) { return machine_of[static_cast<std::size_t>(of)]; };
  node = node_of[static_cast<std::size_t>(rank)];
  local_rank = 0;
  local_size = 0;
  beside = 0;
  for (int r = 0; r < size; ++r) {
    const int its_node = node_of[static_cast<std::size_t>(r)];
    if (its_node == node) {
      if (r < rank) ++local_rank;
      ++local_size;
    }
    if (machine(its_node) == machine(node)) ++beside;
  }
}

COLLS_ONCE int membership::cores() const {
  const auto here = static_cast<std::size_t>(machine_of[static_cast<std::size_t>(node)]);
  return here < cores_of.size() && cores_of[here] > 0 ? cores_of[here] : detail::cores();
}

COLLS_ONCE int membership::fewest_cores() const {
  if (cores_of.empty()) return 0;
  std::vector<int> on_node(machine_of.size());
  std::vector<int> on_machine(cores_of.size());
  for (const int its_node : node_of) {
    ++on_node[static_cast<std::size_t>(its_node)];
    ++on_machine[static_cast<std::size_t>(machine_of[static_cast<std::size_t>(its_node)])];
  }
  int fewest = std::numeric_limits<int>::max();
  for (std::size_t n = 0; n < on_node.size(); ++n) {
    if (on_node[n] == 0) continue;  // none of this world's
    const auto machine = static_cast<std::size_t>(machine_of[n]);
    if (cores_of[machine] == 0) return 0;
    // Rounded down, it is less than the ranks of the host exactly where those of the machine
    // outnumber its cores.
    const auto part = std::int64_t{cores_of[machine]} * on_node[n] / on_machine[machine];
    fewest = std::min(fewest, std::max(static_cast<int>(part), 1));
  }
  return fewest;
}

COLLS_ONCE std::error_code membership::listen() {
  if (const std::error_code ec = link_listener.listen({address, 0})) return ec;
  if (shares_memory()) {
    if (const std::error_code ec = shm::listen_beside(link_listener.local(), local_listener)) {
      log_warn("rank %d: no local socket, so no shared memory: %s", rank, ec.message().c_str());
    }
  }
  return {};
}

COLLS_ONCE task<endpoint> membership::address_of(int peer) const {
  if (!book.empty()) co_return book[static_cast<std::size_t>(peer)];
  const std::string text = co_await rendezvous->get(detail::rank_key(peer));
  const auto card = detail::rank_card::parse(text);
  if (!card) detail::raise(errc::protocol_error, "rank %d published no address", peer);
  co_return card->where;
}

COLLS_ONCE task<bool> membership::introduce(stream& link, int peer) const {
  const hello mine = greeting(purpose::link);
  const hello theirs = co_await prove(link, mine, key);
  if (theirs.rank != peer) {
    detail::raise(errc::protocol_error, "rank %d listens where rank %d was expected", theirs.rank,
                  peer);
  }
  const verdict answer = co_await await_verdict(link, mine);
  co_return answer == verdict::accepted;
}

COLLS_ONCE task<> leave(membership& all, time_point deadline) {
  if (all.rendezvous) co_await all.rendezvous->leave(deadline);
  if (all.server) {
    co_await all.server->drain(deadline);
    all.server->close();
  }
}

}  // namespace colls
