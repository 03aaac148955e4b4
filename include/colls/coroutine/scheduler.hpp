// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// scheduler: what runs the coroutines of one thread. It consists of a run queue, a clock and
// timers.

#include <colls/base/clock.hpp>
#include <colls/coroutine/completion.hpp>

#include <utility>

namespace colls {

/// The run queue, the clock and the timers of one thread. The engine of an executor is a scheduler
/// in real time. The scheduler of a simulation has virtual time.
class scheduler {
 public:
  /// An operation that completes at the time `due`.
  class timer {
   public:
    timer(scheduler& owner, time_point due) : owner_(owner), due_(due) {}
    timer(timer&& other) noexcept : owner_(other.owner_), due_(other.due_) {}
    ~timer() {
      if (done_ != nullptr) owner_.remove_timer(*this);
    }
    bool start(completion& done) {
      if (owner_.now() >= due_) return true;
      done_ = &done;
      owner_.add_timer(*this);
      return false;
    }
    void result() {}

    time_point due() const { return due_; }
    /// Called by the scheduler after it has removed this timer, because the timer is due.
    void expire() { std::exchange(done_, nullptr)->post(); }

   private:
    scheduler& owner_;
    time_point due_;
    completion* done_ = nullptr;
  };

  virtual time_point now() const = 0;
  run_queue& queue() { return queue_; }
  timer sleep_until(time_point due) { return {*this, due}; }

  /// Calls the handlers of the events that have occurred, such as the arrival of bytes on a
  /// descriptor. Does not wait. Returns whether there were any events.
  virtual bool dispatch_events() = 0;
  /// Returns whether the thread waits in a loop that polls without sleeping. In this case, events
  /// need not be reported, because the polls find what has happened.
  virtual bool spins_now() const = 0;

 protected:
  ~scheduler() = default;

  run_queue queue_;

 private:
  virtual void add_timer(timer& waiting) = 0;
  virtual void remove_timer(timer& waiting) = 0;
};

}  // namespace colls
