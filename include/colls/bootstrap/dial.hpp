// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions that resolve host names and connect to the store, the key-value service through which
// the ranks of a job find each other.

#include <colls/bootstrap/tcp_store.hpp>

namespace colls {

namespace detail {

/// Returns all addresses of a host. If the name is unknown, returns an empty list and sets
/// `*reason`. A numeric address is not looked up. The system resolves names, which may block the
/// thread.
std::vector<boost::asio::ip::address> resolve_host(const std::string& host,
                                                   std::string* reason = nullptr);

/// Returns the local address from which the system would send packets to `target`, or nullopt if
/// there is none. Sends nothing.
std::optional<boost::asio::ip::address> source_address_for(const endpoint& target);

/// A generator of pauses between attempts. The pauses double up to a maximum. Random jitter keeps
/// the ranks from dialling (connecting) at the same time.
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

/// Dials (connects to) the store once. Connects, fetches the generated secret from the local socket
/// if `key` is empty, proves to the store that this process knows the secret, and waits for the
/// verdict (whether the store accepts this process). Sets `*connected` to true after connecting,
/// and `key` to the proved secret. Throws the errors of these steps. The arguments must outlive the
/// task.
task<std::shared_ptr<tcp_store>> dial_store_once(engine& driver, const endpoint& address,
                                                 const hello& local, secret& key,
                                                 time_point deadline, time_point default_timeout,
                                                 bool* connected = nullptr);

/// The errors of repeated attempts to dial a store, and whether another attempt makes sense.
struct dial_errors {
  const char* address;
  failure last{errc::unreachable};
  failure refusal{};  // the last refusal by a store at its limit on open files
  time_point refusal_time = 0;
  bool connected = false;

  bool is_permanent() const {
    return last.code == errc::rank_taken || last.code == errc::world_complete ||
           last.code == errc::join_failed || last.code == errc::insecure_bind ||
           last.code == errc::crypto_failed;
  }
  /// Returns whether the process at this address belongs to another job or does not accept this
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
  /// Returns the error to report. A recent refusal takes precedence, because it explains more than
  /// a failed connection.
  const failure& best_reason(time_point now) const {
    const bool is_recent = refusal.code == errc::too_many_files && now - refusal_time < 5 * seconds;
    return is_recent && !is_permanent() && !is_refused() ? refusal : last;
  }
  /// Returns the maximum pause before the next attempt. The pause is short if the store has dropped
  /// the connection, as it does when it evicts connections during a flood.
  time_point max_pause() const {
    const bool dropped = connected && last.code == errc::unreachable;
    return (dropped ? 50 : 500) * milliseconds;
  }
};

task<std::shared_ptr<tcp_store>> dial_store(engine& driver, std::string host, port_list ports,
                                            hello local, secret& key, time_point deadline,
                                            time_point default_timeout);

}  // namespace detail

/// Dials the store at `address` (tcp://host:port) until it succeeds or the deadline has passed.
/// Tries every IP address of the host. If `ports` is not empty, tries these ports instead of the
/// port in `address`. Sets `key` to the proved secret. The arguments must outlive the task.
task<std::shared_ptr<tcp_store>> dial_store(engine& driver, const detail::store_address& address,
                                            const port_list& ports, const hello& local, secret& key,
                                            time_point deadline, time_point default_timeout);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/dial.ipp>
#endif
