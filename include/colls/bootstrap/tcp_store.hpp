// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The tcp store as its clients see it: one connection, any number of requests in flight on it.

#include <colls/bootstrap/store_server.hpp>

namespace colls {

/// A client of a `store_server`. Losing the server fails the requests under way and to come with
/// `unreachable` and hurts nothing else; if a rank served it and died, that is told as its failure.
class tcp_store final : public store, engine::source {
 public:
  /// `link` has the server's verdict behind it; `patience` bounds requests without a deadline.
  /// `checks`: frames have checksums, as this side has said in its HELLO.
  tcp_store(std::unique_ptr<stream> link, const hello& server, time_point patience,
            bool checks = false);
  tcp_store(const tcp_store&) = delete;
  tcp_store& operator=(const tcp_store&) = delete;
  ~tcp_store() override;

  /// host:port of the server.
  const std::string& where() const { return where_; }
  /// The address of this host that routes to the server.
  boost::asio::ip::address local_address() const { return local_; }
  int server_rank() const { return server_.rank; }
  bool is_lost() const { return lost_.has_value(); }

  /// Ends every request under way and to come with that failure; only `leave` is left.
  void interrupt(const failure& why);

  task<> report_failure(failure why, time_point deadline) override;
  void listen_for_failures(failure_listener* who) override;
  bool has_unread() const override { return !lost_ && !left_ && link_->has_input(); }
  task<> leave(time_point deadline) override;

 private:
  using frame = detail::store_frame;

  struct answer {
    std::string value;
    std::int64_t number = 0;
  };

  // In the frame of whoever asks.
  class request {
   public:
    request(tcp_store& of, std::uint32_t id, frame::kind what, time_point deadline)
        : store_(of), id_(id), what_(what), deadline_(deadline) {
      store_.requests_.emplace(id, this);
    }
    request(const request&) = delete;
    ~request() {
      if (ended_) return;
      store_.requests_.erase(id_);
      if (waits()) store_.forget(id_);
    }
    bool start(completion& done) {
      if (ended_) return true;
      done_ = &done;
      return false;
    }
    detail::outcome result() { return {}; }

    void finish(std::string value, std::int64_t number) {
      got.value = std::move(value);
      got.number = number;
      end();
    }
    void fail(const failure& why) {
      failed = why;
      end();
    }
    bool late(time_point now) const { return now >= deadline_; }
    std::uint32_t id() const { return id_; }
    bool waits() const { return what_ == frame::kind::get || what_ == frame::kind::wait; }

    answer got;
    std::optional<failure> failed;

   private:
    void end() {
      ended_ = true;
      if (done_ != nullptr) done_->post();
    }
    tcp_store& store_;
    std::uint32_t id_;
    frame::kind what_;
    time_point deadline_;
    completion* done_ = nullptr;
    bool ended_ = false;
  };

  task<answer> ask(frame::kind what, std::string key, std::string value, std::int64_t number,
                   time_point deadline);

  task<> do_set(std::string key, std::string value, time_point deadline) override;
  task<std::string> do_get(std::string key, time_point deadline) override;
  task<std::int64_t> do_add(std::string key, std::int64_t amount, time_point deadline) override;
  task<> do_wait(std::vector<std::string> keys, time_point deadline) override;
  task<std::string> do_compare_set(std::string key, std::string expected, std::string desired,
                                   time_point deadline) override;
  task<std::string> do_check(std::vector<std::string> keys, time_point deadline) override;

  void send(const frame& head, std::string_view key, std::string_view value);

  // Nobody waits for that answer any more.
  void forget(std::uint32_t id);

  task<> flush();

  task<> read_answers();
  // Until the connection ends; says how.
  task<> read_on();

  // False: no server of colls would send that.
  bool take(const frame& head, std::string& value);

  void failed(const reported_failure& report);

  void lose(const char* how);
  void lose(const failure& why);

  bool poll() override { return false; }
  bool pending() const override { return !requests_.empty(); }
  void sweep(time_point now) override;

  engine& engine_;
  std::unique_ptr<stream> link_;
  std::string where_;
  boost::asio::ip::address local_;
  hello server_;
  time_point patience_;
  bool checks_;
  std::unordered_map<std::uint32_t, request*> requests_;
  std::uint32_t last_id_ = 0;
  std::string out_;
  bool writing_ = false;
  bool left_ = false;
  std::optional<failure> lost_;
  std::optional<failure> given_up_;
  std::vector<reported_failure> failures_;
  failure_listener* listener_ = nullptr;
  task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/tcp_store.ipp>
#endif
