// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/coroutine/task.hpp>

#include <colls/coroutine/sync_wait.hpp>
#include <doctest/doctest.h>
#include <memory>
#include <stdexcept>
#include <string>

#include "../support/stepper.hpp"

namespace {

using colls::task;

task<int> answer(int value) { co_return value; }
task<int> later(stepper& on, int value) {
  co_await on.next();
  co_return value;
}
task<> throws_after(stepper& on, bool waits) {
  if (waits) co_await on.next();
  throw std::runtime_error("from inside");
}

TEST_CASE(
    "a task is lazy, runs inside its await up to its first suspension, and returns its value") {
  stepper on;
  int stage = 0;
  const auto body = [&]() -> task<std::string> {
    stage = 1;
    co_await on.next();
    stage = 2;
    co_return std::string("done");
  };
  task<std::string> lazy = body();
  CHECK(stage == 0);
  const auto outer = [&]() -> task<std::string> { co_return co_await lazy; };
  CHECK(colls::sync_wait(on, outer()) == "done");
  CHECK(stage == 2);
}

TEST_CASE("values of any kind, moved and not copied") {
  stepper on;
  const auto owner = []() -> task<std::unique_ptr<int>> { co_return std::make_unique<int>(4); };
  const auto outer = [&]() -> task<int> {
    const std::unique_ptr<int> owned = co_await owner();
    const int ready = co_await answer(2);
    const int waited = co_await later(on, 3);
    co_return *owned * 100 + ready * 10 + waited;
  };
  CHECK(colls::sync_wait(on, outer()) == 423);
}

TEST_CASE("an exception comes out at the await, whether the task had suspended or not") {
  stepper on;
  for (const bool waits : {true, false}) {
    const auto outer = [&]() -> task<int> {
      try {
        co_await throws_after(on, waits);
      } catch (const std::runtime_error& thrown) {
        co_return static_cast<int>(std::string(thrown.what()).size());
      }
      co_return 0;
    };
    CHECK(colls::sync_wait(on, outer()) == 11);
    CHECK_THROWS_AS(colls::sync_wait(on, throws_after(on, waits)), std::runtime_error);
  }
}

struct fails {
  std::error_code ec;
  bool start(colls::completion&) { return true; }
  std::error_code result() const { return ec; }
};

TEST_CASE("an error_code that an operation returns is thrown as colls::error") {
  stepper on;
  const auto outer = [&](std::error_code ec) -> task<> { co_await fails{ec}; };
  colls::sync_wait(on, outer({}));
  try {
    colls::sync_wait(on, outer(colls::errc::timeout));
    FAIL("did not throw");
  } catch (const colls::error& thrown) {
    CHECK(thrown.code() == colls::errc::timeout);
    CHECK(thrown.code() == std::errc::timed_out);
  }
  CHECK_THROWS_AS(colls::sync_wait(on, outer(std::make_error_code(std::errc::io_error))),
                  colls::error);
}

TEST_CASE("a task that is destroyed unfinished leaves nothing behind") {
  for (int steps = 0; steps < 6; ++steps) {
    CAPTURE(steps);
    stepper on;
    const auto alive = std::make_shared<int>(0);
    struct idle_waiter : colls::completion {
      explicit idle_waiter(stepper& driver)
          : completion([](completion&) noexcept {}, &driver.queue()) {}
    } waiter(on);
    {
      const auto inner = [&on](std::shared_ptr<int> held) -> task<> {
        co_await on.next();
        co_await on.next();
        (void)held;
      };
      const auto outer = [&]() -> task<> { co_await inner(alive); };
      task<> started = outer();
      CHECK_FALSE(started.start(waiter));
      for (int i = 0; i < steps; ++i) on.queue().run(1);
      task<> moved = std::move(started);
      CHECK_FALSE(started);
      moved = outer();
    }
    CHECK(alive.use_count() == 1);
    waiter.withdraw();
    CHECK_FALSE(on.poll());
  }
}

}  // namespace
