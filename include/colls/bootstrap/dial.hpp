// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions that resolve host names and connect to the store, the key-value service through which
// the ranks of a job find each other.

#include <colls/bootstrap/tcp_store.hpp>

namespace colls {

namespace detail {

/// Returns all IP addresses of `host`. A numeric address is returned without a lookup. The system
/// looks up other names, which may block the thread. If the lookup fails, returns an empty vector
/// and sets `*reason`, unless `reason` is null.
std::vector<boost::asio::ip::address> resolve_host(const std::string& host,
                                                   std::string* reason = nullptr);

/// Returns the local address from which the system would send packets to `target`, or nullopt if
/// the system has no such address. Sends nothing.
std::optional<boost::asio::ip::address> source_address_for(const endpoint& target);

/// The pauses between attempts to connect. The mean pause doubles from attempt to attempt, up to a
/// maximum. Each pause is chosen at random between half and one and a half times the mean, so that
/// the ranks do not all connect at the same time.
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

/// Makes one attempt to connect to the store at `address`, and returns a client of the store. Sets
/// `*connected` to true as soon as the TCP connection is established, unless `connected` is null.
/// If `key` is empty and `address` is a loopback or unspecified address, fetches the generated
/// secret of the job through the local socket of the store. Then proves to the store that this
/// process knows the secret, and waits until the store accepts this process. On success, sets `key`
/// to the secret. Throws the error of the first step that fails. The arguments must outlive the
/// task.
task<std::shared_ptr<tcp_store>> dial_store_once(engine& driver, const endpoint& address,
                                                 const hello& local, secret& key,
                                                 time_point deadline, time_point default_timeout,
                                                 bool* connected = nullptr);

/// The errors of failed attempts to connect to a store. The caller uses them to decide whether to
/// try again.
struct dial_errors {
  const char* address;
  failure last{errc::unreachable};
  failure refusal{};  // the last refusal because of the store's limit on open files
  time_point refusal_time = 0;
  bool connected = false;

  bool is_permanent() const {
    return last.code == errc::rank_taken || last.code == errc::world_complete ||
           last.code == errc::join_failed || last.code == errc::insecure_bind ||
           last.code == errc::crypto_failed || last.code == errc::stale_generation;
  }
  /// Returns whether the last attempt failed because this process and the peer have different wire
  /// versions, or because the authentication between them failed.
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
  /// Returns the error to report. Returns `refusal` if it is less than 5 s old and both
  /// `is_permanent()` and `is_refused()` are false. In that case the store's limit on open files is
  /// probably the cause of the last error, too. Otherwise returns `last`.
  const failure& best_reason(time_point now) const {
    const bool is_recent = refusal.code == errc::too_many_files && now - refusal_time < 5 * seconds;
    return is_recent && !is_permanent() && !is_refused() ? refusal : last;
  }
  /// Returns the maximum of the mean pause before the next attempt. The store may close a new
  /// connection in order to accept another one. Therefore, the maximum is smaller after an attempt
  /// that established a connection and then lost it.
  time_point max_pause() const {
    const bool dropped = connected && last.code == errc::unreachable;
    return (dropped ? 50 : 500) * milliseconds;
  }
};

task<std::shared_ptr<tcp_store>> dial_store(engine& driver, std::string host, port_list ports,
                                            hello local, secret& key, time_point deadline,
                                            time_point default_timeout);

}  // namespace detail

/// Connects to the store at `address` (tcp://host:port) and returns a client of the store. Tries
/// every IP address of the host. If `ports` is not empty, tries these ports instead of the port in
/// `address`. If all attempts fail, tries again until the deadline. Throws earlier if an error
/// occurs that further attempts cannot resolve. On success, sets `key` to the secret that the store
/// has accepted. The arguments must outlive the task.
task<std::shared_ptr<tcp_store>> dial_store(engine& driver, const detail::store_address& address,
                                            const port_list& ports, const hello& local, secret& key,
                                            time_point deadline, time_point default_timeout);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/dial.ipp>
#endif
