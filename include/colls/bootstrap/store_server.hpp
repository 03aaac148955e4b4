// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The serving side of the tcp store, and its failure channel: rank 0 runs it, or the launcher.

#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/bootstrap/local_secret.hpp>
#include <colls/bootstrap/store_frame.hpp>
#include <colls/os/rate_limited_log.hpp>

#include <memory>
#include <unordered_map>

namespace colls {

/// Serves a store to one world. A rank whose connection ends without a goodbye is announced to all
/// others as failed; nothing that a client does can end the server.
class store_server final : door::host, engine::source {
 public:
  /// `mine`: job, world, and the rank that serves (-1: a launcher).
  store_server(engine& on, hello mine, const secret& shared);
  store_server(const store_server&) = delete;
  store_server& operator=(const store_server&) = delete;
  ~store_server();

  /// Port 0 lets the system choose. May be called for several addresses. On loopback it listens for
  /// those that ask for the local key, too; where that cannot be and the secret is drawn, it fails.
  std::error_code listen(const endpoint& where);
  /// Takes over a socket that listens already.
  std::error_code adopt(int listening);

  /// Why it failed last: for want of a local socket, without which no secret is drawn.
  bool lacks_local_socket() const { return lacks_local_socket_; }

  bool is_open() const { return !gates_.empty(); }
  /// Where it listens first.
  endpoint local() const { return gates_.front()->at.local(); }
  /// Ranks that are here: they came and neither left nor failed.
  int present() const { return present_; }
  /// Whether that rank is here or was.
  bool has_come(int rank) const { return ranks_.contains(rank); }
  int pending_strangers() const;
  std::uint64_t turned_away() const;
  /// Why some rank may wait outside: connections could not be taken lately, for that reason.
  std::string lack() const;

  /// Bytes of answers that clients have not taken yet.
  std::size_t unsent() const;

  /// Tells all clients, now and later ones, that `why.culprit` has failed (-1: that the world
  /// cannot form), or that `why.communicator` was revoked. The first word on each counts.
  void announce_failure(const reported_failure& report);
  void announce_failure(int rank, std::string_view how);

  /// Waits until every rank that came has left or failed.
  task<> drain(time_point deadline);

  /// Turns everybody away; clients see an orderly end.
  void close();

 private:
  using frame = detail::store_frame;

  struct gate {
    listener at;
    std::unique_ptr<door> guard;
    std::unique_ptr<key_server> keys;  // beside a loopback address
  };

  struct guest;
  struct waiting final : detail::store_table::waiter {
    waiting(store_server& at, guest& of, std::uint32_t request)
        : server(at), owner(of), id(request) {}
    void ready() override { server.arrived(*this); }
    store_server& server;
    guest& owner;
    std::uint32_t id;
    std::string key;        // of a get; empty: of a wait
    std::size_t bytes = 0;  // that its keys take
  };

  struct guest : std::enable_shared_from_this<guest> {
    std::unique_ptr<stream> link;
    hello who;
    std::string where;
    bool entered = false;
    bool left = false;
    bool writing = false;
    std::string out;
    std::string sending;              // what is being written of it
    std::size_t told = 0;             // of the failures
    std::size_t keys_waited_for = 0;  // in bytes
    std::unordered_map<std::uint32_t, std::unique_ptr<waiting>> waits;
    std::vector<std::uint32_t> ready;  // those of `waits` whose keys are all there
  };
  using guest_ptr = std::shared_ptr<guest>;

  struct departure {
    explicit departure(store_server& of) : server(of) {}
    departure(const departure&) = delete;
    ~departure() { server.drained_ = nullptr; }
    bool start(completion& done) {
      if (server.present_ == 0) return true;
      server.drained_ = &done;
      return false;
    }
    void result() {}
    store_server& server;
  };

  static constexpr std::size_t most_waits = 4096;
  static constexpr std::size_t most_bytes_waited_for = std::size_t{16} << 20;
  static constexpr std::size_t most_revocations = 4096;
  static constexpr std::size_t most_unsent = std::size_t{32} << 20;

  std::error_code open(std::unique_ptr<gate> made);

  void enter(std::unique_ptr<stream> link, const hello& who) override;

  verdict judge(const hello& who) const;

  task<> serve(guest_ptr me);

  // Ends when the connection does, or with a frame that was damaged. The caller keeps the guest.
  task<detail::outcome> converse(guest& me);

  // Says why, and waits for the guest to go.
  task<> part_from(guest& me);

  void handle(guest& me, const frame& request, const std::string& key, std::string& value);

  static std::vector<std::string> texts(std::string_view joined);

  waiting& wait_for(guest& me, std::uint32_t id, const std::vector<std::string>& keys);
  void forget(guest& me, std::uint32_t id);

  // Memory for the death of each guest that is here, so that this news is never lost.
  void make_room();
  // What a guest has not heard yet. Where there is no memory for it the next sweep tells it.
  void tell(guest& it);

  // The answer is copied when the guest has taken those before it.
  void arrived(waiting& it);

  void answer(guest& to, const frame& head, std::string_view value);

  // Where there is no memory for it the next sweep tries again.
  void write_soon(guest& to);
  task<> flush(guest_ptr to);
  void answer_ready(guest& to);

  void gone();
  void drained();

  bool poll() override { return false; }
  bool pending() const override { return drained_ != nullptr; }
  void sweep(time_point now) override;

  engine& engine_;
  hello mine_;
  secret shared_;
  detail::store_table table_;
  std::unordered_map<int, bool> ranks_;  // those that came; false: left or failed
  std::vector<reported_failure> failures_;
  std::size_t revocations_ = 0;  // of these; the others are deaths
  std::vector<guest_ptr> guests_;
  int present_ = 0;
  bool lacks_local_socket_ = false;
  rate_limited_log log_{10};
  completion* drained_ = nullptr;
  time_point drain_deadline_ = never;
  task_group tasks_;
  std::vector<std::unique_ptr<gate>> gates_;  // last: strangers enter through them
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/store_server.ipp>
#endif
