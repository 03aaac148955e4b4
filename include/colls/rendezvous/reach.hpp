// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Addresses: names into numbers, which address of this host others can dial, and dialling.

#include <colls/rendezvous/tcp_store.hpp>

namespace colls {

namespace detail {

/// All addresses of a host; numbers are never looked up. Empty: the name is unknown, `*why` says
/// how. A name is looked up by the system, which may block.
std::vector<boost::asio::ip::address> addresses_of(const std::string& host,
                                                   std::string* why = nullptr);

/// The address of this host from which packets to `target` leave; nothing is sent.
std::optional<boost::asio::ip::address> address_towards(const endpoint& target);

/// A pause that grows to half a second, with jitter so that ranks do not come in step.
class back_off {
 public:
  time_point next() {
    std::uint32_t draw = 0;
    fill_random(&draw, sizeof draw);
    const time_point pause = step_ / 2 + static_cast<time_point>(draw) % step_;
    step_ = std::min<time_point>(2 * step_, 500 * milliseconds);
    return pause;
  }

 private:
  time_point step_ = 10 * milliseconds;
};

/// One try: connects, asks for the local key if there is no other, proves, hears the verdict. Throws
/// what they throw. `key` becomes what was proved, and must stay alive.
task<std::shared_ptr<tcp_store>> dial_store(engine& on, const endpoint& where, const hello& mine,
                                            secret& key, time_point deadline,
                                            time_point patience);

/// How reaching a store goes: what went wrong last, and whether it is worth another try.
struct attempts {
  const char* what;
  bool probing;  // several ports: what is wrong at one says nothing of the next
  failure last{errc::unreachable};
  int refused_proofs = 0;

  bool hopeless() const {
    switch (last.code) {
      case errc::rank_taken:
      case errc::world_complete:
      case errc::join_failed:
      case errc::insecure_bind:
      case errc::crypto_failed:
        return true;
      case errc::version_mismatch:
        return !probing;
      // The accepting side may have died or been crowded out, but not three times in a row.
      case errc::auth_failed:
        return !probing && refused_proofs >= 3;
      default:
        return false;
    }
  }
  void note(const failure& why) {
    last = why;
    refused_proofs = why.code == errc::auth_failed ? refused_proofs + 1 : 0;
    log_debug("store at %s: %s", what, why.detail);
  }
};

task<std::shared_ptr<tcp_store>> reach_store(engine& on, std::string host, port_list ports,
                                             hello mine, secret& key, time_point deadline,
                                             time_point patience);

}  // namespace detail

/// Reaches the store at `place` (tcp://host:port), trying every address of the host, and
/// `ports` instead of its port if there are any, again and again until the deadline. `key` becomes
/// what was proved, and must stay alive.
task<std::shared_ptr<tcp_store>> reach_store(engine& on, const detail::meeting_place& place,
                                             const port_list& ports, const hello& mine,
                                             secret& key, time_point deadline,
                                             time_point patience);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/impl/rendezvous/reach.ipp>
#endif
