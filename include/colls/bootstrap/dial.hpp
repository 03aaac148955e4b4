// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Resolving host names and connecting to the store.

#include <colls/bootstrap/tcp_store.hpp>

namespace colls {

namespace detail {

/// Returns all addresses of a host; empty if the name is unknown, with the reason in `*reason`. A
/// numeric address is not looked up. A name is resolved by the system, which may block.
std::vector<boost::asio::ip::address> resolve_host(const std::string& host,
                                                   std::string* reason = nullptr);

/// Returns the source address of packets to `target`. Sends nothing.
std::optional<boost::asio::ip::address> source_address_for(const endpoint& target);

/// Pauses that double up to a maximum, with jitter that keeps ranks from dialling in step.
class exponential_backoff {
 public:
  time_point next(time_point max_pause) {
    std::uint32_t draw = 0;
    fill_random(&draw, sizeof draw);
    step_ = std::min(step_, max_pause);
    const time_point pause = step_ / 2 + static_cast<time_point>(draw) % step_;
    step_ *= 2;
    return pause;
  }

 private:
  time_point step_ = 10 * milliseconds;
};

/// Dials the store once: connects (which sets `*connected`), fetches the local secret if there is
/// no other, proves it and waits for the verdict. Throws the errors of these steps. `key` becomes
/// the proved secret. The arguments must outlive the task.
task<std::shared_ptr<tcp_store>> dial_store_once(engine& driver, const endpoint& address,
                                                 const hello& local, secret& key,
                                                 time_point deadline, time_point default_timeout,
                                                 bool* connected = nullptr);

/// The errors of repeated attempts to dial a store, and whether another attempt makes sense.
struct dial_errors {
  const char* address;
  failure last{errc::unreachable};
  failure refusal{};  // of a store that has reached its limit on open files
  time_point refusal_time = 0;
  bool connected = false;

  bool is_permanent() const {
    return last.code == errc::rank_taken || last.code == errc::world_complete ||
           last.code == errc::join_failed || last.code == errc::insecure_bind ||
           last.code == errc::crypto_failed;
  }
  /// Returns whether the peer at that address belongs to another job, or does not accept this
  /// process.
  bool is_refused() const {
    return last.code == errc::version_mismatch || last.code == errc::auth_failed;
  }
  void record(const failure& reason, time_point now) {
    last = reason;
    if (reason.code == errc::too_many_files) {
      refusal = reason;
      refusal_time = now;
    }
    log_debug("store at %s: %s", address, reason.detail);
  }
  /// Returns the error to report. A recent refusal explains more than a failed connection.
  const failure& best_reason(time_point now) const {
    const bool is_recent = refusal.code == errc::too_many_files && now - refusal_time < 5 * seconds;
    return is_recent && !is_permanent() && !is_refused() ? refusal : last;
  }
  /// Returns the maximum pause, which is short if the store evicts connections during a flood.
  time_point max_pause() const {
    const bool dropped = connected && last.code == errc::unreachable;
    return (dropped ? 50 : 500) * milliseconds;
  }
};

task<std::shared_ptr<tcp_store>> dial_store(engine& driver, std::string host, port_list ports,
                                            hello local, secret& key, time_point deadline,
                                            time_point default_timeout);

}  // namespace detail

/// Dials the store at `address` (tcp://host:port) until the deadline. It tries every address of the
/// host, and `ports` instead of the port if there are any. `key` becomes the proved secret. The
/// arguments must outlive the task.
task<std::shared_ptr<tcp_store>> dial_store(engine& driver, const detail::store_address& address,
                                            const port_list& ports, const hello& local, secret& key,
                                            time_point deadline, time_point default_timeout);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/dial.ipp>
#endif
