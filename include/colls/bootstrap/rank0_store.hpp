// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions with which rank 0 opens the store (the key-value service through which ranks find each
// other). Rank 0 opens it only if the launcher does not host one. This file also contains the
// function that creates the error of a rank that has waited in vain for other ranks to join.

#include <colls/bootstrap/dial.hpp>
#include <colls/bootstrap/network_interfaces.hpp>

#include <algorithm>
#include <memory>
#include <optional>

namespace colls::detail {

inline errc listen_error(std::error_code ec) {
  if (ec == std::errc::address_in_use) return errc::address_in_use;
  const bool full =
      ec == std::errc::too_many_files_open || ec == std::errc::too_many_files_open_in_system;
  return full ? errc::too_many_files : errc::join_failed;
}

/// Returns whether the launcher says that all ranks run on one machine.
inline bool is_one_host(const config& cfg) { return cfg.nodes == 1 || cfg.local_size == cfg.size; }

inline bool is_loopback(const std::string& host) {
  boost::system::error_code no_number;
  const auto address = boost::asio::ip::make_address(host, no_number);
  return host == "localhost" || (!no_number && address.is_loopback());
}

[[noreturn]] inline void raise_insecure_bind(int rank, const std::string& address) {
  raise(errc::insecure_bind, "rank %d would listen at %s, which others can reach, without a secret",
        rank, address.c_str());
}

/// Returns the address of this host at which rank 0 listens: the one that `config::socket_ifname`
/// chooses, or that by which this host reaches other networks, or its first one that is not
/// loopback. Throws if there is none.
inline boost::asio::ip::address reachable_address(const config& cfg) {
  const std::vector<interface_address> all = interface_addresses();
  std::optional<boost::asio::ip::address> usual;
  for (const char* outside : {"198.51.100.1", "2001:db8::1"}) {
    if (!usual) usual = source_address_for({boost::asio::ip::make_address(outside), 9});
  }
  for (const interface_address& each : all) {
    if (!usual && !each.address.is_loopback()) usual = each.address;
  }
  if (!usual) raise(errc::join_failed, "this host has no address that other hosts could reach");
  const std::string wanted = cfg.socket_ifname.str();
  return wanted.empty() ? *usual : choose_address(wanted, *usual, all);
}

/// Where the store of a job is, if rank 0 passes that to the other ranks.
struct store_location {
  store_address address;
  secret key;
  std::shared_ptr<store_server> server;  // on rank 0, else null
};

/// Starts the store of rank 0 at a port of `address` that the operating system chooses.
inline std::shared_ptr<store_server> start_store(engine& driver, const hello& local,
                                                 const secret& key,
                                                 const boost::asio::ip::address& address) {
  auto server = std::make_shared<store_server>(driver, local, key);
  if (const std::error_code ec = server->listen({address, 0})) {
    raise(listen_error(ec), "rank 0 cannot listen at %s: %s", address.to_string().c_str(),
          ec.message().c_str());
  }
  return server;
}

/// If `key` is empty and all `addresses` are loopback addresses, sets `key` to a generated secret.
/// Only processes of this user can obtain this secret.
inline void draw_secret_for_loopback(secret& key,
                                     const std::vector<boost::asio::ip::address>& addresses) {
  const bool is_local = std::all_of(addresses.begin(), addresses.end(),
                                    [](const auto& address) { return is_loopback(address); });
  if (key.empty() && is_local) key = secret::drawn(draw_secret());
}

/// Returns a text that explains why rank 0 could not listen at `address`. Returns an empty string
/// if the error `ec` needs no explanation.
inline std::string explain_listen_error(const store_server& server, const endpoint& address,
                                        std::error_code ec) {
  if (ec == std::errc::address_not_available) {
    return " (rank 0 has to run on the host that MASTER_ADDR names)";
  }
  if (!server.lacks_local_socket()) return "";
  const std::int64_t user = user_listening_beside(address);
  return " (the local socket beside it, which ranks without a secret need" +
         (user < 0 ? ")" : ", belongs to user " + std::to_string(user) + ")");
}

/// Opens the store on rank 0 and returns its server. If `cfg.store_fd` is a socket, the server
/// accepts connections on this socket. Otherwise the server listens at the addresses of the host
/// `address.host`. It skips a port if another program uses this port at one of these addresses,
/// because a rank could then connect to that program by mistake. If `key` is empty and the store
/// listens only at loopback addresses, sets `key` to a generated secret. The arguments must outlive
/// the task.
inline task<std::shared_ptr<store_server>> host_store(engine& driver, const config& cfg,
                                                      const store_address& address,
                                                      const hello& local, secret& key,
                                                      time_point deadline) {
  if (cfg.store_fd >= 0) {
    const endpoint bound = socket_endpoint(cfg.store_fd, &::getsockname);
    draw_secret_for_loopback(key, {bound.address()});
    auto server = std::make_shared<store_server>(driver, local, key);
    const std::error_code ec = server->adopt(cfg.store_fd);
    if (ec == errc::insecure_bind) raise_insecure_bind(0, text_of(bound));
    if (ec) {
      raise(listen_error(ec), "rank 0 cannot listen at %s: %s%s", text_of(bound).c_str(),
            ec.message().c_str(), explain_listen_error(*server, bound, ec).c_str());
    }
    co_return server;
  }
  const port_list ports = cfg.ports.empty() ? port_list{address.port} : cfg.ports;
  const std::string name = host_and_port(address.host, ports.front());
  std::string reason;
  auto addresses = resolve_host(address.host, &reason);
  // The name server of a cluster may not know the name of a new host yet. The name may also be
  // misspelt, so the lookup is not repeated for long.
  const time_point resolve_until = std::min(deadline, driver.now() + 10 * seconds);
  while (addresses.empty() && driver.now() < resolve_until) {
    co_await driver.sleep_until(driver.now() + 100 * milliseconds);
    addresses = resolve_host(address.host, &reason);
  }
  if (addresses.empty()) {
    raise(errc::resolve_failed, "rank 0 should listen at %s: %s", name.c_str(), reason.c_str());
  }
  draw_secret_for_loopback(key, addresses);
  auto server = std::make_shared<store_server>(driver, local, key);
  // Rank 0 tries to listen for up to 2 s, because a job that has just ended may need a moment to
  // release its port.
  const time_point retry_until = std::min(deadline, driver.now() + 2 * seconds);
  endpoint refused;
  for (std::error_code last;;) {
    for (const int port : ports) {
      bool is_taken = false;
      for (const auto& candidate : addresses) {
        if (candidate.is_unspecified() && !cfg.insecure) {
          raise(errc::insecure_bind, "rank 0 would listen at %s, on every network of this host",
                name.c_str());
        }
        const endpoint target(candidate, static_cast<std::uint16_t>(port));
        const std::error_code ec = server->listen(target);
        if (ec == errc::insecure_bind) raise_insecure_bind(0, text_of(target));
        if (!ec) continue;
        last = ec;
        refused = target;
        is_taken |= ec == std::errc::address_in_use;
      }
      if (is_taken) server->close();
      if (server->is_open()) {
        log_info("rank 0 serves the store at %s", text_of(server->local()).c_str());
        co_return server;
      }
    }
    if (last != std::errc::address_in_use || driver.now() >= retry_until) {
      raise(listen_error(last), "rank 0 cannot listen at %s: %s%s",
            addresses.size() == 1 ? name.c_str() : text_of(refused).c_str(), last.message().c_str(),
            explain_listen_error(*server, refused, last).c_str());
    }
    co_await driver.sleep_until(driver.now() + 100 * milliseconds);
  }
}

inline std::string format_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < 16; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return ranks.size() > 16 ? text + " and " + std::to_string(ranks.size() - 16) + " more" : text;
}

/// Returns the error that this rank throws after it has waited in vain for other ranks. `waited` is
/// the time since this rank began to wait or to join. `present` has one character for each rank,
/// and this character is '0' if the rank is missing. It is empty if the store did not answer.
/// `on_loopback` says whether this rank reaches the store at a loopback address. `accept_error` is
/// the reason why this process could not accept connections. It is empty if this process could
/// accept connections.
inline failure missing_ranks_failure(const config& cfg, const std::string& present,
                                     time_point waited, bool on_loopback,
                                     const std::string& accept_error) {
  std::vector<int> absent;
  for (std::size_t r = 0; r < present.size(); ++r) {
    if (present[r] == '0') absent.push_back(static_cast<int>(r));
  }
  const bool is_one = absent.size() == 1;
  failure reason(errc::join_timeout);
  if (is_one) reason.culprit = absent.front();
  if (absent.empty()) {
    reason.culprit = 0;
    reason.set_detail(
        "rank %d waited %.1f s at %s: rank 0 does not report that all %d ranks have joined",
        cfg.rank, static_cast<double>(waited) * 1e-9, cfg.address.c_str(), cfg.size);
    return reason;
  }
  if (!accept_error.empty()) {
    reason.code = errc::too_many_files;
    reason.culprit = cfg.rank;
    reason.set_detail(
        "rank %d waited %.1f s at %s for rank%s %s of %d and could not take connections: %s",
        cfg.rank, static_cast<double>(waited) * 1e-9, cfg.address.c_str(), is_one ? "" : "s",
        format_ranks(absent).c_str(), cfg.size, accept_error.c_str());
    return reason;
  }
  reason.set_detail(
      "rank %d waited %.1f s at %s, still waiting for rank%s %s of %d: start %s with the same "
      "address and job%s",
      cfg.rank, static_cast<double>(waited) * 1e-9, cfg.address.c_str(), is_one ? "" : "s",
      format_ranks(absent).c_str(), cfg.size, is_one ? "it" : "them",
      on_loopback && !is_one_host(cfg)
          ? " (that address is loopback here: other hosts cannot reach it)"
          : "");
  return reason;
}

}  // namespace colls::detail
