// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/asio.hpp>

#include <doctest/doctest.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <colls/driver/socket.hpp>
#include <colls/inproc.hpp>
#include <colls/join.hpp>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

// g++ 12 takes the operator new and delete of Asio's own coroutine frames for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
// The reference count of exceptions in the standard library, which is not compiled with TSan.
extern "C" const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() {
  return "race:std::__exception_ptr::exception_ptr::_M_release\n";
}
#endif
#endif

namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using colls::errc;
using colls::milliseconds;
using colls::operation;
using colls::task;

using movable = std::unique_ptr<int>;

/// Counts the objects that exist.
struct alive {
  explicit alive(int& count) : count_(&count) { ++*count_; }
  alive(const alive& other) : count_(other.count_) { ++*count_; }
  alive(alive&& other) noexcept : count_(other.count_) { ++*count_; }
  ~alive() { --*count_; }

 private:
  int* count_;
};

/// An io_context with its engine, and operations on it that belong to no communicator, as a join.
/// Each operation keeps the engine alive.
class fixture final : colls::detail::call_owner {
 public:
  fixture() : engine_(colls::engine::get(io.get_executor())) {}

  /// Ends after `pause` with `value`, or at once; `living` counts its coroutine.
  operation<> after(colls::time_point pause) {
    auto* const made = new colls::detail::call<void>(this, nullptr, engine_->queue());
    (void)(made->body = nap(engine_, pause, alive(living)));
    return begin(made);
  }
  template <class T>
  operation<T> after(colls::time_point pause, T value) {
    auto* const made = new colls::detail::call<T>(this, nullptr, engine_->queue());
    (void)(made->body = nap(engine_, pause, alive(living), std::move(value)));
    return begin(made);
  }
  template <class T = void>
  operation<T> failing(colls::time_point pause) {
    auto* const made = new colls::detail::call<T>(this, nullptr, engine_->queue());
    (void)(made->body = fail<T>(engine_, pause));
    return begin(made);
  }
  colls::engine& driver() { return *engine_; }

  int living = 0;
  asio::io_context io{1};

 private:
  template <class T>
  operation<T> begin(colls::detail::call<T>* made) {
    made->run();
    engine_->wake_driver();
    return operation<T>(made);
  }
  static task<> nap(std::shared_ptr<colls::engine> engine, colls::time_point pause, alive) {
    co_await engine->sleep_until(engine->now() + pause);
  }
  template <class T>
  static task<T> nap(std::shared_ptr<colls::engine> engine, colls::time_point pause, alive,
                     T value) {
    co_await engine->sleep_until(engine->now() + pause);
    co_return value;
  }
  template <class T>
  static task<T> fail(std::shared_ptr<colls::engine> engine, colls::time_point pause) {
    co_await engine->sleep_until(engine->now() + pause);
    throw colls::error(errc::truncated, "a planned failure");
  }

  void call_ended(colls::detail::call_base&) noexcept override {}
  void progress() override { engine_->poll(); }
  void wake_driver() override { engine_->wake_driver(); }

  std::shared_ptr<colls::engine> engine_;
};

constexpr colls::time_point a_while = 20 * milliseconds;
constexpr colls::time_point for_ever = 1000 * colls::seconds;

// Rethrows the exception of an awaitable on the thread that runs its context.
void rethrow(const std::exception_ptr& thrown) {
  if (thrown) std::rethrow_exception(thrown);
}

static_assert(asio::is_async_operation<operation<>>::value);
static_assert(std::is_same_v<asio::completion_signature_of<operation<>>::type, void(error_code)>);
static_assert(
    std::is_same_v<asio::completion_signature_of<operation<int>>::type, void(error_code, int)>);
static_assert(!std::is_invocable_v<operation<>, int>);
static_assert(!std::is_invocable_v<operation<>&, asio::use_future_t<>>,
              "a kept operation has to be moved into the call with a token");

TEST_CASE("an operation is awaited inside asio::awaitable") {
  fixture test;
  int steps = 0;
  const auto work = [&]() -> asio::awaitable<void> {
    for (const auto pause : {colls::time_point{0}, a_while}) {
      co_await test.after(pause);
      ++steps;
      const int number = co_await test.after(pause, 7);
      CHECK(number == 7);
      const movable owned = co_await test.after(pause, std::make_unique<int>(8));
      CHECK(*owned == 8);
      operation<int> kept = test.after(pause, 9);
      co_await test.after(pause);
      const int later = co_await std::move(kept);
      CHECK(later == 9);
      int code = 0;
      try {
        co_await test.failing(pause);
      } catch (const boost::system::system_error& thrown) {
        code = thrown.code() == errc::truncated ? 1 : 2;
      }
      CHECK(code == 1);
      try {
        (void)co_await test.failing<int>(pause);
      } catch (const boost::system::system_error& thrown) {
        code = thrown.code() == std::errc::message_size ? 3 : 4;
      }
      CHECK(code == 3);
      ++steps;
    }
  };
  asio::co_spawn(test.io, work, rethrow);
  test.io.run();
  CHECK(steps == 4);
  CHECK(test.living == 0);
}

TEST_CASE("a future of another thread") {
  fixture test;
  std::promise<std::future<int>> value;
  std::promise<std::future<void>> nothing;
  std::promise<std::future<movable>> failed;
  asio::post(test.io, [&] {
    value.set_value(test.after(a_while, 5)(asio::use_future));
    nothing.set_value(test.after(0)(asio::use_future));
    failed.set_value(test.failing<movable>(a_while)(asio::use_future));
  });
  std::thread driver([&] { test.io.run(); });
  CHECK(value.get_future().get().get() == 5);
  nothing.get_future().get().get();
  CHECK_THROWS_AS(failed.get_future().get().get(), boost::system::system_error);
  driver.join();
}

TEST_CASE("a callback runs on its executor, never inside the call that began it") {
  fixture test;
  asio::thread_pool pool(1);
  for (const auto pause : {colls::time_point{0}, a_while}) {
    std::promise<std::thread::id> handler_thread;
    bool inside = true;
    test.after(pause, 3)(asio::bind_executor(pool, [&](error_code ec, int value) {
      CHECK_FALSE(ec);
      CHECK(value == 3);
      handler_thread.set_value(std::this_thread::get_id());
    }));
    test.after(pause)([&](error_code) { CHECK_FALSE(inside); });
    auto strand = asio::make_strand(test.io);
    bool on_strand = false;
    test.after(pause)(asio::bind_executor(strand, [&](error_code) {
      CHECK_FALSE(inside);
      on_strand = strand.running_in_this_thread();
    }));
    inside = false;
    test.io.restart();
    test.io.run();
    CHECK(on_strand);
    CHECK(handler_thread.get_future().get() != std::this_thread::get_id());
  }
  pool.join();
}

TEST_CASE("a callback's exception reaches the thread that runs the executor") {
  for (const auto pause : {colls::time_point{0}, a_while}) {
    fixture test;
    test.after(pause)([](error_code) { throw std::runtime_error("thrown by a handler"); });
    std::string seen;
    try {
      test.io.run();
    } catch (const std::runtime_error& thrown) {
      seen = thrown.what();
    }
    CHECK(seen == "thrown by a handler");
  }
}

TEST_CASE("sync_wait calls handlers too") {
  fixture test;
  bool called = false;
  test.after(a_while)([&](error_code) { called = true; });
  colls::sync_wait(test.driver(), test.after(5 * a_while));
  CHECK(called);
}

TEST_CASE("a handler that waits keeps its executor running") {
  fixture test;
  asio::io_context other;
  bool called = false;
  test.after(2 * a_while)(asio::bind_executor(other, [&](error_code) { called = true; }));
  std::thread driver([&] { test.io.run(); });
  other.run();
  CHECK(called);
  driver.join();
}

TEST_CASE("without any executor the run queue calls the handler") {
  colls::inproc_world ranks(1);
  colls::inproc::communicator comm = colls::inproc::join(ranks, 0);
  int called = 0;
  comm.barrier()([&](error_code ec) { called += ec ? 100 : 1; });
  CHECK(called == 0);
  ranks.poll();
  CHECK(called == 1);
  const operation<colls::received> ended = comm.recv(std::span<int>(), 0);
  comm.send(std::span<int>(), 0)([&](error_code ec) { called += ec ? 100 : 1; });
  ranks.poll();
  CHECK(called == 2);
}

TEST_CASE("cancellation ends an operation, if it is allowed to") {
  using type = asio::cancellation_type;
  const struct {
    type given;
    bool withdrawable;
    bool ends;
  } cases[] = {
      {type::terminal, false, true}, {type::partial, false, false}, {type::total, false, false},
      {type::terminal, true, true},  {type::partial, true, true},   {type::total, true, true},
  };
  for (const auto& each : cases) {
    fixture test;
    asio::cancellation_signal signal;
    operation<int> waiting = test.after(5 * a_while, 1);
    if (each.withdrawable) {
      waiting.underlying_call().can_withdraw = [](const colls::detail::call_base&) { return true; };
    }
    int called = 0;
    error_code seen;
    std::move(waiting)(asio::bind_cancellation_slot(signal.slot(), [&](error_code ec, int value) {
      ++called;
      seen = ec;
      CHECK(value == (ec ? 0 : 1));
    }));
    asio::post(test.io, [&] {
      signal.emit(each.given);
      CHECK(called == 0);
      CHECK(test.living == (each.ends ? 0 : 1));
      signal.emit(each.given);
    });
    test.io.run();
    CHECK(called == 1);
    CHECK((seen == asio::error::operation_aborted) == each.ends);
    signal.emit(type::all);  // no wait is left
  }
}

TEST_CASE("a signal that comes after the end changes nothing") {
  fixture test;
  asio::cancellation_signal signal;
  int called = 0;
  test.after(0)(asio::bind_cancellation_slot(signal.slot(), [&](error_code ec) {
    CHECK_FALSE(ec);
    ++called;
  }));
  signal.emit(asio::cancellation_type::all);
  test.after(a_while)(asio::bind_cancellation_slot(signal.slot(), [&](error_code ec) {
    CHECK_FALSE(ec);
    ++called;
    signal.emit(asio::cancellation_type::all);
  }));
  test.io.run();
  CHECK(called == 2);
}

TEST_CASE("a cancelled awaitable drops what it waits for") {
  fixture test;
  asio::cancellation_signal signal;
  bool aborted = false;
  const auto work = [&]() -> asio::awaitable<void> {
    try {
      co_await test.after(for_ever);
    } catch (const boost::system::system_error& thrown) {
      aborted = thrown.code() == asio::error::operation_aborted;
    }
  };
  asio::co_spawn(test.io, work, asio::bind_cancellation_slot(signal.slot(), rethrow));
  asio::post(test.io,
             [&] { asio::post(test.io, [&] { signal.emit(asio::cancellation_type::all); }); });
  test.io.run();
  CHECK(aborted);
  CHECK(test.living == 0);
}

TEST_CASE("a deferred operation is called later, or dropped") {
  fixture test;
  {
    auto dropped = test.after(for_ever)(asio::deferred);
    CHECK(test.living == 1);
  }
  CHECK(test.living == 0);
  auto later = test.after(a_while, std::make_unique<int>(4))(asio::deferred);
  int seen = 0;
  std::move(later)([&](error_code, movable value) { seen += *value; });
  const auto work = [&]() -> asio::awaitable<void> {
    const movable value = co_await test.after(0, std::make_unique<int>(5))(asio::use_awaitable);
    seen += *value;
  };
  asio::co_spawn(test.io, work, rethrow);
  test.io.run();
  CHECK(seen == 9);
}

template <class T>
struct counting_allocator {
  using value_type = T;
  int* balance;
  int* count;

  counting_allocator(int* b, int* c) : balance(b), count(c) {}
  template <class U>
  counting_allocator(const counting_allocator<U>& other)
      : balance(other.balance), count(other.count) {}
  T* allocate(std::size_t n) {
    ++*balance;
    ++*count;
    return std::allocator<T>().allocate(n);
  }
  void deallocate(T* memory, std::size_t n) {
    --*balance;
    std::allocator<T>().deallocate(memory, n);
  }
  template <class U>
  bool operator==(const counting_allocator<U>&) const {
    return true;
  }
};

TEST_CASE("memory comes from the handler's allocator and is free before the handler runs") {
  fixture test;
  int balance = 0;
  int count = 0;
  int called = 0;
  for (const auto pause : {colls::time_point{0}, a_while}) {
    test.after(pause)(asio::bind_allocator(counting_allocator<void*>(&balance, &count),
                                           [&](error_code) { ++called; }));
  }
  CHECK(count >= 2);
  test.io.run();
  CHECK(called == 2);
  CHECK(balance == 0);
}

TEST_CASE("a context that is destroyed destroys the waits that are left") {
  int handlers = 0;
  int frames = 0;
  {
    fixture test;
    test.after(for_ever)([held = alive(handlers)](error_code) { FAIL("nothing has ended"); });
    const auto work = [](fixture& f, alive) -> asio::awaitable<void> {
      co_await f.after(for_ever);
      FAIL("nothing has ended");
    };
    asio::co_spawn(test.io, work(test, alive(frames)), asio::detached);
    test.io.poll();
    test.after(0)([held = alive(handlers)](error_code) { FAIL("no thread runs the context"); });
    CHECK(handlers == 2);
    CHECK(frames == 1);
  }
  CHECK(handlers == 0);
  CHECK(frames == 0);
}

// ---- real worlds

/// Runs all ranks of a world over TCP in this io_context, each as an asio::awaitable.
template <class Main>
void run_world(asio::io_context& io, int size, Main rank_main) {
  // The listening socket is passed on, so that no other test can have its port.
  colls::listener listener;
  REQUIRE_FALSE(listener.listen({asio::ip::make_address("127.0.0.1"), 0}));
  for (int rank = 0; rank < size; ++rank) {
    colls::config cfg;
    cfg.rank = rank;
    cfg.size = size;
    cfg.address = "tcp://127.0.0.1:" + std::to_string(listener.local().port());
    cfg.join_timeout = std::chrono::seconds(20);
    if (rank == 0) cfg.store_fd = ::dup(listener.descriptor());
    const auto join_and_run = [](asio::io_context& context, colls::config rank_cfg,
                                 Main main) -> asio::awaitable<void> {
      colls::world world = co_await colls::join(context.get_executor(), rank_cfg);
      co_await main(world);
    };
    asio::co_spawn(io, join_and_run(io, cfg, rank_main), rethrow);
  }
  io.run();
}

TEST_CASE("a program of Asio joins a world and reduces in it") {
  asio::io_context io{1};
  std::atomic<int> good = 0;
  run_world(io, 3, [&](colls::world& world) -> asio::awaitable<void> {
    std::vector<int> data(1000, world.rank() + 1);
    co_await world.all_reduce(data);
    int right = data == std::vector<int>(1000, 6) ? 1 : 0;
    operation<> first = world.barrier();
    operation<> second = world.broadcast(data, 1);
    co_await std::move(second);
    co_await std::move(first);
    try {
      co_await world.broadcast(data, 9);
    } catch (const boost::system::system_error& thrown) {
      right += thrown.code() == errc::invalid_argument ? 1 : 0;
    }
    std::vector<int> into(1);
    const std::vector<int> out(1, world.rank());
    const int next = (world.rank() + 1) % 3;
    const int before = (world.rank() + 2) % 3;
    const colls::received got = co_await world.send_recv(out, next, into, before, 1);
    right += got.count == 1 && into[0] == before ? 1 : 0;
    good += right;
  });
  CHECK(good == 9);
}

TEST_CASE("a join that fails reports the reason") {
  asio::io_context io{1};
  error_code seen;
  const auto work = [&]() -> asio::awaitable<void> {
    colls::config cfg;
    cfg.rank = 1;
    cfg.size = 2;
    cfg.address = "tcp://127.0.0.1:1";
    cfg.join_timeout = std::chrono::milliseconds(200);
    try {
      co_await colls::join(io.get_executor(), cfg);
    } catch (const boost::system::system_error& thrown) {
      seen = thrown.code();
    }
  };
  asio::co_spawn(io, work, rethrow);
  io.run();
  CHECK(seen.message() != "");
  CHECK(std::error_code(seen).category() == colls::error_category());
}

TEST_CASE(
    "cancelling one rank's collective ends it on all; a receive that waits is just withdrawn") {
  asio::io_context io{1};
  std::atomic<int> aborted = 0;
  std::atomic<int> cancelled = 0;
  std::atomic<int> continued = 0;
  run_world(io, 2, [&](colls::world& world) -> asio::awaitable<void> {
    co_await world.barrier();
    const auto executor = co_await asio::this_coro::executor;
    asio::cancellation_signal signal;
    std::vector<int> data(1);
    const auto cancel = [&](asio::cancellation_type type) {
      return [&, type] { signal.emit(type); };
    };
    if (world.rank() == 0) {
      asio::post(executor, cancel(asio::cancellation_type::total));
      try {
        co_await world.recv(data, 1,
                            5)(asio::bind_cancellation_slot(signal.slot(), asio::use_awaitable));
      } catch (const boost::system::system_error& thrown) {
        aborted += thrown.code() == asio::error::operation_aborted ? 1 : 0;
      }
    }
    co_await world.all_reduce(data);
    ++continued;
    try {
      if (world.rank() == 0) {
        asio::post(executor, cancel(asio::cancellation_type::terminal));
        co_await world.all_reduce(data)(
            asio::bind_cancellation_slot(signal.slot(), asio::use_awaitable));
      } else {
        std::vector<int> other(1);
        co_await world.recv(other, 0, 6);
      }
    } catch (const boost::system::system_error& thrown) {
      aborted += thrown.code() == asio::error::operation_aborted ? 1 : 0;
      cancelled += thrown.code() == errc::cancelled ? 1 : 0;
    }
    CHECK(world.failed() != nullptr);
  });
  CHECK(continued == 2);
  CHECK(aborted == 2);
  CHECK(cancelled == 1);
}

TEST_CASE("a context that ends takes its worlds with it") {
  int frames = 0;
  {
    asio::io_context io{1};
    run_world(io, 2, [&](colls::world& world) -> asio::awaitable<void> {
      const alive counted(frames);
      std::vector<int> data(1);
      co_await world.barrier();
      if (world.rank() == 0) {
        asio::post(io, [&] { io.stop(); });
        co_await world.all_reduce(data);
      } else {
        co_await world.recv(data, 0, 1);
      }
    });
    CHECK(frames == 2);
  }
  CHECK(frames == 0);
}

}  // namespace
