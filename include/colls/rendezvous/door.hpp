// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A door: lets those in who prove the secret, and lets no stranger cost more than a few sockets.

#include <colls/log.hpp>
#include <colls/rendezvous/authenticate.hpp>

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <new>

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
       time_point patience = 5 * seconds)
      : engine_(on),
        listener_(at),
        mine_(mine),
        shared_(shared),
        host_(to),
        patience_(patience),
        most_(std::max(16, 2 * mine.world)),
        last_sweep_(on.now()),
        tasks_(on) {
    engine_.watch(listener_.descriptor(), EPOLLIN, *this);
    try {
      engine_.add(static_cast<engine::source&>(*this), false);
    } catch (...) {
      engine_.unwatch(listener_.descriptor(), *this);
      throw;
    }
  }
  door(const door&) = delete;
  door& operator=(const door&) = delete;
  ~door() {
    engine_.remove(static_cast<engine::source&>(*this));
    engine_.unwatch(listener_.descriptor(), *this);
  }

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

  void ready(std::uint32_t) override {
    // Bounded, so that a flood does not keep the thread from its work.
    for (int accepted = 0; accepted < 64; ++accepted) {
      if (pending_strangers() >= most_ && !make_room()) return listen(false);
      detail::descriptor socket = listener_.accept();
      if (!socket) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          rest(std::strerror(errno));
        }
        return;
      }
      try {
        strangers_.push_back({std::make_unique<stream>(engine_, std::move(socket)), awake_});
      } catch (const error& thrown) {
        return rest(thrown.record().detail);
      } catch (const std::bad_alloc&) {
        return rest(std::strerror(ENOMEM));
      }
      try {
        tasks_.start(greet(std::prev(strangers_.end())));
      } catch (const std::bad_alloc&) {
        strangers_.pop_back();
        return rest(std::strerror(ENOMEM));
      }
    }
  }

  // Until the next sweep.
  void rest(const char* why) {
    log_.warn("cannot take a connection at %s: %s", detail::text_of(listener_.local()).c_str(),
              why);
    listen(false);
  }

  task<> greet(place who) {
    std::unique_ptr<stream> guest;
    hello peer;
    try {
      peer = co_await challenge(*who->link, mine_, shared_, &who->greeted);
      guest = std::move(who->link);
    } catch (const error& thrown) {
      ++turned_away_;
      // A few that come and leave may be ranks that ended, or computed, before they were in.
      if (thrown.record().code != errc::closed || ++gone_ % 64 == 0) {
        log_.warn("turned away at %s: %s", detail::text_of(listener_.local()).c_str(),
                  thrown.record().detail);
      }
    } catch (const std::bad_alloc&) {
      ++turned_away_;
    }
    strangers_.erase(who);
    listen(true);
    if (guest) host_.enter(std::move(guest), peer);
  }

  // Closes one that has said nothing; which one, a flood must not be able to choose.
  bool make_room() {
    const auto silent = std::count_if(strangers_.begin(), strangers_.end(), [](const stranger& it) {
      return !it.greeted && it.link->is_open();
    });
    if (silent == 0) return false;
    std::uint32_t draw = 0;
    detail::fill_random(&draw, sizeof draw);
    auto skip = static_cast<std::ptrdiff_t>(draw % static_cast<std::uint32_t>(silent));
    for (stranger& it : strangers_) {
      if (!it.greeted && it.link->is_open() && skip-- == 0) {
        it.link->close();
        return pending_strangers() < 2 * most_;
      }
    }
    return false;
  }

  void listen(bool wanted) {
    if (listening_ == wanted) return;
    listening_ = wanted;
    engine_.rewatch(listener_.descriptor(), wanted ? static_cast<std::uint32_t>(EPOLLIN) : 0U,
                    *this);
  }

  bool poll() override { return false; }
  void sweep(time_point now) override {
    awake_ += std::min<time_point>(now - last_sweep_, 200 * milliseconds);
    last_sweep_ = now;
    for (stranger& it : strangers_) {
      if (it.link && awake_ - it.came >= patience_) it.link->close();
    }
    if (pending_strangers() < most_) listen(true);
  }
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
