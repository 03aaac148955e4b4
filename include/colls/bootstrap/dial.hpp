// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Addresses: names into numbers, which address of this host others can dial, and dialling.

#include <colls/bootstrap/tcp_store.hpp>

namespace colls {

namespace detail {

/// All addresses of a host; numbers are never looked up. Empty: the name is unknown, `*why` says
/// how. A name is looked up by the system, which may block.
std::vector<boost::asio::ip::address> addresses_of(const std::string& host,
                                                   std::string* why = nullptr);

/// The address of this host from which packets to `target` leave; nothing is sent.
std::optional<boost::asio::ip::address> address_towards(const endpoint& target);

/// A pause that grows to `longest`, with jitter so that ranks do not come in step.
class back_off {
 public:
  time_point next(time_point longest) {
    std::uint32_t draw = 0;
    fill_random(&draw, sizeof draw);
    step_ = std::min(step_, longest);
    const time_point pause = step_ / 2 + static_cast<time_point>(draw) % step_;
    step_ *= 2;
    return pause;
  }

 private:
  time_point step_ = 10 * milliseconds;
};

/// One try: connects, which sets `*connected`, asks for the local key if there is no other, proves,
/// hears the verdict. Throws what they throw. `key` becomes what was proved, and must stay alive.
task<std::shared_ptr<tcp_store>> dial_store(engine& on, const endpoint& where, const hello& mine,
                                            secret& key, time_point deadline, time_point patience,
                                            bool* connected = nullptr);

/// How reaching a store goes: what went wrong last, and whether it is worth another try.
struct attempts {
  const char* what;
  failure last{errc::unreachable};
  failure lack{};  // what a store said when it could not take the connection
  time_point lacked = 0;
  bool connected = false;

  bool hopeless() const {
    return last.code == errc::rank_taken || last.code == errc::world_complete ||
           last.code == errc::join_failed || last.code == errc::insecure_bind ||
           last.code == errc::crypto_failed;
  }
  /// What listens there is of another job, or of none that this process may enter.
  bool is_refused() const {
    return last.code == errc::version_mismatch || last.code == errc::auth_failed;
  }
  void note(const failure& why, time_point now) {
    last = why;
    if (why.code == errc::too_many_files) {
      lack = why;
      lacked = now;
    }
    log_debug("store at %s: %s", what, why.detail);
  }
  /// What a store has just said of itself explains more than connections that came to nothing.
  const failure& reason(time_point now) const {
    const bool is_recent = lack.code == errc::too_many_files && now - lacked < 5 * seconds;
    return is_recent && !hopeless() && !is_refused() ? lack : last;
  }
  /// In a crowd of strangers a connection may be dropped again and again before it is served.
  time_point longest_pause() const {
    const bool dropped = connected && last.code == errc::unreachable;
    return (dropped ? 50 : 500) * milliseconds;
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
                                             const port_list& ports, const hello& mine, secret& key,
                                             time_point deadline, time_point patience);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/dial.ipp>
#endif
