// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A door: lets those in who prove the secret, and lets no stranger cost more than a few sockets.

#include <colls/log.hpp>
#include <colls/rendezvous/authenticate.hpp>

#include <list>
#include <memory>

namespace colls {

/// Watches a listener. A stranger has 5 s to prove the secret, counted only while the engine turns;
/// at most 2 x world (at least 16) are pending, and of those the ones that have said nothing make
/// room first. Who fails gets no answer; one log line in 10 s tells of them.
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

  int pending_strangers() const { return static_cast<int>(strangers_.size()); }
  int most_strangers() const { return most_; }
  std::uint64_t turned_away() const { return turned_away_; }

 private:
  struct stranger {
    std::unique_ptr<stream> link;
    time_point came = 0;
    bool greeted = false;
  };
  using place = std::list<stranger>::iterator;

  void ready(std::uint32_t) override;

  // Until the next sweep.
  void rest(const char* why);

  task<> greet(place who);

  // Closes one that has said nothing; which one, a flood must not be able to choose.
  bool make_room();

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
  bool listening_ = true;
  rate_limited_log log_{10};
  std::uint64_t turned_away_ = 0;
  std::uint64_t gone_ = 0;
  std::list<stranger> strangers_;
  task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/impl/rendezvous/door.ipp>
#endif
