// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The tcp store as its clients see it: one connection, any number of requests in flight on it.

#include <colls/rendezvous/store_server.hpp>

namespace colls {

/// A client of a `store_server`. Losing the server fails the requests under way and to come with
/// `unreachable` and hurts nothing else; if a rank served it and died, that is told as its failure.
class tcp_store final : public store, engine::source {
 public:
  /// `link` has the server's verdict behind it; `patience` bounds requests without a deadline.
  tcp_store(std::unique_ptr<stream> link, const hello& server, time_point patience)
      : engine_(link->on()),
        link_(std::move(link)),
        where_(detail::text_of(link_->remote())),
        local_(link_->local().address()),
        server_(server),
        patience_(patience),
        tasks_(engine_) {
    detail::keep_alive(link_->descriptor());
    link_->deadline(never);
    engine_.add(static_cast<engine::source&>(*this), false);
    send({.what = frame::kind::enter}, {}, {});
    tasks_.start(read_answers());
  }
  tcp_store(const tcp_store&) = delete;
  tcp_store& operator=(const tcp_store&) = delete;
  ~tcp_store() override {
    engine_.remove(static_cast<engine::source&>(*this));
    if (lost_ || left_ || writing_ || !link_->is_open()) return;
    std::string last;
    detail::append_frame(last, {.what = frame::kind::goodbye}, {}, {});
    const detail::descriptor socket = link_->release();
    [[maybe_unused]] const auto ignored =
        ::send(socket.get(), last.data(), last.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }

  /// host:port of the server.
  const std::string& where() const { return where_; }
  /// The address of this host that routes to the server.
  boost::asio::ip::address local_address() const { return local_; }
  int server_rank() const { return server_.rank; }
  bool is_lost() const { return lost_.has_value(); }

  /// Ends every request under way and to come with that failure; only `leave` is left.
  void interrupt(const failure& why) {
    if (!given_up_) given_up_ = why;
    for (auto& [id, it] : std::exchange(requests_, {})) it->fail(*given_up_);
  }

  task<> report_failure(failure why, time_point deadline) override {
    co_await ask(frame::kind::report, std::string(), std::string(detail::bytes_of(why)), 0,
                 deadline);
  }
  void listen_for_failures(failure_listener* who) override {
    listener_ = who;
    for (std::size_t i = 0; i < failures_.size() && listener_ != nullptr; ++i) {
      listener_->rank_failed(failures_[i].culprit, failures_[i]);
    }
  }
  task<> leave(time_point deadline) override {
    if (lost_ || left_) co_return;
    left_ = true;
    try {
      co_await ask(frame::kind::goodbye, std::string(), std::string(), 0, deadline);
    } catch (const error& gone) {
      log_debug("the store at %s did not answer to the goodbye: %s", where_.c_str(),
                gone.record().detail);
    }
    link_->close();
  }

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
                   time_point deadline) {
    if (given_up_ && (lost_ || what != frame::kind::goodbye)) throw error(*given_up_);
    if (key.size() > longest_key || value.size() > frame::longest_value) {
      detail::raise(errc::invalid_argument, "a key of %zu bytes with a value of %zu: too long",
                    key.size(), value.size());
    }
    if (deadline == never) deadline = time_span::of(patience_).after(engine_.now());
    request mine(*this, ++last_id_, what, deadline);
    send({.what = what, .id = mine.id(), .number = number}, key, value);
    co_await mine;
    if (mine.failed) {
      if (mine.failed->code == errc::timeout) {
        mine.failed->say("the store at %s did not give an answer on '%.160s' in time",
                         where_.c_str(), key.c_str());
      }
      throw error(*mine.failed);
    }
    co_return std::move(mine.got);
  }

  task<> do_set(std::string key, std::string value, time_point deadline) override {
    co_await ask(frame::kind::set, std::move(key), std::move(value), 0, deadline);
  }
  task<std::string> do_get(std::string key, time_point deadline) override {
    answer got = co_await ask(frame::kind::get, std::move(key), std::string(), 0, deadline);
    co_return std::move(got.value);
  }
  task<std::int64_t> do_add(std::string key, std::int64_t amount, time_point deadline) override {
    const answer got =
        co_await ask(frame::kind::add, std::move(key), std::string(), amount, deadline);
    co_return got.number;
  }
  task<> do_wait(std::vector<std::string> keys, time_point deadline) override {
    co_await ask(frame::kind::wait, std::string(), detail::join_texts(keys), 0, deadline);
  }
  task<std::string> do_compare_set(std::string key, std::string expected, std::string desired,
                                   time_point deadline) override {
    std::string both;
    detail::append_text(both, expected);
    detail::append_text(both, desired);
    answer got =
        co_await ask(frame::kind::compare_set, std::move(key), std::move(both), 0, deadline);
    co_return std::move(got.value);
  }
  task<std::string> do_check(std::vector<std::string> keys, time_point deadline) override {
    answer got =
        co_await ask(frame::kind::check, std::string(), detail::join_texts(keys), 0, deadline);
    co_return std::move(got.value);
  }

  void send(const frame& head, std::string_view key, std::string_view value) {
    detail::append_frame(out_, head, key, value);
    if (!writing_) tasks_.start(flush());
  }

  // Nobody waits for that answer any more.
  void forget(std::uint32_t id) {
    if (!lost_) send({.what = frame::kind::forget, .id = id}, {}, {});
  }

  task<> flush() {
    writing_ = true;
    while (!out_.empty()) {
      const std::string batch = std::exchange(out_, {});
      const detail::outcome done = co_await detail::attempt(
          link_->write({reinterpret_cast<const std::byte*>(batch.data()), batch.size()}));
      if (!done) break;  // the reader says why
    }
    writing_ = false;
  }

  task<> read_answers() {
    std::array<std::byte, frame::size> bytes{};
    std::string key;
    std::string value;
    std::error_code ec;
    while (!lost_) {
      const detail::outcome done = co_await detail::attempt(link_->read(detail::whole(bytes)));
      ec = done.ec;
      if (!done) break;
      const std::optional<frame> head = detail::parse_store_frame(bytes);
      if (!head || head->what < frame::kind::reply || head->key_size != 0) {
        ec = make_error_code(errc::protocol_error);
        break;
      }
      const detail::outcome rest = co_await detail::read_text(*link_, value, head->value_size);
      ec = rest.ec;
      if (!rest) break;
      if (head->what == frame::kind::bye) {
        lose("it has left");
        co_return;
      }
      take(*head, value);
    }
    if (left_ && requests_.empty()) co_return;
    const bool silent = ec == std::errc::timed_out || ec == std::errc::host_unreachable;
    const bool died = ec == errc::closed || ec == std::errc::connection_reset || silent;
    lose(ec == errc::closed ? "it hung up" : ec.message().c_str());
    if (died && !left_ && server_.rank >= 0) {
      failure why(errc::peer_failed);
      why.culprit = server_.rank;
      std::snprintf(why.address, sizeof why.address, "%s", where_.c_str());
      why.say(silent ? "its host is silent" : "its process ended without a goodbye");
      failed(why);
    }
  }

  void take(const frame& head, std::string& value) {
    if (head.what == frame::kind::failed) {
      if (const auto why = detail::read_failure(value)) failed(*why);
      return;
    }
    const auto found = requests_.find(head.id);
    if (found == requests_.end()) return;  // it was withdrawn or late
    request& it = *found->second;
    requests_.erase(found);
    if (head.what == frame::kind::reply) return it.finish(std::move(value), head.number);
    const auto why = detail::read_failure(value);
    it.fail(why ? *why : failure(errc::protocol_error, "the store refused without a reason"));
  }

  void failed(const failure& why) {
    failures_.push_back(why);
    if (listener_ != nullptr) listener_->rank_failed(why.culprit, why);
  }

  void lose(const char* how) {
    failure why(errc::unreachable);
    why.culprit = server_.rank;
    std::snprintf(why.address, sizeof why.address, "%s", where_.c_str());
    why.say("the store at %s, served by %s, is gone: %s", where_.c_str(),
            server_.rank < 0 ? "the launcher" : ("rank " + std::to_string(server_.rank)).c_str(),
            how);
    lost_ = why;
    log_debug("%s", why.detail);
    interrupt(why);
  }

  bool poll() override { return false; }
  bool pending() const override { return !requests_.empty(); }
  void sweep(time_point now) override {
    std::vector<request*> late;
    for (const auto& [id, it] : requests_) {
      if (it->late(now)) late.push_back(it);
    }
    for (request* it : late) {
      requests_.erase(it->id());
      if (it->waits()) forget(it->id());
      it->fail(failure(errc::timeout));
    }
  }

  engine& engine_;
  std::unique_ptr<stream> link_;
  std::string where_;
  boost::asio::ip::address local_;
  hello server_;
  time_point patience_;
  std::unordered_map<std::uint32_t, request*> requests_;
  std::uint32_t last_id_ = 0;
  std::string out_;
  bool writing_ = false;
  bool left_ = false;
  std::optional<failure> lost_;
  std::optional<failure> given_up_;
  std::vector<failure> failures_;
  failure_listener* listener_ = nullptr;
  task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace colls
