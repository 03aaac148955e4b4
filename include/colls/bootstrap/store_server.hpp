// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The server of the TCP store, the key-value service through which ranks find each other. The
// server also tells the ranks which other ranks have failed. Rank 0 or the launcher runs the
// server.

#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/bootstrap/local_secret.hpp>
#include <colls/bootstrap/store_frame.hpp>
#include <colls/os/rate_limited_log.hpp>

#include <memory>
#include <unordered_map>

namespace colls {

/// The server of the store of one world. If the connection of a rank closes and the rank has not
/// sent a goodbye (the message that a rank sends before it leaves), the server announces to all
/// other ranks that this rank has failed. Invalid or excessively large requests of a client do not
/// make the server fail.
class store_server final : authenticating_listener::handler, engine::source {
 public:
  /// Creates a server that does not listen yet. `local` must contain the job, the size of the
  /// world, and the rank that hosts the store (-1 for a launcher).
  store_server(engine& driver, hello local, const secret& key);
  store_server(const store_server&) = delete;
  store_server& operator=(const store_server&) = delete;
  ~store_server();

  /// Listens at `address`. If the port is 0, the system chooses one. May be called for several
  /// addresses. If `address` is a loopback or wildcard address, also opens a local (AF_UNIX) socket
  /// that gives a generated secret to the ranks of this machine. If this socket cannot be opened
  /// and the secret was generated, returns the error. If the secret was not generated, ranks do not
  /// need the socket, and the error is ignored.
  std::error_code listen(const endpoint& address);
  /// Takes ownership of `socket`, which must already listen, and accepts connections on it. Opens
  /// the local socket, and returns errors, under the same conditions as `listen`.
  std::error_code adopt(int socket);

  /// Returns whether a call of `listen` or `adopt` has failed because it could not open the local
  /// socket. A later call that opens this socket sets the result to false. A call for an address
  /// that needs no local socket does not change the result.
  bool lacks_local_socket() const { return lacks_local_socket_; }

  bool is_open() const { return !listening_.empty(); }
  /// Returns the first address at which the server listens. The server must be open.
  endpoint local() const { return listening_.front()->socket.local(); }
  /// Returns the number of ranks that have joined and have neither left nor failed.
  int present() const { return present_; }
  /// Returns whether the rank has joined, even if it has since left or failed.
  bool has_joined(int rank) const { return ranks_.contains(rank); }
  int pending_count() const;
  std::uint64_t rejected_count() const;
  /// Returns the text of an error that has prevented this process from accepting a connection in
  /// the last 10 s. Returns an empty string if there was no such error.
  std::string accept_error() const;

  /// Returns the number of bytes that the server has not sent to its clients yet.
  std::size_t unsent_bytes() const;
  /// Returns whether requests have arrived that the server has not read, or it has output that it
  /// has not sent.
  bool has_work() const;

  /// Sends `report` to all clients, and also to each client that connects after this call. `report`
  /// says that the rank `report.culprit` has failed, that the world cannot form (`report.culprit`
  /// is then -1), or that a communicator was revoked. Does nothing if the server has already
  /// announced this failure, or if `report` is one of very many revocations.
  void announce_failure(const reported_failure& report);
  void announce_failure(int rank, std::string_view reason);

  /// Sets whether the other ranks go on without `rank`, which may live. `drain` then does not wait
  /// for it.
  void exclude(int rank, bool is_excluded);

  /// Waits until every rank that has joined has left or failed, or until the deadline.
  task<> drain(time_point deadline);

  /// Stops listening. Sends the frame `bye` to each client and closes the connection. The frame
  /// tells the client that the server has not failed. If a write is in progress on a connection,
  /// sends no frame on this connection and does not close it.
  void close();

 private:
  using frame = detail::store_frame;

  struct listening_address {
    listener socket;
    std::unique_ptr<authenticating_listener> authenticator;
    std::unique_ptr<local_secret_server> local_secret;  // null if there is no local socket
  };

  struct client;
  struct pending_wait final : detail::store_table::waiter {
    pending_wait(store_server& host, client& peer, std::uint32_t request)
        : server(host), owner(peer), id(request) {}
    void ready() override { server.keys_ready(*this); }
    store_server& server;
    client& owner;
    std::uint32_t id;
    std::string key;        // the key of a `get` request, or empty for a `wait` request
    std::size_t bytes = 0;  // the memory that the awaited keys occupy
  };

  struct client : std::enable_shared_from_this<client> {
    std::unique_ptr<stream> connection;
    hello info;
    std::string address;
    bool has_entered = false;
    bool has_left = false;
    bool writing = false;
    std::string output;
    std::string sending;  // the part of the output that is being written
    std::size_t failures_sent = 0;
    std::size_t waited_key_bytes = 0;
    std::unordered_map<std::uint32_t, std::unique_ptr<pending_wait>> waits;
    std::vector<std::uint32_t> ready;  // the ids of the `waits` whose keys all exist
  };
  using client_ptr = std::shared_ptr<client>;

  struct drain_operation {
    explicit drain_operation(store_server& host) : server(host) {}
    drain_operation(const drain_operation&) = delete;
    ~drain_operation() { server.drained_ = nullptr; }
    bool start(completion& done) {
      if (!server.awaits_ranks()) return true;
      server.drained_ = &done;
      return false;
    }
    void result() {}
    store_server& server;
  };

  static constexpr std::size_t max_waits = 4096;
  static constexpr std::size_t max_waited_key_bytes = std::size_t{16} << 20;
  static constexpr std::size_t max_revocations = 4096;
  static constexpr std::size_t max_unsent_bytes = std::size_t{32} << 20;

  std::error_code open(std::unique_ptr<listening_address> entry);

  COLLS_ONCE void handle_peer(std::unique_ptr<stream> connection, const hello& peer) override;

  // Returns whether a rank is present that is not excluded.
  bool awaits_ranks() const;
  verdict decide_verdict(const hello& peer) const;

  task<> serve_client(client_ptr peer);

  // Handles the requests of `peer` one after the other. When reading fails or a frame has a wrong
  // checksum, returns the error code. Throws `protocol_error` if a request is invalid. `peer` must
  // outlive the task.
  task<detail::outcome> serve_requests(client& peer);

  // Sends the frame `bye`. Then waits up to 1 s for the client to close the connection.
  task<> end_after_error(client& peer);

  void handle_request(client& peer, const frame& request, const std::string& key,
                      std::string& value);

  static std::vector<std::string> parse_strings(std::string_view joined);

  pending_wait& wait_for(client& peer, std::uint32_t id, const std::vector<std::string>& keys);
  void forget(client& peer, std::uint32_t id);

  // Reserves enough memory in `failures_` for the failure of every client. `announce_failure` can
  // then add these failures even if memory is short.
  void reserve_failures();
  // Sends to `peer` all known failures that the server has not sent to it yet. If an allocation
  // fails, the next call of `sweep` tries again. The engine calls `sweep` periodically.
  void send_failures(client& peer);

  // Called when all keys that the request `it` waits for exist. Marks the request as ready, so that
  // `flush` sends the reply. `flush` copies the value only when the client has little unsent
  // output. Otherwise the replies to many requests could exhaust the memory.
  void keys_ready(pending_wait& it);

  void reply(client& peer, const frame& header, std::string_view value);

  // Starts to write the output of `peer`, unless a write is in progress. If an allocation fails,
  // the next call of `sweep` tries again. The engine calls `sweep` periodically.
  void start_flush(client& peer);
  task<> flush(client_ptr peer);
  void reply_ready(client& peer);

  void client_gone();
  void end_drain();

  bool poll() override { return false; }
  COLLS_ONCE void sweep(time_point now) override;

  engine& engine_;
  hello local_;
  secret key_;
  detail::store_table table_;
  std::unordered_map<int, bool> ranks_;  // for each rank that has joined, whether it is present
  std::vector<reported_failure> failures_;
  std::size_t revocations_ = 0;  // the number of revocations in `failures_`
  std::vector<client_ptr> clients_;
  int present_ = 0;
  std::vector<int> excluded_;
  bool lacks_local_socket_ = false;
  rate_limited_log log_{10};
  completion* drained_ = nullptr;
  time_point drain_deadline_ = never;
  task_group tasks_;
  // This member is declared last and is therefore destroyed first. As a result, no new client can
  // connect while the other members are destroyed.
  std::vector<std::unique_ptr<listening_address>> listening_;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/store_server.ipp>
#endif
