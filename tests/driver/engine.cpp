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

/// Finds nothing, and remembers when it was told that the thread would sleep.
struct quiet_source : colls::engine::source {
  unsigned polls = 0;
  std::vector<unsigned> armed_after;  // polls
  std::atomic<unsigned> armed = 0;

  bool poll() override {
    ++polls;
    return false;
  }
  void sweep(colls::time_point) override {}
  bool pending() const override { return true; }
  bool arm() override {
    armed_after.push_back(std::exchange(polls, 0));
    ++armed;
    return true;
  }
};

/// Ends when the bell has rung twice.
struct second_ring : colls::engine::watcher {
  int bell = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  unsigned rings = 0;
  colls::completion* done = nullptr;

  second_ring() = default;
  second_ring(const second_ring&) = delete;
  ~second_ring() { ::close(bell); }

  void ring() const {
    const std::uint64_t one = 1;
    CHECK(::write(bell, &one, sizeof one) == sizeof one);
  }
  void ready(std::uint32_t) override {
    std::uint64_t rung = 0;
    CHECK(::read(bell, &rung, sizeof rung) == sizeof rung);
    if (++rings == 2) done->post();
  }
  bool start(colls::completion& waiter) {
    done = &waiter;
    return false;
  }
  void result() {}
};

}  // namespace

TEST_CASE("who is woken spins before it sleeps again") {
  constexpr unsigned spin = 1000;
  boost::asio::io_context context(1);
  const auto on = colls::engine::of(context.get_executor());
  on->spin(spin);
  quiet_source source;
  second_ring waiting;
  on->add(source);
  on->watch(waiting.bell, EPOLLIN, waiting);
  std::thread ringer([&] {
    while (source.armed < 1) std::this_thread::yield();
    const unsigned before = source.armed;
    waiting.ring();
    while (source.armed < before + 2) std::this_thread::yield();
    waiting.ring();
  });
  colls::sync_wait(*on, waiting);
  ringer.join();
  on->unwatch(waiting.bell, waiting);
  on->remove(source);
  REQUIRE(source.armed_after.size() >= 3);
  CHECK(source.armed_after[0] >= spin);
  // Sleeps that nothing ended followed each other; the one after the ring came after a spin.
  CHECK(*std::max_element(source.armed_after.begin() + 1, source.armed_after.end()) >= spin);
}

TEST_CASE("sources are armed when others turn the engine, not whenever it is left to them") {
  boost::asio::io_context context(1);
  const auto on = colls::engine::of(context.get_executor());
  quiet_source source;
  on->add(source);
  for (int i = 0; i < 3; ++i) {
    on->enter();
    on->leave();
  }
  CHECK(source.armed == 0);
  context.poll();
  CHECK(source.armed > 0);
  on->remove(source);
}

TEST_CASE("who yields lets the program's own handlers run") {
  boost::asio::io_context context(1);
  const auto on = colls::engine::of(context.get_executor());
  on->spin(0, colls::never);
  second_ring waiting;
  // Ends the wait that no handler ends.
  struct : quiet_source {
    second_ring* waits = nullptr;
    bool poll() override {
      if (polls == 20'000'000) waits->done->post();
      return quiet_source::poll();
    }
  } source;
  source.waits = &waiting;
  on->add(source);
  bool has_run = false;
  boost::asio::post(context, [&] {
    has_run = source.armed == 0;  // not only because the thread was to sleep
    waiting.done->post();
  });
  colls::sync_wait(*on, waiting);
  CHECK(has_run);
  on->remove(source);
}

TEST_CASE("an engine knows its io_context behind strands, and takes no other context for one") {
  namespace asio = boost::asio;
  asio::io_context context(1);
  const asio::any_io_executor plain = context.get_executor();
  const auto tracked =
      asio::require(context.get_executor(), asio::execution::outstanding_work.tracked);
  for (const asio::any_io_executor& each :
       {plain, asio::any_io_executor(tracked),
        asio::any_io_executor(asio::make_strand(context.get_executor())),
        asio::any_io_executor(asio::make_strand(plain)),
        asio::any_io_executor(
            asio::make_strand(asio::any_io_executor(asio::make_strand(plain))))}) {
    CHECK(colls::detail::io_context_of(each) == &context);
  }
  asio::thread_pool pool(1);
  CHECK(colls::detail::io_context_of(pool.get_executor()) == nullptr);
  CHECK(colls::detail::io_context_of(asio::make_strand(pool)) == nullptr);
  CHECK(colls::detail::io_context_of({}) == nullptr);
}

TEST_CASE("the thread of a pool waits for what its engine turns, and turns it meanwhile") {
  boost::asio::thread_pool pool(1);
  int ended = 0;
  std::shared_ptr<colls::engine> on;
  second_ring waiting;
  boost::asio::post(pool, [&] {
    on = colls::engine::of(pool.get_executor());
    on->watch(waiting.bell, EPOLLIN, waiting);
    colls::sync_wait(*on, on->sleep_until(on->now() + 5 * colls::milliseconds));
    ++ended;
    waiting.ring();
  });
  // No task waits any more: the pool turns the engine for what it watches.
  bool has_rung = false;
  for (int i = 0; i < 5000 && !has_rung; ++i) {
    std::promise<bool> answer;
    boost::asio::post(pool, [&] { answer.set_value(waiting.rings == 1); });
    has_rung = answer.get_future().get();
    ::usleep(1000);
  }
  CHECK(has_rung);
  boost::asio::post(pool, [&] {
    on->unwatch(waiting.bell, waiting);
    on.reset();
    ++ended;
  });
  pool.join();
  CHECK(ended == 2);
}

TEST_CASE("a child of the process that lets an engine go takes nothing from its parent") {
  boost::asio::io_context context(1);
  std::shared_ptr<colls::engine> on = colls::engine::of(context.get_executor());
  second_ring waits;
  on->watch(waits.bell, EPOLLIN, waits);
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = false;
    try {
      on->dispatch();
    } catch (const colls::error& thrown) {
      refused = thrown.record().code == colls::errc::closed;
    }
    on->unwatch(waits.bell, waits);
    on.reset();
    ::_exit(refused ? 7 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
  waits.ring();
  CHECK(on->dispatch());
  CHECK(waits.rings == 1);
  on->unwatch(waits.bell, waits);
}

TEST_CASE("a stream that cannot be watched leaves nothing behind") {
  boost::asio::io_context context(1);
  const auto on = colls::engine::of(context.get_executor());
  on->spin(0);
  colls::detail::descriptor no_socket(::open("/dev/null", O_RDWR | O_CLOEXEC));
  REQUIRE(no_socket);
  CHECK_THROWS_AS(std::make_unique<colls::stream>(*on, std::move(no_socket)), colls::error);
  // What takes the place of it is no source.
  const auto other = std::make_unique<std::byte[]>(sizeof(colls::stream));
  std::memset(other.get(), 0x55, sizeof(colls::stream));
  on->idle(1);
}

TEST_CASE("who waits for a device stays awake, unless ranks share its core") {
  boost::asio::io_context context(1);
  const auto on = colls::engine::of(context.get_executor());
  on->spin(100);
  CHECK(sleeps_in_a_long_wait(*on) < 500);
  on->spin(0);
  CHECK(sleeps_in_a_long_wait(*on) > 2000);
}
