// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/coroutine/when_all.hpp>

#include <colls/coroutine/sync_wait.hpp>
#include <doctest/doctest.h>
#include <stdexcept>
#include <string>

#include "../support/stepper.hpp"

namespace {

using colls::task;
using colls::when_all;

task<int> after(stepper& on, int steps, int value) {
  for (int i = 0; i < steps; ++i) co_await on.next();
  co_return value;
}
task<> note(stepper& on, int steps, std::vector<int>& order, int number) {
  for (int i = 0; i < steps; ++i) co_await on.next();
  order.push_back(number);
}
task<> fails_after(stepper& on, int steps, const char* what) {
  for (int i = 0; i < steps; ++i) co_await on.next();
  throw std::runtime_error(what);
}

TEST_CASE("the values are a tuple, in the order of the parts") {
  stepper on;
  const auto all = [&]() -> task<std::string> {
    const auto values = co_await when_all(after(on, 3, 1), on.next(), after(on, 0, 2));
    static_assert(std::tuple_size_v<std::remove_cvref_t<decltype(values)>> == 3);
    co_return std::to_string(std::get<0>(values)) + std::to_string(std::get<2>(values));
  };
  CHECK(colls::sync_wait(on, all()) == "12");
}

TEST_CASE("all parts run concurrently, and all have ended afterwards") {
  stepper on;
  std::vector<int> order;
  colls::sync_wait(on,
                   when_all(note(on, 3, order, 3), note(on, 0, order, 0), note(on, 1, order, 1)));
  CHECK(order == std::vector<int>{0, 1, 3});
  order.clear();
  std::vector<task<>> parts;
  for (int i = 5; i >= 0; --i) parts.push_back(note(on, i, order, i));
  colls::sync_wait(on, when_all(std::move(parts)));
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5});
  colls::sync_wait(on, when_all(std::vector<task<>>()));
}

TEST_CASE("the leftmost error is thrown, after all parts have ended") {
  stepper on;
  std::vector<int> order;
  CHECK_THROWS_WITH_AS(
      colls::sync_wait(on, when_all(note(on, 1, order, 1), fails_after(on, 4, "left"),
                                    fails_after(on, 0, "right"), note(on, 6, order, 6))),
      "left", std::runtime_error);
  CHECK(order == std::vector<int>{1, 6});
  std::vector<task<>> parts;
  parts.push_back(fails_after(on, 3, "first"));
  parts.push_back(note(on, 5, order, 5));
  parts.push_back(fails_after(on, 0, "second"));
  CHECK_THROWS_WITH_AS(colls::sync_wait(on, when_all(std::move(parts))), "first",
                       std::runtime_error);
  CHECK(order == std::vector<int>{1, 6, 5});
}

TEST_CASE("when_all of when_all") {
  stepper on;
  std::vector<int> order;
  colls::sync_wait(on, when_all(when_all(note(on, 2, order, 2), on.next()),
                                when_all(note(on, 1, order, 1), when_all(on.next(), on.next()))));
  CHECK(order == std::vector<int>{1, 2});
}

TEST_CASE("a part may run the driver before the others are started") {
  stepper on;
  std::vector<int> order;
  const auto polls = [](stepper& driver, std::vector<int>& list) -> task<> {
    while (driver.poll()) {
    }
    list.push_back(0);
    co_return;
  };
  colls::sync_wait(on, when_all(note(on, 1, order, 1), polls(on, order), note(on, 1, order, 2)));
  CHECK(order == std::vector<int>{1, 0, 2});
}

TEST_CASE("a when_all that is destroyed unfinished leaves nothing behind") {
  for (int steps = 0; steps < 12; ++steps) {
    CAPTURE(steps);
    stepper on;
    std::vector<int> order;
    struct idle_waiter : colls::completion {
      explicit idle_waiter(stepper& driver)
          : completion([](completion&) noexcept {}, &driver.queue()) {}
    } waiter(on);
    {
      const auto all = [&]() -> task<> {
        co_await when_all(note(on, 2, order, 2), when_all(on.next(), note(on, 3, order, 3)));
      };
      task<> started = all();
      CHECK_FALSE(started.start(waiter));
      for (int i = 0; i < steps; ++i) on.queue().run(1);
    }
    while (on.poll()) {
    }
    CHECK(order.size() <= 2);
  }
}

}  // namespace
