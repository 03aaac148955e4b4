// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// sync_wait: the blocking door for main(), tests and benchmarks.

#include <colls/base/error.hpp>
#include <colls/coroutine/task.hpp>

namespace colls {

/// What `sync_wait` turns until its task is done. `poll` moves bytes, runs the queue and says
/// whether anything happened; `idle` is told how many polls in a row found nothing, and pauses,
/// yields or sleeps as it sees fit, until a poll can make progress. Between `enter` and `leave`
/// nobody else needs to turn it.
template <class Driver>
concept driver = requires(Driver& driver, unsigned idle_polls) {
  { driver.queue() } -> std::same_as<run_queue&>;
  { driver.poll() } -> std::same_as<bool>;
  driver.idle(idle_polls);
  driver.enter();
  driver.leave();
};

namespace detail {

/// What is wrong where another thread turns the queue.
inline failure second_thread() {
  return failure(errc::invalid_argument,
                 "another thread is inside: a world belongs to one thread at a time; "
                 "dup(executor) makes one for a second thread");
}

template <driver Driver>
[[noreturn, gnu::noinline, gnu::cold]] void refuse_second_thread(const Driver& driver) {
  failure why = second_thread();
  if constexpr (requires { driver.world_rank(driver.rank()); }) {
    why.observer = driver.world_rank(driver.rank());
  }
  throw error(why);
}

}  // namespace detail

/// Runs the operation to its end on this thread and gives its value or throws its error; throws
/// `invalid_argument` where another thread waits with the same driver.
template <driver Driver, class Operation>
  requires startable<std::remove_reference_t<Operation>>
auto sync_wait(Driver& driver, Operation&& operation) {
  if (driver.queue().is_visited_elsewhere()) detail::refuse_second_thread(driver);
  const run_queue::visit here(driver.queue());
  const struct turning {
    explicit turning(Driver& it) : turned(it) { turned.enter(); }
    turning(const turning&) = delete;
    ~turning() { turned.leave(); }
    Driver& turned;
  } scope(driver);
  struct waiter : completion {
    bool ended = false;
  } waiting;
  waiting.become([](completion& self) noexcept { static_cast<waiter&>(self).ended = true; },
                 completion(nullptr, &driver.queue()));
  // One that lives on after an exception of the driver must not post to this stack.
  const struct forgetting {
    forgetting(std::remove_reference_t<Operation>& it, completion& by) : of(it), waits(by) {}
    forgetting(const forgetting&) = delete;
    ~forgetting() {
      if constexpr (requires { of.forget(waits); }) of.forget(waits);
    }
    std::remove_reference_t<Operation>& of;
    completion& waits;
  } after(operation, waiting);
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
auto sync_wait(Driver& driver, const Request& wanted) {
  typename Request::operation made(wanted);
  return sync_wait(driver, made);
}

}  // namespace colls
