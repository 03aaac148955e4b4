// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/stream.hpp>

#include <colls/coroutine/task.hpp>
#include <colls/coroutine/when_all.hpp>
#include <colls/cuda/exportable_memory.hpp>
#include <colls/transport/inproc/inproc_transport.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <thread>
#include <vector>

#include "../stand_in/cuda.hpp"

namespace cuda = colls::cuda;

namespace {

static_assert(colls::startable<cuda::stream::wait_operation>);
static_assert(colls::request<cuda::stream::request>);

/// Device memory and pinned memory, and a stream that copies between them.
struct fixture {
  colls::inproc_world world{1};
  cuda::stream stream{0};
  cuda::device_buffer<int> device{1000};
  cuda::pinned_buffer<int> pinned{1000};
};

TEST_CASE("an awaited stream resumes its coroutine when its work is done, in any order") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    stand_in::boot({.seed = seed, .streams_write = seed % 4 != 0});
    {
      fixture with;
      const auto round_trip = [&]() -> colls::task<> {
        for (int round = 0; round < 3; ++round) {
          std::iota(with.pinned.data(), with.pinned.data() + 1000, round);
          with.stream.copy(with.device.data(), with.pinned.data(), 4000);
          co_await with.stream.reached();
          std::fill_n(with.pinned.data(), 1000, -1);
          with.stream.copy(with.pinned.data(), with.device.data(), 4000);
          co_await with.stream.reached();
          for (int i = 0; i < 1000; ++i) REQUIRE(with.pinned.data()[i] == round + i);
        }
      };
      colls::sync_wait(with.world, round_trip());
      CHECK_FALSE(with.world.queue().is_watching());
    }
    CHECK(stand_in::complaints().empty());
    CHECK(stand_in::allocations() == 0);
  }
}

TEST_CASE("a stream that follows another one waits for the work that it had before") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    stand_in::boot({.seed = seed});
    fixture with;
    void* const users = stand_in::make_stream();
    std::fill_n(with.device.data(), 1000, 0);
    stand_in::enqueue(
        users, [](void* data) { std::fill_n(static_cast<int*>(data), 1000, 7); },
        with.device.data());
    with.stream.follow({users});
    with.stream.copy(with.pinned.data(), with.device.data(), 4000);
    const auto wait = [&]() -> colls::task<> { co_await with.stream.reached(); };
    colls::sync_wait(with.world, wait());
    REQUIRE(with.pinned.data()[999] == 7);
  }
}

TEST_CASE("the work of a stream before it follows another one does not wait for that stream") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    stand_in::boot({.seed = seed});
    bool open = false;
    fixture with;
    void* const first = stand_in::make_stream();
    void* const then = stand_in::make_stream();
    {
      const auto guard = stand_in::lock();
      const auto is_open = [&open] { return open; };
      stand_in::enqueue_barrier(then, &open, is_open, {});
    }
    stand_in::enqueue(first, [](void*) {}, nullptr);
    with.stream.follow({first});
    const auto wait = [&]() -> colls::task<> { co_await with.stream.reached(); };
    colls::task<> before = wait();
    colls::completion ignored([](colls::completion&) noexcept {}, &with.world.queue());
    bool ended = before.start(ignored);
    with.stream.follow({then});
    for (int polls = 0; polls < 100 && !ended; ++polls) {
      (void)with.world.poll();
      ended = !with.world.queue().is_watching();
    }
    CHECK(ended);
    open = true;
    colls::sync_wait(with.world, wait());
    CHECK(stand_in::complaints().empty());
  }
}

TEST_CASE("a stream belongs to its device, whichever device the thread uses") {
  stand_in::boot({.devices = 2});
  (void)cuda::api::use_device(0);
  colls::inproc_world world(1);
  cuda::stream on(1);
  const auto wait = [&]() -> colls::task<> { co_await on.reached(); };
  colls::sync_wait(world, wait());
  int now = -1;
  (void)cuda::api::current_device(now);
  CHECK(now == 0);
  CHECK(stand_in::complaints().empty());
}

TEST_CASE("a stream can be awaited on a thread that has used no device") {
  stand_in::boot({});
  colls::inproc_world world(1);
  cuda::stream on(0);
  std::thread other([&] {
    const auto wait = [&]() -> colls::task<> { co_await on.reached(); };
    colls::sync_wait(world, wait());
    cuda::api::status why = 0;
    const cuda::on_device here(0);
    const auto usage = cuda::exportable_memory::usage::user_streams;
    CHECK(cuda::exportable_memory::allocate(10, 0, usage, why) != nullptr);
  });
  other.join();
  CHECK(stand_in::complaints().empty());
}

TEST_CASE("a stream that is captured into a graph is not followed") {
  stand_in::boot({});
  cuda::stream on(0);
  void* const callers = stand_in::make_stream();
  stand_in::capture(callers, true);
  CHECK_THROWS_AS(on.follow({callers}), colls::error);
  cuda::event called(0);
  CHECK_THROWS_AS(called.record({callers}), colls::error);
  stand_in::capture(callers, false);
  on.follow({callers});
  CHECK(stand_in::complaints().empty());
}

TEST_CASE("a stream ends when its work is done") {
  stand_in::boot({.eager_percent = 0});
  {
    const cuda::pinned_buffer<int> from(100);
    const cuda::device_buffer<int> to(100);
    std::fill_n(from.data(), 100, 5);
    cuda::stream(0).copy(to.data(), from.data(), 100 * sizeof(int));
    CHECK(to.data()[99] == 5);
  }
  CHECK(stand_in::complaints().empty());
}

TEST_CASE("an abandoned stream is waited for a second, and then keeps its progress word") {
  for (const int round : {0, 1, 2, 3}) {
    const bool dropped = round % 2 == 0;
    const bool comes = round / 2 == 0;
    stand_in::boot({.eager_percent = 0});
    void* const users = stand_in::make_stream();
    bool open = false;
    {
      const auto guard = stand_in::lock();
      const auto is_open = [&open] { return open; };
      stand_in::enqueue_barrier(users, &open, is_open, {});
    }
    {
      colls::inproc_world world(1);
      colls::communicator_state state(1, 0, 1, nullptr);
      cuda::stream_pool pool(0);
      const auto wait = [&]() -> colls::task<> {
        const cuda::stream_pool::lease one(pool);
        one->follow({users});
        co_await one->followed(state);
      };
      colls::task<> waiting = wait();
      colls::completion ignored([](colls::completion&) noexcept {}, &world.queue());
      REQUIRE_FALSE(waiting.start(ignored));
      if (!dropped) state.fail(colls::reported_failure(colls::failure(colls::errc::timeout)));
      for (int polls = 0; polls < 10 && !dropped; ++polls) (void)world.poll();
      if (!dropped) CHECK_THROWS_AS(waiting.result(), colls::error);
      waiting = {};
      open = comes;
    }
    CHECK(stand_in::allocations() == (comes ? 0 : 1));
    CHECK((stand_in::pending() == 0) == comes);
    open = true;
    stand_in::synchronize(users);
    CHECK(stand_in::complaints().empty());
  }
}

TEST_CASE("many coroutines may await streams at a time") {
  stand_in::boot({});
  fixture with;
  cuda::stream other(0);
  int ended = 0;
  const auto one = [&](cuda::stream& on) -> colls::task<> {
    co_await on.reached();
    ++ended;
  };
  std::vector<colls::task<>> all;
  for (int i = 0; i < 10; ++i) all.push_back(one(i % 3 == 0 ? other : with.stream));
  colls::sync_wait(with.world, colls::when_all(std::move(all)));
  CHECK(ended == 10);
  CHECK_FALSE(with.world.queue().is_watching());
}

TEST_CASE("a coroutine that is dropped waits for the stream before its memory is freed") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    stand_in::boot({.seed = seed, .eager_percent = 0, .streams_write = seed % 2 == 0});
    {
      fixture with;
      const auto copies = [&]() -> colls::task<> {
        const cuda::pinned_buffer<int> mine(1000);
        with.stream.copy(mine.data(), with.device.data(), 4000);
        co_await with.stream.reached();
      };
      colls::task<> dropped = copies();
      colls::completion ignored([](colls::completion&) noexcept {}, &with.world.queue());
      const bool ended = dropped.start(ignored);
      if (!ended) CHECK(stand_in::pending() > 0);
      dropped = {};
      CHECK(stand_in::pending() == 0);
      CHECK_FALSE(with.world.queue().is_watching());
    }
    CHECK(stand_in::complaints().empty());
  }
}

TEST_CASE("a device that fails ends the wait with its error") {
  stand_in::boot({.eager_percent = 0});
  {
    fixture with;
    const auto code_of = [&](int status) {
      const auto wait = [&]() -> colls::task<> {
        with.stream.copy(with.device.data(), with.pinned.data(), 4000);
        if (status != 0) stand_in::break_devices(status);
        co_await with.stream.reached();
      };
      try {
        colls::sync_wait(with.world, wait());
      } catch (const colls::error& thrown) {
        return static_cast<colls::errc>(thrown.code().value());
      }
      return colls::errc{};
    };
    CHECK(code_of(0) == colls::errc{});
    CHECK(code_of(700) == colls::errc::device_failed);
  }
  // The same if the device fails during the wait.
  int suspended = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    stand_in::boot({.seed = seed, .eager_percent = 0});
    fixture with;
    const auto wait = [&]() -> colls::task<> { co_await with.stream.reached(); };
    colls::task<> waiting = wait();
    struct noted : colls::completion {
      bool ended = false;
    } done;
    done.bind([](colls::completion& self) noexcept { static_cast<noted&>(self).ended = true; },
              colls::completion(nullptr, &with.world.queue()));
    if (waiting.start(done)) continue;
    ++suspended;
    stand_in::break_devices(700);
    for (int polls = 0; polls < 5000 && !done.ended; ++polls) (void)with.world.poll();
    REQUIRE(done.ended);
    CHECK_THROWS_AS(waiting.result(), colls::error);
  }
  CHECK(suspended > 0);
}

TEST_CASE("streams of a pool are destroyed when calls no longer need them") {
  stand_in::boot({});
  {
    cuda::stream_pool pool(0);
    {
      std::deque<cuda::stream_pool::lease> many;
      for (int i = 0; i < 20; ++i) many.emplace_back(pool);
    }
    for (int i = 0; i < 3000; ++i) {
      const cuda::stream_pool::lease one(pool);
      const cuda::stream_pool::lease other(pool);
    }
    CHECK(stand_in::calls("make_stream") == 20);
    CHECK(stand_in::calls("destroy_stream") == 18);
  }
  CHECK(stand_in::calls("destroy_stream") == 20);
}

}  // namespace
