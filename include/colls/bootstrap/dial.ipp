// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a store is reached: the second half of dial.hpp.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/dial.hpp>

#include <netdb.h>

namespace colls::detail {

COLLS_ONCE std::vector<boost::asio::ip::address> addresses_of(const std::string& host,
                                                              std::string* why) {
  boost::system::error_code no_literal;
  const auto literal = boost::asio::ip::make_address(host, no_literal);
  if (!no_literal) return {literal};
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_ADDRCONFIG;
  // AI_ADDRCONFIG ignores loopback, so a host without a network still has its localhost.
  addrinfo* found = nullptr;
  int failed = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  if (failed != 0) {
    wanted.ai_flags = 0;
    failed = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  }
  if (failed != 0) {
    if (why != nullptr) *why = ::gai_strerror(failed);
    return {};
  }
  std::vector<boost::asio::ip::address> all;
  for (const addrinfo* it = found; it != nullptr; it = it->ai_next) {
    endpoint one;
    if (it->ai_addrlen > one.capacity()) continue;
    std::memcpy(one.data(), it->ai_addr, it->ai_addrlen);
    one.resize(it->ai_addrlen);
    if (std::find(all.begin(), all.end(), one.address()) == all.end()) all.push_back(one.address());
  }
  ::freeaddrinfo(found);
  return all;
}

COLLS_ONCE std::optional<boost::asio::ip::address> address_towards(const endpoint& target) {
  const descriptor socket(::socket(target.protocol().family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket ||
      ::connect(socket.get(), target.data(), static_cast<socklen_t>(target.size())) != 0) {
    return std::nullopt;
  }
  const auto local = name_of(socket.get(), &::getsockname).address();
  return local.is_unspecified() ? std::nullopt : std::optional(local);
}

COLLS_ONCE task<std::shared_ptr<tcp_store>> dial_store(engine& on, const endpoint& where,
                                                       const hello& mine, secret& key,
                                                       time_point deadline, time_point patience,
                                                       bool* connected) {
  auto link = std::make_unique<stream>(on);
  link->deadline(std::min(deadline, on.now() + 10 * seconds));
  const outcome done = co_await attempt(link->connect(where));
  if (!done) {
    raise(errc::unreachable, "%s: %s", text_of(where).c_str(), done.ec.message().c_str());
  }
  if (link->local() == link->remote()) {
    raise(errc::unreachable, "%s: nobody listens", text_of(where).c_str());  // TCP met itself
  }
  if (connected != nullptr) *connected = true;
  secret proved = key;
  if (proved.empty() && (is_loopback(where.address()) || where.address().is_unspecified())) {
    proved = co_await ask_for_local_key(on, where, key.insecure(),
                                        std::min(deadline, on.now() + 10 * seconds));
  }
  const hello peer = co_await prove(*link, mine, proved);
  co_await await_verdict(*link, mine);
  key = proved;
  co_return std::make_shared<tcp_store>(std::move(link), peer, patience, mine.checksum);
}

COLLS_ONCE task<std::shared_ptr<tcp_store>> reach_store(engine& on, std::string host,
                                                        port_list ports, hello mine, secret& key,
                                                        time_point deadline, time_point patience) {
  const time_point started = on.now();
  const std::string place = host_and_port(host, ports.front());
  attempts so_far{.what = place.c_str()};
  back_off pause;
  bool told = false;
  for (;;) {
    std::string why;
    so_far.connected = false;
    const auto addresses = addresses_of(host, &why);
    if (addresses.empty()) {
      failure unknown(errc::resolve_failed);
      unknown.say("the host name %s is unknown: %s", host.c_str(), why.c_str());
      so_far.note(unknown, on.now());
      // A cluster's names may appear late; a name that is misspelt never does.
      if (on.now() - started > 10 * seconds) break;
    }
    std::optional<failure> refused;
    for (const auto& address : addresses) {
      for (const int port : ports) {
        const endpoint where(address, static_cast<std::uint16_t>(port));
        try {
          auto reached =
              co_await dial_store(on, where, mine, key, deadline, patience, &so_far.connected);
          co_return reached;
        } catch (const error& thrown) {
          so_far.note(thrown.record(), on.now());
        }
        if (so_far.hopeless()) throw error(so_far.last);
        if (so_far.is_refused()) refused = so_far.last;
        if (on.now() >= deadline) break;
      }
    }
    // What is wrong at one address says nothing of the others, and of several ports most are taken
    // by other programs.
    if (refused && ports.size() == 1) throw error(*refused);
    if (!told && on.now() - started > 10 * seconds) {
      told = true;
      log_warn("rank %d still tries to reach the store at %s: %s", mine.rank, place.c_str(),
               so_far.reason(on.now()).detail);
    }
    const time_point wait = pause.next(so_far.longest_pause());
    if (on.now() + wait >= deadline) break;
    co_await on.sleep_until(on.now() + wait);
  }
  const failure last = so_far.reason(on.now());
  const bool nothing_there = last.code == errc::timeout || last.code == errc::protocol_error;
  failure why(nothing_there ? errc::unreachable : last.code);
  why.say("rank %d of %d did not reach the store at %s within %.1f s (last: %.140s)%s", mine.rank,
          mine.world, place.c_str(), static_cast<double>(on.now() - started) * 1e-9, last.detail,
          why.code == errc::too_many_files ? "" : ": start rank 0 there, with the same address");
  throw error(why);
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE task<std::shared_ptr<tcp_store>> reach_store(engine& on,
                                                        const detail::meeting_place& place,
                                                        const port_list& ports, const hello& mine,
                                                        secret& key, time_point deadline,
                                                        time_point patience) {
  return detail::reach_store(on, place.host, ports.empty() ? port_list{place.port} : ports, mine,
                             key, deadline, patience);
}

}  // namespace colls
