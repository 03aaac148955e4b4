// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Rank 0 serves the store where no launcher does; and what a rank says when others do not come.

#include <colls/bootstrap/dial.hpp>

namespace colls::detail {

inline errc listen_error(std::error_code ec) {
  if (ec == std::errc::address_in_use) return errc::address_in_use;
  const bool full =
      ec == std::errc::too_many_files_open || ec == std::errc::too_many_files_open_in_system;
  return full ? errc::too_many_files : errc::join_failed;
}

/// The launcher says that all ranks are on this host.
inline bool is_one_host(const config& cfg) { return cfg.nodes == 1 || cfg.local_size == cfg.size; }

inline bool is_loopback(const std::string& host) {
  boost::system::error_code no_number;
  const auto address = boost::asio::ip::make_address(host, no_number);
  return host == "localhost" || (!no_number && address.is_loopback());
}

[[noreturn]] inline void refuse_open_ground(int rank, const std::string& where) {
  raise(errc::insecure_bind, "rank %d would listen at %s, which others can reach, without a secret",
        rank, where.c_str());
}

/// The address of this host that packets to the rest of the world leave from.
inline boost::asio::ip::address default_address() {
  for (const char* documentation : {"198.51.100.1", "2001:db8::1"}) {
    const auto local = address_towards({boost::asio::ip::make_address(documentation), 9});
    if (local) return *local;
  }
  raise(errc::join_failed, "this host has no address that other hosts could reach");
}

/// A secret for ranks that were given none, if they meet at these addresses: on loopback one that
/// is drawn, and handed out to this user alone.
inline void draw_key(secret& key, const std::vector<boost::asio::ip::address>& addresses) {
  const bool here = std::all_of(addresses.begin(), addresses.end(),
                                [](const auto& each) { return is_loopback(each); });
  if (key.empty() && here) key = secret::drawn(draw_secret());
}

/// What keeps rank 0 from a place where it could not listen.
inline std::string explain_refusal(const store_server& server, const endpoint& where,
                                   std::error_code ec) {
  if (ec == std::errc::address_not_available) {
    return " (rank 0 has to run on the host that MASTER_ADDR names)";
  }
  if (!server.lacks_local_socket()) return "";
  const std::int64_t user = user_beside(where);
  return " (the local socket beside it, which ranks without a secret need" +
         (user < 0 ? ")" : ", belongs to user " + std::to_string(user) + ")");
}

/// Binds the first port that is free on all addresses of the host that this one has: at an address
/// that another program holds ranks would meet that program. `key` becomes what the ranks
/// prove. What is given must stay alive.
inline task<std::shared_ptr<store_server>> serve_store(engine& on, const config& cfg,
                                                       const meeting_place& place,
                                                       const hello& mine, secret& key,
                                                       time_point deadline) {
  if (cfg.store_fd >= 0) {
    const endpoint at = name_of(cfg.store_fd, &::getsockname);
    draw_key(key, {at.address()});
    auto server = std::make_shared<store_server>(on, mine, key);
    const std::error_code ec = server->adopt(cfg.store_fd);
    if (ec == errc::insecure_bind) refuse_open_ground(0, text_of(at));
    if (ec) {
      raise(listen_error(ec), "rank 0 cannot listen at %s: %s%s", text_of(at).c_str(),
            ec.message().c_str(), explain_refusal(*server, at, ec).c_str());
    }
    co_return server;
  }
  const port_list ports = cfg.ports.empty() ? port_list{place.port} : cfg.ports;
  const std::string where = host_and_port(place.host, ports.front());
  std::string why;
  const auto addresses = addresses_of(place.host, &why);
  if (addresses.empty()) {
    raise(errc::resolve_failed, "rank 0 should listen at %s: %s", where.c_str(), why.c_str());
  }
  draw_key(key, addresses);
  auto server = std::make_shared<store_server>(on, mine, key);
  // A job that was just ended may take a moment to let go of its port.
  const time_point patience = std::min(deadline, on.now() + 2 * seconds);
  endpoint refused;
  for (std::error_code last;;) {
    for (const int port : ports) {
      bool is_taken = false;
      for (const auto& address : addresses) {
        if (address.is_unspecified() && !cfg.insecure) {
          raise(errc::insecure_bind, "rank 0 would listen at %s, on every network of this host",
                where.c_str());
        }
        const endpoint one(address, static_cast<std::uint16_t>(port));
        const std::error_code ec = server->listen(one);
        if (ec == errc::insecure_bind) refuse_open_ground(0, text_of(one));
        if (!ec) continue;
        last = ec;
        refused = one;
        is_taken |= ec == std::errc::address_in_use;
      }
      if (is_taken) server->close();
      if (server->is_open()) {
        log_info("rank 0 serves the store at %s", text_of(server->local()).c_str());
        co_return server;
      }
    }
    if (last != std::errc::address_in_use || on.now() >= patience) {
      raise(listen_error(last), "rank 0 cannot listen at %s: %s%s",
            addresses.size() == 1 ? where.c_str() : text_of(refused).c_str(),
            last.message().c_str(), explain_refusal(*server, refused, last).c_str());
    }
    co_await on.sleep_until(on.now() + 100 * milliseconds);
  }
}

inline std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < 16; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return ranks.size() > 16 ? text + " and " + std::to_string(ranks.size() - 16) + " more" : text;
}

/// `there` has a '0' for each rank that did not come while this one waited; `lack` says why this
/// one could not take their connections, if it could not.
inline failure missing_ranks(const config& cfg, const std::string& there, time_point waited,
                             bool on_loopback, const std::string& lack) {
  std::vector<int> absent;
  for (std::size_t r = 0; r < there.size(); ++r) {
    if (there[r] == '0') absent.push_back(static_cast<int>(r));
  }
  const bool one = absent.size() == 1;
  failure why(errc::join_timeout);
  if (one) why.culprit = absent.front();
  if (absent.empty()) {
    why.culprit = 0;
    why.say("rank %d waited %.1f s at %s: rank 0 does not say that all %d ranks are there",
            cfg.rank, static_cast<double>(waited) * 1e-9, cfg.address.c_str(), cfg.size);
    return why;
  }
  if (!lack.empty()) {
    why.code = errc::too_many_files;
    why.culprit = cfg.rank;
    why.say("rank %d waited %.1f s at %s for rank%s %s of %d and could not take connections: %s",
            cfg.rank, static_cast<double>(waited) * 1e-9, cfg.address.c_str(), one ? "" : "s",
            ranks_text(absent).c_str(), cfg.size, lack.c_str());
    return why;
  }
  why.say(
      "rank %d waited %.1f s at %s, still waiting for rank%s %s of %d: start %s with the same "
      "address and job%s",
      cfg.rank, static_cast<double>(waited) * 1e-9, cfg.address.c_str(), one ? "" : "s",
      ranks_text(absent).c_str(), cfg.size, one ? "it" : "them",
      on_loopback && !is_one_host(cfg)
          ? " (that address is loopback here: other hosts cannot reach it)"
          : "");
  return why;
}

}  // namespace colls::detail
