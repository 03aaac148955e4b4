// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of dial.hpp: resolution of host names, and attempts to connect to the store.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/dial.hpp>

#include <netdb.h>

namespace colls::detail {

COLLS_ONCE std::vector<boost::asio::ip::address> resolve_host(const std::string& host,
                                                              std::string* reason) {
  boost::system::error_code no_literal;
  const auto literal = boost::asio::ip::make_address(host, no_literal);
  if (!no_literal) return {literal};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_ADDRCONFIG;
  // With AI_ADDRCONFIG, getaddrinfo considers only address families that are configured on an
  // interface other than loopback. On a machine without such an interface, the lookup of
  // `localhost` may therefore fail. If a lookup fails, it is repeated without this flag.
  addrinfo* found = nullptr;
  int failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (failed != 0) {
    hints.ai_flags = 0;
    failed = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  }
  if (failed != 0) {
    if (reason != nullptr) *reason = ::gai_strerror(failed);
    return {};
  }
  std::vector<boost::asio::ip::address> addresses;
  for (const addrinfo* it = found; it != nullptr; it = it->ai_next) {
    endpoint entry;
    if (it->ai_addrlen > entry.capacity()) continue;
    std::memcpy(entry.data(), it->ai_addr, it->ai_addrlen);
    entry.resize(it->ai_addrlen);
    if (std::find(addresses.begin(), addresses.end(), entry.address()) == addresses.end())
      addresses.push_back(entry.address());
  }
  ::freeaddrinfo(found);
  return addresses;
}

COLLS_ONCE std::optional<boost::asio::ip::address> source_address_for(const endpoint& target) {
  const descriptor socket(::socket(target.protocol().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket ||
      ::connect(socket.get(), target.data(), static_cast<socklen_t>(target.size())) != 0) {
    return std::nullopt;
  }
  const auto local = socket_endpoint(socket.get(), &::getsockname).address();
  return local.is_unspecified() ? std::nullopt : std::optional(local);
}

COLLS_ONCE task<std::shared_ptr<tcp_store>> dial_store_once(engine& driver, const endpoint& address,
                                                            const hello& local, secret& key,
                                                            time_point deadline,
                                                            time_point default_timeout,
                                                            bool* connected) {
  auto connection = std::make_unique<stream>(driver);
  connection->set_deadline(std::min(deadline, driver.now() + 10 * seconds));
  const outcome done = co_await attempt(connection->connect(address));
  if (!done) {
    raise(errc::unreachable, "%s: %s", text_of(address).c_str(), done.ec.message().c_str());
  }
  // If no process listens at a port of this machine, the kernel may choose this port as the local
  // port of the socket. TCP then connects the socket to itself.
  if (connection->local() == connection->remote()) {
    raise(errc::unreachable, "%s: no process listens there", text_of(address).c_str());
  }
  if (connected != nullptr) *connected = true;
  secret proved = key;
  if (proved.empty() && (is_loopback(address.address()) || address.address().is_unspecified())) {
    proved = co_await fetch_local_secret(driver, address, key.insecure(),
                                         std::min(deadline, driver.now() + 10 * seconds));
  }
  const hello peer = co_await prove(*connection, local, proved);
  co_await await_verdict(*connection, local);
  key = proved;
  co_return std::make_shared<tcp_store>(std::move(connection), peer, default_timeout,
                                        local.checksum);
}

COLLS_ONCE task<std::shared_ptr<tcp_store>> dial_store(engine& driver, std::string host,
                                                       port_list ports, hello local, secret& key,
                                                       time_point deadline,
                                                       time_point default_timeout) {
  const time_point started = driver.now();
  const std::string store_name = host_and_port(host, ports.front());
  dial_errors errors{.address = store_name.c_str()};
  exponential_backoff pause;
  bool has_warned = false;
  for (;;) {
    std::string reason;
    errors.connected = false;
    const auto addresses = resolve_host(host, &reason);
    if (addresses.empty()) {
      failure unknown(errc::resolve_failed);
      unknown.set_detail("the host name %s is unknown: %s", host.c_str(), reason.c_str());
      errors.record(unknown, driver.now());
      // The name server of a cluster may not know the name of a new host yet, so the lookup is
      // repeated. It is repeated for about 10 s only, because the name may also be misspelt.
      if (driver.now() - started > 10 * seconds) break;
    }
    std::optional<failure> refused;
    for (const auto& address : addresses) {
      for (const int port : ports) {
        const endpoint target(address, static_cast<std::uint16_t>(port));
        try {
          auto store = co_await dial_store_once(driver, target, local, key, deadline,
                                                default_timeout, &errors.connected);
          co_return store;
        } catch (const error& thrown) {
          errors.record(thrown.record(), driver.now());
        }
        if (errors.is_permanent()) throw error(errors.last);
        if (errors.is_refused()) refused = errors.last;
        if (driver.now() >= deadline) break;
      }
    }
    // If there is only one port, a refusal at any address ends the attempts, but only after all
    // addresses have been tried. If there are several ports, the attempts continue, because the
    // refusal may come from another program that uses one of these ports.
    if (refused && ports.size() == 1) throw error(*refused);
    if (!has_warned && driver.now() - started > 10 * seconds) {
      has_warned = true;
      log_warn("rank %d still tries to reach the store at %s: %s", local.rank, store_name.c_str(),
               errors.best_reason(driver.now()).detail);
    }
    const time_point wait = pause.next(errors.max_pause());
    if (driver.now() + wait >= deadline) break;
    co_await driver.sleep_until(driver.now() + wait);
  }
  const failure last = errors.best_reason(driver.now());
  const bool is_no_store = last.code == errc::timeout || last.code == errc::protocol_error;
  failure report(is_no_store ? errc::unreachable : last.code);
  report.set_detail(
      "rank %d of %d did not reach the store at %s within %.1f s (last: %.140s)%s", local.rank,
      local.world, store_name.c_str(), static_cast<double>(driver.now() - started) * 1e-9,
      last.detail,
      report.code == errc::too_many_files ? "" : ": start rank 0 there, with the same address");
  throw error(report);
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE task<std::shared_ptr<tcp_store>> dial_store(engine& driver,
                                                       const detail::store_address& address,
                                                       const port_list& ports, const hello& local,
                                                       secret& key, time_point deadline,
                                                       time_point default_timeout) {
  return detail::dial_store(driver, address.host, ports.empty() ? port_list{address.port} : ports,
                            local, key, deadline, default_timeout);
}

}  // namespace colls
