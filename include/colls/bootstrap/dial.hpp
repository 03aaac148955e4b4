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

/// A generator of pauses between attempts to connect. The pauses double up to a maximum. Random
/// jitter keeps the ranks from connecting at the same time.
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

/// Makes one attempt to connect to the store at `address`, and returns the client. The steps are:
/// connect; if `key` is empty and `address` is on this machine, fetch the generated secret from the
/// local socket; prove to the store that this process knows the secret; wait for the verdict, which
/// says whether the store accepts this process. Sets `*connected` to true after the first step.
/// After the last step, sets `key` to the secret that the store has accepted. Throws the error of
/// the step that fails. The arguments must outlive the task.
task<std::shared_ptr<tcp_store>> dial_store_once(engine& driver, const endpoint& address,
                                                 const hello& local, secret& key,
                                                 time_point deadline, time_point default_timeout,
                                                 bool* connected = nullptr);

/// A record of failed attempts to connect to a store. From it the caller decides whether to try
/// again.
struct dial_errors {
  const char* address;
  failure last{errc::unreachable};
  failure refusal{};  // the last refusal because of the store's limit on open files
  time_point refusal_time = 0;
  bool connected = false;

  bool is_permanent() const {
    return last.code == errc::rank_taken || last.code == errc::world_complete ||
           last.code == errc::join_failed || last.code == errc::insecure_bind ||
           last.code == errc::crypto_failed;
  }
  /// Returns whether the last attempt failed because the process at this address has another wire
  /// version or does not accept the secret of this process.
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
  /// Returns the error to report. This is the last error, with one exception. If another attempt
  /// may resolve the last error, and the store has refused a connection in the last 5 s because of
  /// its limit on open files, returns this refusal, because it explains more.
  const failure& best_reason(time_point now) const {
    const bool is_recent = refusal.code == errc::too_many_files && now - refusal_time < 5 * seconds;
    return is_recent && !is_permanent() && !is_refused() ? refusal : last;
  }
  /// Returns the maximum pause before the next attempt. The maximum is small if the last attempt
  /// established a connection that was then lost, because the store may have closed the connection
  /// only to accept another one.
  time_point max_pause() const {
    const bool dropped = connected && last.code == errc::unreachable;
    return (dropped ? 50 : 500) * milliseconds;
  }
};

task<std::shared_ptr<tcp_store>> dial_store(engine& driver, std::string host, port_list ports,
                                            hello local, secret& key, time_point deadline,
                                            time_point default_timeout);

}  // namespace detail

/// Connects to the store at `address` (tcp://host:port) and returns the client. Repeats the attempt
/// until it succeeds, until the deadline, or until an error shows that further attempts are
/// useless. Tries every IP address of the host. If `ports` is not empty, tries these ports instead
/// of the port in `address`. Sets `key` to the secret that the store has accepted. The arguments
/// must outlive the task.
task<std::shared_ptr<tcp_store>> dial_store(engine& driver, const detail::store_address& address,
                                            const port_list& ports, const hello& local, secret& key,
                                            time_point deadline, time_point default_timeout);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/dial.ipp>
#endif
