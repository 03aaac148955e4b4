// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/driver/engine.hpp>

#include <colls/coroutine/sync_wait.hpp>
#include <colls/driver/socket.hpp>

#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <doctest/doctest.h>

#include <sys/eventfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "../support/long_wait.hpp"

namespace {

/// A source that never makes progress and records the number of polls before each arm.
struct quiet_source : colls::engine::source {
  unsigned polls = 0;
  std::vector<unsigned> armed_after;  // polls
  std::atomic<unsigned> armed = 0;

  bool poll() override {
    ++polls;
    return false;
  }
  void sweep(colls::time_point) override {}
  bool arm() override {
    armed_after.push_back(std::exchange(polls, 0));
    ++armed;
    return true;
  }
};

/// An operation that ends when its eventfd has been signalled twice.
struct second_signal : colls::engine::watcher {
  int event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  unsigned signals = 0;
  colls::completion* done = nullptr;

  second_signal() = default;
  second_signal(const second_signal&) = delete;
  ~second_signal() { ::close(event); }

  void signal() const {
    const std::uint64_t one = 1;
    CHECK(::write(event, &one, sizeof one) == sizeof one);
  }
  void ready(std::uint32_t) override {
    std::uint64_t value = 0;
    CHECK(::read(event, &value, sizeof value) == sizeof value);
    if (++signals == 2) done->post();
  }
  bool start(colls::completion& waiter) {
    done = &waiter;
    return false;
  }
  void result() {}
};

}  // namespace

TEST_CASE("a thread that was woken spins before it sleeps again") {
  constexpr unsigned spin = 1000;
  boost::asio::io_context context(1);
  const auto driver = colls::engine::get(context.get_executor());
  driver->spin(spin);
  quiet_source source;
  second_signal waiting;
  driver->add(source);
  driver->watch(waiting.event, EPOLLIN, waiting);
  std::thread signaller([&] {
    while (source.armed < 1) std::this_thread::yield();
    const unsigned before = source.armed;
    waiting.signal();
    while (source.armed < before + 2) std::this_thread::yield();
    waiting.signal();
  });
  colls::sync_wait(*driver, waiting);
  signaller.join();
  driver->unwatch(waiting.event, waiting);
  driver->remove(source);
  REQUIRE(source.armed_after.size() >= 3);
  CHECK(source.armed_after[0] >= spin);
  // Sleeps that no event ended follow each other without spinning. The sleep after the signal comes
  // after a spin.
  CHECK(*std::max_element(source.armed_after.begin() + 1, source.armed_after.end()) >= spin);
}

TEST_CASE("sources are armed when the executor polls the engine, not at every leave") {
  boost::asio::io_context context(1);
  const auto driver = colls::engine::get(context.get_executor());
  quiet_source source;
  driver->add(source);
  for (int i = 0; i < 3; ++i) {
    driver->enter();
    driver->leave();
  }
  CHECK(source.armed == 0);
  context.poll();
  CHECK(source.armed > 0);
  driver->remove(source);
}

TEST_CASE("a thread that yields runs the program's own handlers") {
  boost::asio::io_context context(1);
  const auto driver = colls::engine::get(context.get_executor());
  driver->spin(0, colls::never);
  second_signal waiting;
  // Ends the wait if no handler does.
  struct : quiet_source {
    second_signal* waiting = nullptr;
    bool poll() override {
      if (polls == 20'000'000) waiting->done->post();
      return quiet_source::poll();
    }
  } source;
  source.waiting = &waiting;
  driver->add(source);
  bool has_run = false;
  boost::asio::post(context, [&] {
    has_run = source.armed == 0;  // it ran while the thread yielded, not when it was about to sleep
    waiting.done->post();
  });
  colls::sync_wait(*driver, waiting);
  CHECK(has_run);
  driver->remove(source);
}

TEST_CASE("an engine finds its io_context behind strands, and takes no other context for one") {
  namespace asio = boost::asio;
  asio::io_context context(1);
  const asio::any_io_executor plain = context.get_executor();
  const auto tracked =
      asio::require(context.get_executor(), asio::execution::outstanding_work.tracked);
  for (const asio::any_io_executor& each :
       {plain, asio::any_io_executor(tracked),
        asio::any_io_executor(asio::make_strand(context.get_executor())),
        asio::any_io_executor(asio::make_strand(plain)),
        asio::any_io_executor(asio::make_strand(tracked)),
        asio::any_io_executor(
            asio::make_strand(asio::any_io_executor(asio::make_strand(plain))))}) {
    CHECK(colls::detail::io_context_of(each) == &context);
  }
  asio::thread_pool pool(1);
  CHECK(colls::detail::io_context_of(pool.get_executor()) == nullptr);
  CHECK(colls::detail::io_context_of(asio::make_strand(pool)) == nullptr);
  CHECK(colls::detail::io_context_of({}) == nullptr);
}

TEST_CASE(
    "a thread of a pool drives the engine while it waits, and the pool drives it afterwards") {
  boost::asio::thread_pool pool(1);
  int ended = 0;
  std::shared_ptr<colls::engine> driver;
  second_signal waiting;
  boost::asio::post(pool, [&] {
    driver = colls::engine::get(pool.get_executor());
    driver->watch(waiting.event, EPOLLIN, waiting);
    colls::sync_wait(*driver, driver->sleep_until(driver->now() + 5 * colls::milliseconds));
    ++ended;
    waiting.signal();
  });
  // No task waits any more, so the pool drives the engine, which watches a descriptor.
  bool was_signalled = false;
  for (int i = 0; i < 5000 && !was_signalled; ++i) {
    std::promise<bool> answer;
    boost::asio::post(pool, [&] { answer.set_value(waiting.signals == 1); });
    was_signalled = answer.get_future().get();
    ::usleep(1000);
  }
  CHECK(was_signalled);
  boost::asio::post(pool, [&] {
    driver->unwatch(waiting.event, waiting);
    driver.reset();
    ++ended;
  });
  pool.join();
  CHECK(ended == 2);
}

TEST_CASE("a forked child that releases an engine does not affect its parent") {
  boost::asio::io_context context(1);
  std::shared_ptr<colls::engine> driver = colls::engine::get(context.get_executor());
  second_signal waiting;
  driver->watch(waiting.event, EPOLLIN, waiting);
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = false;
    try {
      driver->dispatch();
    } catch (const colls::error& thrown) {
      refused = thrown.record().code == colls::errc::closed;
    }
    driver->unwatch(waiting.event, waiting);
    driver.reset();
    ::_exit(refused ? 7 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
  waiting.signal();
  CHECK(driver->dispatch());
  CHECK(waiting.signals == 1);
  driver->unwatch(waiting.event, waiting);
}

TEST_CASE("a stream that cannot be watched leaves nothing behind") {
  boost::asio::io_context context(1);
  const auto driver = colls::engine::get(context.get_executor());
  driver->spin(0);
  colls::detail::descriptor no_socket(::open("/dev/null", O_RDWR | O_CLOEXEC));
  REQUIRE(no_socket);
  CHECK_THROWS_AS(std::make_unique<colls::stream>(*driver, std::move(no_socket)), colls::error);
  // The engine must not use other memory at the same address as a source.
  const auto other = std::make_unique<std::byte[]>(sizeof(colls::stream));
  std::memset(other.get(), 0x55, sizeof(colls::stream));
  driver->idle(1);
}

TEST_CASE("a thread that waits for a device stays awake, unless ranks share its core") {
  boost::asio::io_context context(1);
  const auto driver = colls::engine::get(context.get_executor());
  driver->spin(100);
  CHECK(sleeps_in_a_long_wait(*driver) < 500);
  driver->spin(0);
  CHECK(sleeps_in_a_long_wait(*driver) > 2000);
}
