// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// sync_wait: blocks the thread until an operation has completed. It is meant for code that is not a
// coroutine, such as main(), tests and benchmarks.

#include <colls/base/error.hpp>
#include <colls/coroutine/task.hpp>

namespace colls {

/// The event loop that `sync_wait` runs until the operation completes. `poll` transfers data, runs
/// the queue of completions and returns whether it made progress. `sync_wait` calls `idle(n)` after
/// `n` polls in a row without progress. `idle` may spin, yield or sleep until a poll can make
/// progress. `sync_wait` calls `enter` when it begins and `leave` when it ends. Between these two
/// calls, `sync_wait` itself polls the driver. Therefore the driver need not post polls to its
/// executor during this time.
template <class Driver>
concept driver = requires(Driver& driver, unsigned idle_polls) {
  { driver.queue() } -> std::same_as<run_queue&>;
  { driver.poll() } -> std::same_as<bool>;
  driver.idle(idle_polls);
  driver.enter();
  driver.leave();
};

namespace detail {

/// Returns the failure for a call that a thread makes while another thread is in a blocking wait on
/// the same world, or, if `queue` is checked, after another thread has used the world.
inline failure second_thread_failure(const run_queue& queue) {
  failure reason(errc::invalid_argument,
                 "another thread is inside: a world belongs to one thread at a time; "
                 "dup(executor) makes one for a second thread");
  if (queue.is_checked()) {
    const run_queue::thread_pair threads = queue.caller_and_claimer();
    reason.set_detail(
        "thread %llu makes a call, but the world belongs to thread %llu; dup(executor) makes one "
        "for a second thread (COLLS_CHECK_THREADS)",
        static_cast<unsigned long long>(threads.caller),
        static_cast<unsigned long long>(threads.claimer));
  }
  return reason;
}

/// Called if `is_run_by_other_thread` has returned true. Throws unless this thread may claim the
/// queue of the driver.
template <driver Driver>
[[gnu::noinline, gnu::cold]] void claim_or_refuse(Driver& driver) {
  if (driver.queue().try_claim()) return;
  failure reason = second_thread_failure(driver.queue());
  if constexpr (requires { driver.world_rank(driver.rank()); }) {
    reason.observer = driver.world_rank(driver.rank());
  }
  throw error(reason);
}

}  // namespace detail

/// Runs the driver on this thread until the operation has completed. Returns the value of the
/// operation or throws its error. Throws `errc::invalid_argument` if another thread is in a
/// blocking wait with the same driver, or if the driver's queue is checked and belongs to another
/// thread.
template <driver Driver, class Operation>
  requires startable<std::remove_reference_t<Operation>>
auto sync_wait(Driver& driver, Operation&& operation) {
  if (driver.queue().is_run_by_other_thread()) detail::claim_or_refuse(driver);
  const run_queue::run_scope queue_scope(driver.queue());
  const struct driver_scope {
    explicit driver_scope(Driver& entered) : driver(entered) { driver.enter(); }
    driver_scope(const driver_scope&) = delete;
    ~driver_scope() { driver.leave(); }
    Driver& driver;
  } scope(driver);
  struct waiter : completion {
    bool ended = false;
  } waiting;
  waiting.bind([](completion& self) noexcept { static_cast<waiter&>(self).ended = true; },
               completion(nullptr, &driver.queue()));
  // If the driver throws an exception, this function ends before the operation has completed. The
  // guard then makes sure that the operation does not post the destroyed local variable `waiting`.
  const struct forget_guard {
    forget_guard(std::remove_reference_t<Operation>& op, completion& waiter)
        : op_(op), done_(waiter) {}
    forget_guard(const forget_guard&) = delete;
    ~forget_guard() {
      if constexpr (requires { op_.forget(done_); }) op_.forget(done_);
    }
    std::remove_reference_t<Operation>& op_;
    completion& done_;
  } guard(operation, waiting);
  waiting.ended = operation.start(waiting);
  for (unsigned idle_polls = 0; !waiting.ended;) {
    if (driver.poll()) {
      idle_polls = 0;
    } else {
      driver.idle(++idle_polls);
    }
  }
  return detail::unwrap_result(operation);
}

template <driver Driver, request Request>
auto sync_wait(Driver& driver, const Request& description) {
  typename Request::operation operation(description);
  return sync_wait(driver, operation);
}

}  // namespace colls
