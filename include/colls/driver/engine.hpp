// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// engine: the event loop of one executor. It drives the sockets, transports and completions on that
// executor.

#if defined(__CUDACC__) && !defined(BOOST_ASIO_DISABLE_VARIABLE_TEMPLATES)
#define BOOST_ASIO_DISABLE_VARIABLE_TEMPLATES 1  // nvcc with g++ cannot parse Asio's traits
#endif

#include <colls/base/clock.hpp>
#include <colls/base/error.hpp>
#include <colls/coroutine/scheduler.hpp>
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

/// The event loop of one executor. All transports and stores on that executor share the engine.
/// Only code that runs on the thread or strand of the executor may use the engine. The function
/// `sync_wait(engine, task)` polls the engine in a loop. If the program calls `io_context::run()`
/// instead, handlers that the engine has registered with the io_context poll the engine.
class engine final : public scheduler, public std::enable_shared_from_this<engine> {
 public:
  /// The handler of a watched descriptor.
  class watcher {
   public:
    /// Called when the descriptor is ready. `events` holds EPOLL* bits.
    virtual void ready(std::uint32_t events) = 0;

   protected:
    ~watcher() = default;
  };

  /// A source of progress, such as a transport.
  class source {
   public:
    /// Makes progress without waiting. Returns whether there was any progress.
    virtual bool poll() = 0;
    /// Checks the deadlines of the source's operations. The engine calls this function regularly,
    /// usually at least once every 50 ms.
    virtual void sweep(time_point now) = 0;
    /// Called before the engine stops polling, for example before the thread sleeps. Makes sure
    /// that a watched descriptor becomes ready when the source next has something to poll. Returns
    /// false if the source has something to poll already. The thread must then not sleep.
    virtual bool arm() { return true; }
    /// Tells the source that the thread is awake, so that peers need not wake it. Called in a
    /// `sync_wait` after each call of `arm`, whether or not the thread has slept. A handler that
    /// runs during the sleep may poll earlier. If the program calls `io_context::run()` instead of
    /// `sync_wait`, the engine does not call this function.
    virtual void disarm() {}
    /// Wakes sleeping peers that have something to do, for example to read data from this rank.
    /// The engine calls this function when a `sync_wait` returns, because the thread may not poll
    /// again for a long time.
    virtual void wake_peers() {}

   protected:
    ~source() = default;
  };

  /// Returns the engine of an executor. The first call creates the engine. All users of the
  /// executor share that engine until the last of them releases it.
  static std::shared_ptr<engine> get(const boost::asio::any_io_executor& executor);

  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  ~engine();

  const boost::asio::any_io_executor& executor() const { return executor_; }
  time_point now() const override {
    timespec clock{};
    ::clock_gettime(CLOCK_MONOTONIC, &clock);
    return time_point{clock.tv_sec} * seconds + clock.tv_nsec;
  }

  /// Adds a source. If `polled` is false, the engine calls only the function `sweep` of the source,
  /// so the source does not slow down polls.
  void add(source& transport, bool polled = true);
  void remove(source& transport);

  /// Watches a descriptor for `events` and calls `handler` when the descriptor is ready. Also
  /// registers the descriptor with `fork_guard`. If the process forks, `fork_guard` replaces the
  /// descriptor in the child, so that the child cannot use it. Throws `errc::too_many_files` if
  /// epoll refuses the descriptor.
  void watch(int descriptor, std::uint32_t events, watcher& handler);
  /// Replaces the events for which the engine watches a descriptor.
  void rewatch(int descriptor, std::uint32_t events, watcher& handler) {
    control(EPOLL_CTL_MOD, descriptor, events, handler);
  }
  /// Stops watching a descriptor. Afterwards the engine does not call `handler`, not even for
  /// events that it has already read from epoll.
  void unwatch(int descriptor, watcher& handler);

  /// Waits until a watched descriptor is ready, but at most `timeout_ms` milliseconds. Calls the
  /// handlers of the ready descriptors. Returns whether any descriptor was ready.
  bool dispatch(int timeout_ms = 0);
  bool dispatch_events() override { return dispatch(); }

  /// Sets how long a waiting thread spins and yields before it sleeps. The thread spins until
  /// `polls` polls in a row have made no progress. Then it yields its core between polls for at
  /// most `max_yield`. Then it sleeps. `polls` should be 0 if there are more ranks than cores.
  void spin(unsigned polls, time_point max_yield = 0) {
    spin_ = polls;
    idle_ = idle_policy(max_yield);
  }

  /// Copies the settings of `spin` from `other`, but disables spinning if `may_spin` is false.
  void copy_idle_policy(const engine& other, bool may_spin) {
    spin(may_spin ? other.spin_ : 0, other.idle_.max_yield());
  }

  /// Returns whether waiting threads spin before they yield or sleep.
  bool spins() const { return spin_ > 0; }
  /// Returns whether waiting threads spin and a `sync_wait` is driving the engine now. If both are
  /// true, the sources need no events from epoll. The `sync_wait` polls the sources, and calls
  /// their function `arm` before the thread sleeps.
  bool spins_now() const override { return spins() && drivers_ > 0; }

  /// Polls all sources and runs the posted completions. Returns whether there was progress. The
  /// handlers of completions may call this function too, for example through `operation::done()`,
  /// but sources and watchers must not.
  bool poll() {
    bool moved = false;
    for (std::size_t i = 0; i < polled_.size(); ++i) moved |= polled_[i]->poll();
    // The polled sources check their own sockets. Only the other descriptors need epoll, and these
    // are less urgent. Therefore only every 512th poll calls epoll here.
    if (++polls_ % 512 == 0) moved |= dispatch(0);
    moved |= queue_.run();
    if (polls_ % 256 == 0) sweep();
    // A program may wait by calling `operation::done()` in a loop. That function calls `poll`, but
    // not `idle`. In this case, `poll` must call `serve` to check the descriptors and the timers.
    if (idle_skipped_ && polls_ % 8 == 0) moved |= serve();
    idle_skipped_ = !moved;
    return moved;
  }

  /// Spins, yields or sleeps, depending on `idle_polls`. This is the number of polls in a row that
  /// have made no progress.
  void idle(unsigned idle_polls) {
    idle_skipped_ = false;
    if (idle_polls <= polls_before_sleep_) polls_before_sleep_ = 0;
    idle_polls -= polls_before_sleep_;
    // A GPU cannot wake a thread, and a sleep takes longer than many GPU kernels. If the thread may
    // spin, it therefore does not sleep while it waits for a GPU.
    if (idle_polls <= spin_ || (spin_ > 0 && queue_.is_watching())) {
#if defined(__x86_64__)
      // The pause instruction takes as long as the transfer of a short message. The thread omits it
      // in the first polls so that it does not delay such a message.
      if (idle_polls > 64) __builtin_ia32_pause();
#endif
      if (idle_polls % 512 == 0) run_other_handlers();
      return;
    }
    const time_point time = now();
    if (idle_.should_yield(idle_polls == spin_ + 1, time)) {
      // Between two yields, the thread also checks the watched descriptors and runs the program's
      // own handlers, but at most once a millisecond.
      if (time - last_service_ >= milliseconds) {
        last_service_ = time;
        run_other_handlers();
        if (dispatch(0) || !queue_.empty()) return;
      }
      ::sched_yield();
      idle_.record_yield(time, now());
      return;
    }
    if (dispatch(0) || !queue_.empty()) return;
    sweep();
    if (!queue_.empty()) return;
    moved_while_asleep_ = false;
    if (arm_sources() && queue_.empty()) sleep();
    for (source* transport : polled_) transport->disarm();
    // If there was progress during the sleep, the thread should spin again before it yields or
    // sleeps. Therefore `idle` no longer counts the polls before the sleep.
    if (moved_while_asleep_) polls_before_sleep_ += idle_polls;
  }

  /// Posts a poll to the executor if the run queue has something to do. Code that may have posted
  /// completions outside of a poll must call this function. Does nothing while a `sync_wait` drives
  /// the engine.
  void wake_driver() {
    if (!queue_.empty() || queue_.is_watching()) post_poll();
  }

  /// Called at the start of a `sync_wait`. The `sync_wait` drives the engine until it calls
  /// `leave`. One `sync_wait` may run inside another.
  void enter() { ++drivers_; }
  void leave() {
    if (--drivers_ > 0) return;
    for (source* transport : polled_) transport->wake_peers();
    if (!polled_.empty() || !queue_.empty() || queue_.is_watching()) post_poll();
    // A posted poll arms the sources itself when it finds nothing to do. If the program starts
    // another `sync_wait` before that poll runs, arming the sources here would be wasted time.
    if (!poll_posted_) arm_sources();
  }

 private:
  static constexpr int batch_size = 64;
  static constexpr time_point tick = 50 * milliseconds;

  // Posts `poll_from_executor` to the executor, unless it is already posted or a `sync_wait` drives
  // the engine.
  void post_poll();

  // Calls the handlers of ready descriptors, runs the posted completions, and checks timers and
  // deadlines. Does this at most once a millisecond. Returns whether there was progress.
  bool serve();

  bool arm_sources() {
    bool armed = true;
    for (source* transport : polled_) armed &= transport->arm();
    return armed;
  }

  /// Wakes the engine for completions that other threads have posted. Its descriptor is an eventfd,
  /// which is opened when first needed. If none can be opened, the engine finds these completions
  /// at its next tick. Unlike other watched descriptors, this one does not keep the engine in use.
  /// It is not registered with `fork_guard` either: a forked child could only wake its parent,
  /// whereas a write to a dead socket would raise SIGPIPE.
  class event_waker final : public run_queue::remote_waker, public watcher {
   public:
    explicit event_waker(engine& owner) : owner_(owner) {}
    COLLS_ONCE void prepare() noexcept override;
    COLLS_ONCE void wake() noexcept override;
    COLLS_ONCE void ready(std::uint32_t events) override;

   private:
    engine& owner_;
    detail::descriptor event_;
    bool is_prepared_ = false;
  };

  explicit engine(const boost::asio::any_io_executor& executor);

  void add_timer(timer& waiting) override {
    timers_.push_back(&waiting);
    arm();
  }
  void remove_timer(timer& waiting) override {
    if (std::erase(timers_, &waiting) != 0) disarm_if_unused();
  }

  bool control(int action, int descriptor, std::uint32_t events, watcher& handler) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = &handler;
    return ::epoll_ctl(epoll_.get(), action, descriptor, &event) == 0;
  }

  // Checks timers and deadlines. The caller must poll first. A long time may have passed since the
  // last poll, and an operation whose message has arrived during that time must not time out.
  void sweep();

  // Polls until there is no more progress, and then arms the sources. If there still is progress
  // after 64 polls, posts another poll. The handlers that the engine gives to the executor call
  // this function.
  void poll_from_executor();

  // Runs the ready handlers of the io_context, including those of the program. Does nothing if the
  // executor does not belong to an io_context.
  void run_other_handlers();

  // Sleeps until a descriptor is ready, a timer is due, or one tick (50 ms) has passed. If the run
  // queue watches a condition, sleeps for `max_poll_sleep` instead. The thread must poll such a
  // condition, because no event wakes the thread when the condition becomes true.
  void sleep();

  bool used() const { return watched_ > 0 || !sources_.empty() || !timers_.empty(); }

  // Starts a wait on the epoll descriptor and a wait on the tick timer, unless they are already
  // pending. The handlers of the two waits start them again while the engine is in use.
  void arm();

  void disarm_if_unused();

  boost::asio::any_io_executor executor_;
  boost::asio::io_context* io_;  // null unless the executor belongs to an io_context
  detail::descriptor epoll_;
  boost::asio::posix::stream_descriptor epoll_stream_;
  boost::asio::steady_timer ticker_;
  event_waker waker_{*this};
  std::vector<source*> sources_;
  std::vector<source*> polled_;
  std::vector<timer*> timers_;
  epoll_event batch_[batch_size];
  int in_batch_ = 0;
  int watched_ = 0;
  int drivers_ = 0;
  unsigned spin_ = 0;
  // The number of polls that `idle` no longer counts and therefore subtracts from its argument.
  // These are the polls before the last sleep during which there was progress.
  unsigned polls_before_sleep_ = 0;
  bool moved_while_asleep_ = false;
  idle_policy idle_;
  time_point last_service_ = 0;
  bool idle_skipped_ = false;  // the last poll made no progress, and `idle` has not run since
  unsigned polls_ = 0;
  bool wait_armed_ = false;
  bool tick_armed_ = false;
  bool poll_posted_ = false;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/driver/engine.ipp>
#endif
