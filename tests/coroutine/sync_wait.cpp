// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/coroutine/sync_wait.hpp>

#include <doctest/doctest.h>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../support/stepper.hpp"

namespace {

using colls::task;

static_assert(colls::driver<stepper>);
static_assert(!colls::driver<int>);

/// Ends when it has been idle often enough.
struct patient : stepper {
  colls::completion* waits = nullptr;
  std::vector<unsigned> idle_polls;

  void idle(unsigned polls) {
    CHECK(entered() == 1);
    idle_polls.push_back(polls);
    if (idle_polls.size() == 3) waits->post();
  }
  struct until_idle {
    patient& of;
    bool start(colls::completion& done) {
      of.waits = &done;
      return false;
    }
    void result() const {}
  };
};

TEST_CASE("it polls, says how long nothing has happened, and enters and leaves") {
  patient on;
  colls::sync_wait(on, patient::until_idle{on});
  CHECK(on.idle_polls == std::vector<unsigned>{1, 2, 3});
  CHECK(on.entered() == 0);
}

TEST_CASE("where turning throws nobody waits any more for what is kept") {
  struct : stepper {
    bool poll() { throw std::runtime_error("no"); }
  } on;
  struct kept {
    const colls::completion* waits = nullptr;
    bool start(colls::completion& done) {
      waits = &done;
      return false;
    }
    void forget(const colls::completion& waiter) {
      if (waits == &waiter) waits = nullptr;
    }
    void result() const {}
  } operation;
  CHECK_THROWS_AS(colls::sync_wait(on, operation), std::runtime_error);
  CHECK(operation.waits == nullptr);
  CHECK(on.entered() == 0);
}

/// Does something while it waits, and ends then.
struct busy : stepper {
  std::function<void()> does;
  colls::completion* waits = nullptr;

  void idle(unsigned) {
    does();
    waits->post();
  }
  struct until_done {
    busy& of;
    bool start(colls::completion& done) {
      of.waits = &done;
      return false;
    }
    void result() const {}
  };
};

/// What a wait on a thread of its own throws.
std::optional<colls::failure> thrown_elsewhere(stepper& on) {
  std::optional<colls::failure> why;
  std::thread([&] {
    try {
      colls::sync_wait(on, on.next());
    } catch (const colls::error& thrown) {
      why = thrown.record();
    }
  }).join();
  return why;
}

TEST_CASE("a wait on a second thread is refused while one is under way, which goes on") {
  busy on;
  std::optional<colls::failure> refused;
  on.does = [&] { refused = thrown_elsewhere(on); };
  colls::sync_wait(on, busy::until_done{on});
  REQUIRE(refused);
  CHECK(refused->code == colls::errc::invalid_argument);
  CHECK(std::string(refused->detail).starts_with("another thread is inside"));
  CHECK(on.entered() == 0);

  // One within another is the same thread's, and leaves it inside.
  on.does = [&] {
    colls::sync_wait(on, on.next());
    refused = thrown_elsewhere(on);
  };
  refused.reset();
  colls::sync_wait(on, busy::until_done{on});
  CHECK(refused);

  // One after another is nobody's business, also after an exception.
  on.does = [] { throw std::runtime_error("no"); };
  CHECK_THROWS_AS(colls::sync_wait(on, busy::until_done{on}), std::runtime_error);
  CHECK(!thrown_elsewhere(on));
  CHECK(!thrown_elsewhere(on));
  colls::sync_wait(on, on.next());
}

TEST_CASE("it gives values and throws errors, and leaves in any case") {
  stepper on;
  const auto value = [&]() -> task<int> {
    co_await on.next();
    co_return 7;
  };
  CHECK(colls::sync_wait(on, value()) == 7);
  const auto fails = [&]() -> task<> {
    co_await on.next();
    throw std::runtime_error("no");
  };
  CHECK_THROWS_AS(colls::sync_wait(on, fails()), std::runtime_error);
  CHECK(on.entered() == 0);
  task<int> named = value();
  CHECK(colls::sync_wait(on, named) == 7);
}

}  // namespace
