// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A door: lets those in who prove the secret, and lets no stranger cost more than a few sockets.
//
// Unauthenticated connections are few and short. When all places are taken, a new connection takes
// the place of one drawn at random: a flood cannot aim at a rank, and a rank that lost its place
// dials again. Places change hands at a bounded rate, so that a rank has the time to prove the
// secret and the thread gets on with its work; what waits longer waits in the listener's queue.

#include <colls/base/log.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/driver/local_socket.hpp>

#include <list>
#include <memory>
#include <string>

namespace colls {

/// Watches a listener. A stranger has 5 s to prove the secret, counted only while the engine turns.
/// At most 2 x world (64 to 1024) are pending, and at most 1000 a second lose their place to
/// another one. At the limit on open files a peer is told so. The process writes one log line a
/// minute about all strangers.
class door final : engine::watcher, engine::source {
 public:
  class host {
   public:
    /// `guest` has proved the secret as `who`: keep it, or let it go. A verdict is due.
    virtual void enter(std::unique_ptr<stream> guest, const hello& who) = 0;

   protected:
    ~host() = default;
  };

  /// All but `mine` and `shared` must outlive the door.
  door(engine& on, listener& at, const hello& mine, const secret& shared, host& to,
       time_point patience = 5 * seconds);
  door(const door&) = delete;
  door& operator=(const door&) = delete;
  ~door();

  int pending_strangers() const { return static_cast<int>(strangers_.size()) - evicted_; }
  int most_strangers() const { return most_; }
  std::uint64_t turned_away() const { return turned_away_; }
  /// Why connections could not be taken in the last 10 s, or nothing.
  std::string lack() const;

 private:
  struct stranger {
    std::unique_ptr<stream> link;
    time_point came = 0;
    bool evicted = false;
  };
  using place = std::list<stranger>::iterator;

  // Gives the place back when it goes, whatever was thrown meanwhile.
  class taken_place {
   public:
    taken_place(door& at, place who) : door_(at), who_(who) {}
    taken_place(const taken_place&) = delete;
    ~taken_place() {
      if (who_->evicted) --door_.evicted_;
      door_.strangers_.erase(who_);
      if (door_.engine_.now() >= door_.rests_until_) door_.listen(true);
    }

   private:
    door& door_;
    place who_;
  };

  void ready(std::uint32_t) override;

  // Takes no connection until then.
  void rest(time_point span);
  task<> wake_at(time_point due);

  task<> greet(place who);

  // Whether one of `old` strangers may lose its place now: places do not change hands too fast.
  bool may_evict(int old);
  // Closes one of the first `old`, drawn at random.
  void evict(int& old);

  // This process lacks something for one more connection: those that wait are told, if the spare
  // descriptor helps.
  void refuse(int error);

  void listen(bool wanted);

  bool poll() override { return false; }
  void sweep(time_point now) override;
  bool pending() const override { return !strangers_.empty(); }

  engine& engine_;
  listener& listener_;
  hello mine_;
  secret shared_;
  host& host_;
  time_point patience_;
  int most_;
  time_point last_sweep_;
  time_point awake_ = 0;
  time_point rests_until_ = 0;
  time_point next_eviction_ = 0;
  bool listening_ = true;
  spare_descriptor spare_;
  int lack_ = 0;  // an errno, and when it came
  time_point lacked_ = 0;
  std::uint64_t turned_away_ = 0;
  std::uint64_t gone_ = 0;
  int evicted_ = 0;  // whose tasks have not ended yet
  std::list<stranger> strangers_;
  task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/authenticating_listener.ipp>
#endif
