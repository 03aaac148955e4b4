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

/// A driver whose operation ends when the driver has been idle three times.
struct patient : stepper {
  colls::completion* waiter = nullptr;
  std::vector<unsigned> idle_polls;

  void idle(unsigned polls) {
    CHECK(entered() == 1);
    idle_polls.push_back(polls);
    if (idle_polls.size() == 3) waiter->post();
  }
  struct until_idle {
    patient& driver;
    bool start(colls::completion& done) {
      driver.waiter = &done;
      return false;
    }
    void result() const {}
  };
};

TEST_CASE("sync_wait polls, counts idle polls, and enters and leaves the driver") {
  patient on;
  colls::sync_wait(on, patient::until_idle{on});
  CHECK(on.idle_polls == std::vector<unsigned>{1, 2, 3});
  CHECK(on.entered() == 0);
}

TEST_CASE("after an exception of the driver an operation that outlives the wait has no waiter") {
  struct : stepper {
    bool poll() { throw std::runtime_error("no"); }
  } on;
  struct kept {
    const colls::completion* waiter = nullptr;
    bool start(colls::completion& done) {
      waiter = &done;
      return false;
    }
    void forget(const colls::completion& gone) {
      if (waiter == &gone) waiter = nullptr;
    }
    void result() const {}
  } operation;
  CHECK_THROWS_AS(colls::sync_wait(on, operation), std::runtime_error);
  CHECK(operation.waiter == nullptr);
  CHECK(on.entered() == 0);
}

/// A driver that runs a function when it is idle; then its operation ends.
struct busy : stepper {
  std::function<void()> work;
  colls::completion* waiter = nullptr;

  void idle(unsigned) {
    work();
    waiter->post();
  }
  struct until_done {
    busy& driver;
    bool start(colls::completion& done) {
      driver.waiter = &done;
      return false;
    }
    void result() const {}
  };
};

/// The failure that a wait on a second thread throws.
std::optional<colls::failure> thrown_on_second_thread(stepper& on) {
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

TEST_CASE("a wait on a second thread is refused while another wait runs, which continues") {
  busy on;
  std::optional<colls::failure> refused;
  on.work = [&] { refused = thrown_on_second_thread(on); };
  colls::sync_wait(on, busy::until_done{on});
  REQUIRE(refused);
  CHECK(refused->code == colls::errc::invalid_argument);
  CHECK(std::string(refused->detail).starts_with("another thread is inside"));
  CHECK(on.entered() == 0);

  // A nested wait belongs to the same thread, which still waits afterwards.
  on.work = [&] {
    colls::sync_wait(on, on.next());
    refused = thrown_on_second_thread(on);
  };
  refused.reset();
  colls::sync_wait(on, busy::until_done{on});
  CHECK(refused);

  // Consecutive waits of different threads are allowed, also after an exception.
  on.work = [] { throw std::runtime_error("no"); };
  CHECK_THROWS_AS(colls::sync_wait(on, busy::until_done{on}), std::runtime_error);
  CHECK(!thrown_on_second_thread(on));
  CHECK(!thrown_on_second_thread(on));
  colls::sync_wait(on, on.next());
}

TEST_CASE("sync_wait returns values, throws errors, and always leaves the driver") {
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
