// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The client of the TCP store. The client uses one connection, on which any number of requests can
// be outstanding.

#include <colls/bootstrap/store_server.hpp>

namespace colls {

/// A client of a `store_server`. If the connection is lost, outstanding and later requests fail
/// with `unreachable`. If the connection is lost because the rank that hosted the store has died,
/// the client also reports that rank's failure to the failure listener.
class tcp_store final : public store, engine::source {
 public:
  /// Creates a client that uses `connection`. The handshake must be complete, and the server must
  /// have accepted this process. `server` is the HELLO (the first message of the handshake) of the
  /// server. `default_timeout` applies to requests without a deadline. `has_checksums` says whether
  /// this process has requested checksums in its own HELLO.
  tcp_store(std::unique_ptr<stream> connection, const hello& server, time_point default_timeout,
            bool has_checksums = false);
  tcp_store(const tcp_store&) = delete;
  tcp_store& operator=(const tcp_store&) = delete;
  COLLS_ONCE ~tcp_store() override;

  /// Returns the local address of the connection to the server.
  boost::asio::ip::address local_address() const { return local_; }
  int server_rank() const { return server_.rank; }
  bool is_lost() const { return loss_.has_value(); }

  /// Makes all outstanding and later requests fail with `reason`, except the goodbye that `leave`
  /// sends. If an earlier call has set another reason, the requests fail with that reason.
  void interrupt(const failure& reason);
  failure_listener* listener() const { return listener_; }

  COLLS_ONCE task<> report_failure(failure reason, time_point deadline) override;
  COLLS_ONCE void listen_for_failures(failure_listener* listener) override;
  bool has_unread() const override { return !loss_ && !has_left_ && connection_->has_input(); }
  COLLS_ONCE task<> leave(time_point deadline) override;

 private:
  using frame = detail::store_frame;

  struct answer {
    std::string value;
    std::int64_t number = 0;
  };

  // An outstanding request. Each request is a local variable of the coroutine function `call`.
  class request {
   public:
    request(tcp_store& owner, std::uint32_t id, frame::opcode op, time_point deadline)
        : store_(owner), id_(id), op_(op), deadline_(deadline) {
      store_.requests_.emplace(id, this);
    }
    request(const request&) = delete;
    ~request() {
      if (ended_) return;
      store_.requests_.erase(id_);
      if (is_wait()) store_.forget(id_);
    }
    bool start(completion& done) {
      if (ended_) return true;
      done_ = &done;
      return false;
    }
    detail::outcome result() { return {}; }

    void finish(std::string value, std::int64_t number) {
      reply.value = std::move(value);
      reply.number = number;
      end();
    }
    void fail(const failure& reason) {
      cause = reason;
      end();
    }
    bool is_overdue(time_point now) const { return now >= deadline_; }
    std::uint32_t id() const { return id_; }
    bool is_wait() const { return op_ == frame::opcode::get || op_ == frame::opcode::wait; }

    answer reply;
    std::optional<failure> cause;

   private:
    void end() {
      ended_ = true;
      if (done_ != nullptr) done_->post();
    }
    tcp_store& store_;
    std::uint32_t id_;
    frame::opcode op_;
    time_point deadline_;
    completion* done_ = nullptr;
    bool ended_ = false;
  };

  task<answer> call(frame::opcode op, std::string key, std::string value, std::int64_t number,
                    time_point deadline);

  COLLS_ONCE task<> do_set(std::string key, std::string value, time_point deadline) override;
  COLLS_ONCE task<std::string> do_get(std::string key, time_point deadline) override;
  COLLS_ONCE task<std::int64_t> do_add(std::string key, std::int64_t amount,
                                       time_point deadline) override;
  COLLS_ONCE task<> do_wait(std::vector<std::string> keys, time_point deadline) override;
  COLLS_ONCE task<std::string> do_compare_set(std::string key, std::string expected,
                                              std::string desired, time_point deadline) override;
  COLLS_ONCE task<std::string> do_check(std::vector<std::string> keys,
                                        time_point deadline) override;

  void send(const frame& header, std::string_view key, std::string_view value);

  // Tells the server that this client no longer needs the reply to the request `id`.
  void forget(std::uint32_t id);

  task<> flush();

  task<> read_loop();
  // Reads frames from the server and handles them. When reading fails or a frame is invalid, makes
  // all outstanding and later requests fail with an error that contains the reason.
  task<> read_frames();

  // Handles a frame from the server. Returns false if the frame is invalid.
  bool handle_reply(const frame& header, std::string& value);

  void record_failure(const reported_failure& report);

  void disconnect(const char* cause);
  void disconnect(const failure& reason);

  bool poll() override { return false; }
  COLLS_ONCE void sweep(time_point now) override;

  engine& engine_;
  std::unique_ptr<stream> connection_;
  std::string server_address_;
  boost::asio::ip::address local_;
  hello server_;
  time_point default_timeout_;
  bool has_checksums_;
  std::unordered_map<std::uint32_t, request*> requests_;
  std::uint32_t last_id_ = 0;
  std::string output_;
  bool writing_ = false;
  bool has_left_ = false;
  std::optional<failure> loss_;
  std::optional<failure> interruption_;
  std::vector<reported_failure> failures_;
  failure_listener* listener_ = nullptr;
  task_group tasks_;  // declared last, so that its tasks are destroyed before all other members
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/tcp_store.ipp>
#endif
