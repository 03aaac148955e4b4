// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The engine turns everything of one executor: its sockets, its transports, its run queue.

#if defined(__CUDACC__) && !defined(BOOST_ASIO_DISABLE_VARIABLE_TEMPLATES)
#define BOOST_ASIO_DISABLE_VARIABLE_TEMPLATES 1  // nvcc with g++ cannot parse Asio's traits
#endif

#include <colls/base/clock.hpp>
#include <colls/base/error.hpp>
#include <colls/coroutine/completion.hpp>
#include <colls/driver/idle_policy.hpp>
#include <colls/os/descriptor.hpp>
#include <colls/os/fork_guard.hpp>
#include <colls/os/log_writer.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sched.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace colls {

namespace detail {
boost::asio::io_context* io_context_of(const boost::asio::any_io_executor& executor);
}

/// One per executor; every transport and store on that executor shares it, and nothing in it may
/// be touched from another thread or strand. It is a driver: `sync_wait(engine, task)` turns it.
/// A user's `io_context::run()` turns it too, by one standing wait on its epoll descriptor.
class engine : public std::enable_shared_from_this<engine> {
 public:
  /// Called when a watched descriptor is ready (EPOLL* bits).
  class watcher {
   public:
    virtual void ready(std::uint32_t events) = 0;

   protected:
    ~watcher() = default;
  };

  /// A transport: `poll` tries its system calls at once and says whether bytes moved; `sweep` looks
  /// at deadlines, a few times a second while something is pending.
  class source {
   public:
    virtual bool poll() = 0;
    virtual void sweep(time_point now) = 0;
    virtual bool pending() const = 0;
    /// The thread is about to sleep: whatever no descriptor tells must wake it. False: poll again.
    virtual bool arm() { return true; }
    /// It is awake again.
    virtual void disarm() {}
    /// It turns to something else: peers that sleep must hear of what was written to them.
    virtual void hand_over() {}

   protected:
    ~source() = default;
  };

  /// Posts its completion once `due` is past.
  class timer {
   public:
    timer(engine& on, time_point due) : engine_(on), due_(due) {}
    timer(timer&& other) noexcept : engine_(other.engine_), due_(other.due_) {}
    ~timer() {
      if (std::erase(engine_.timers_, this) != 0) engine_.disarm_if_unused();
    }
    bool start(completion& done) {
      if (engine_.now() >= due_) return true;
      done_ = &done;
      engine_.timers_.push_back(this);
      engine_.arm();
      return false;
    }
    void result() {}

   private:
    friend engine;
    engine& engine_;
    time_point due_;
    completion* done_ = nullptr;
  };

  /// The engine of an executor: made at the first call, shared until the last user lets go.
  static std::shared_ptr<engine> of(const boost::asio::any_io_executor& executor);

  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine();

  const boost::asio::any_io_executor& executor() const { return executor_; }
  run_queue& queue() { return queue_; }
  time_point now() const {
    timespec clock{};
    ::clock_gettime(CLOCK_MONOTONIC, &clock);
    return time_point{clock.tv_sec} * seconds + clock.tv_nsec;
  }
  timer sleep_until(time_point due) { return {*this, due}; }

  /// `polled`: false for what only has deadlines, so that it costs a poll nothing.
  void add(source& transport, bool polled = true);
  void remove(source& transport);

  /// In a child of this process there is a dead socket in its place.
  void watch(int descriptor, std::uint32_t events, watcher& who);
  void rewatch(int descriptor, std::uint32_t events, watcher& who) {
    control(EPOLL_CTL_MOD, descriptor, events, who);
  }
  void unwatch(int descriptor, watcher& who);

  /// Serves the descriptors that are ready.
  bool dispatch(int timeout_ms = 0);

  /// How many polls may find nothing before the thread gives its core away: 0 when ranks outnumber
  /// cores. Then it lets others run between polls, for at most that time, and sleeps.
  void spin(unsigned polls, time_point longest = 0) {
    spin_ = polls;
    yielding_ = yielding(longest);
  }

  /// As another engine does, perhaps without the spin.
  void wait_as(const engine& other, bool spins) {
    spin(spins ? other.spin_ : 0, other.yielding_.longest());
  }

  bool spins() const { return spin_ > 0; }
  /// And somebody turns it, who asks it to `arm` before he sleeps.
  bool spins_now() const { return spins() && driven_ > 0; }

  /// The driver's part. A completion may call `poll` too (`done()` does), a source or watcher not.
  bool poll() {
    bool moved = false;
    for (std::size_t i = 0; i < polled_.size(); ++i) moved |= polled_[i]->poll();
    // Direct calls serve the sockets that somebody waits for; the others need epoll now and then.
    if (++polls_ % 512 == 0) moved |= dispatch(0);
    moved |= queue_.run();
    if (polls_ % 256 == 0) sweep();
    // Who asks `done()` does not call `idle`, and may ask seldom.
    if (unserved_ && polls_ % 8 == 0) moved |= serve();
    unserved_ = !moved;
    return moved;
  }

  void idle(unsigned idle_polls) {
    unserved_ = false;
    if (idle_polls <= waited_) waited_ = 0;
    idle_polls -= waited_;
    // Nothing wakes who waits for a device, and a nap takes longer than many of its kernels.
    if (idle_polls <= spin_ || (spin_ > 0 && queue_.is_watching())) {
#if defined(__x86_64__)
      // It takes as long as a message: not while one may be on its way.
      if (idle_polls > 64) __builtin_ia32_pause();
#endif
      if (idle_polls % 512 == 0) run_others();
      return;
    }
    const time_point time = now();
    if (yielding_.wanted(idle_polls == spin_ + 1, time)) {
      // Who else comes to our sockets, and the program's own handlers, need not wait that long.
      if (time - served_ >= milliseconds) {
        served_ = time;
        run_others();
        if (dispatch(0) || !queue_.empty()) return;
      }
      ::sched_yield();
      yielding_.took(time, now());
      return;
    }
    if (dispatch(0) || !queue_.empty()) return;
    sweep();
    if (!queue_.empty()) return;
    moved_asleep_ = false;
    if (arm_sources() && queue_.empty()) sleep();
    for (source* transport : polled_) transport->disarm();
    // Who was woken by what it waited for waits for something else now, and spins first.
    if (moved_asleep_) waited_ += idle_polls;
  }

  /// Somebody outside of a poll may have posted completions: run them soon. Free while driven.
  void kick() {
    if (!queue_.empty() || queue_.is_watching()) turn_soon();
  }

  /// While entered, `sync_wait` turns the engine and `kick` has nothing to do.
  void enter() { ++driven_; }
  void leave() {
    if (--driven_ > 0) return;
    for (source* transport : polled_) transport->hand_over();
    if (!polled_.empty() || !queue_.empty() || queue_.is_watching()) turn_soon();
    // A turn arms them when it has nothing left to do: whoever waits again soon need not.
    if (!kicked_) arm_sources();
  }

 private:
  static constexpr int batch_size = 64;
  static constexpr time_point tick = 50 * milliseconds;

  void turn_soon();

  // What needs no haste, for a driver that may never be idle.
  bool serve();

  bool arm_sources() {
    bool armed = true;
    for (source* transport : polled_) armed &= transport->arm();
    return armed;
  }

  explicit engine(const boost::asio::any_io_executor& executor);

  bool control(int action, int descriptor, std::uint32_t events, watcher& who) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = &who;
    return ::epoll_ctl(epoll_.get(), action, descriptor, &event) == 0;
  }

  // Deadlines, after what has come meanwhile was taken: the thread may have been elsewhere for long.
  void sweep();

  bool pending() const;

  // One turn on behalf of a foreign driver.
  void turn();

  void run_others();

  void sleep();

  bool used() const { return watched_ > 0 || !sources_.empty() || !timers_.empty(); }

  // The standing wait: armed once, armed again only after it fired.
  void arm();

  void disarm_if_unused();

  boost::asio::any_io_executor executor_;
  boost::asio::io_context* io_;  // null: the executor is of another execution context
  detail::descriptor epoll_;
  boost::asio::posix::stream_descriptor standing_;
  boost::asio::steady_timer ticker_;
  run_queue queue_;
  std::vector<source*> sources_;
  std::vector<source*> polled_;
  std::vector<timer*> timers_;
  epoll_event batch_[batch_size];
  int in_batch_ = 0;
  int watched_ = 0;
  int driven_ = 0;
  unsigned spin_ = 0;
  unsigned waited_ = 0;  // idle polls of the wait before the last sleep
  bool moved_asleep_ = false;
  yielding yielding_;
  time_point served_ = 0;
  bool unserved_ = false;  // the last poll found nothing, and nobody was idle since
  unsigned polls_ = 0;
  bool waiting_ = false;
  bool ticking_ = false;
  bool kicked_ = false;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/driver/engine.ipp>
#endif
