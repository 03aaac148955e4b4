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
// The standard library's own count of who holds an exception, which was not compiled with it.
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

/// Counts what lives.
struct alive {
  explicit alive(int& count) : count_(&count) { ++*count_; }
  alive(const alive& other) : count_(other.count_) { ++*count_; }
  alive(alive&& other) noexcept : count_(other.count_) { ++*count_; }
  ~alive() { --*count_; }

 private:
  int* count_;
};

/// An io_context with its engine, and operations of no communicator on it, as a join is one: each
/// keeps the engine.
class bench final : colls::detail::call_owner {
 public:
  bench() : engine_(colls::engine::of(io.get_executor())) {}

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
  colls::engine& on() { return *engine_; }

  int living = 0;
  asio::io_context io{1};

 private:
  template <class T>
  operation<T> begin(colls::detail::call<T>* made) {
    made->run();
    engine_->kick();
    return operation<T>(made);
  }
  static task<> nap(std::shared_ptr<colls::engine> on, colls::time_point pause, alive) {
    co_await on->sleep_until(on->now() + pause);
  }
  template <class T>
  static task<T> nap(std::shared_ptr<colls::engine> on, colls::time_point pause, alive, T value) {
    co_await on->sleep_until(on->now() + pause);
    co_return value;
  }
  template <class T>
  static task<T> fail(std::shared_ptr<colls::engine> on, colls::time_point pause) {
    co_await on->sleep_until(on->now() + pause);
    throw colls::error(errc::truncated, "as it was asked to");
  }

  void ended(colls::detail::call_base&) noexcept override {}
  void progress() override { engine_->poll(); }
  void kick() override { engine_->kick(); }

  std::shared_ptr<colls::engine> engine_;
};

constexpr colls::time_point a_while = 20 * milliseconds;
constexpr colls::time_point for_ever = 1000 * colls::seconds;

// What an awaitable ended with, for the test's own thread.
void rethrow(const std::exception_ptr& thrown) {
  if (thrown) std::rethrow_exception(thrown);
}

static_assert(asio::is_async_operation<operation<>>::value);
static_assert(std::is_same_v<asio::completion_signature_of<operation<>>::type, void(error_code)>);
static_assert(
    std::is_same_v<asio::completion_signature_of<operation<int>>::type, void(error_code, int)>);
static_assert(!std::is_invocable_v<operation<>, int>);
static_assert(!std::is_invocable_v<operation<>&, asio::use_future_t<>>,
              "an operation that is kept is moved into its token");

TEST_CASE("an operation is awaited inside asio::awaitable") {
  bench all;
  int steps = 0;
  const auto work = [&]() -> asio::awaitable<void> {
    for (const auto pause : {colls::time_point{0}, a_while}) {
      co_await all.after(pause);
      ++steps;
      const int number = co_await all.after(pause, 7);
      CHECK(number == 7);
      const movable owned = co_await all.after(pause, std::make_unique<int>(8));
      CHECK(*owned == 8);
      operation<int> kept = all.after(pause, 9);
      co_await all.after(pause);
      const int later = co_await std::move(kept);
      CHECK(later == 9);
      int code = 0;
      try {
        co_await all.failing(pause);
      } catch (const boost::system::system_error& thrown) {
        code = thrown.code() == errc::truncated ? 1 : 2;
      }
      CHECK(code == 1);
      try {
        (void)co_await all.failing<int>(pause);
      } catch (const boost::system::system_error& thrown) {
        code = thrown.code() == std::errc::message_size ? 3 : 4;
      }
      CHECK(code == 3);
      ++steps;
    }
  };
  asio::co_spawn(all.io, work, rethrow);
  all.io.run();
  CHECK(steps == 4);
  CHECK(all.living == 0);
}

TEST_CASE("a future of another thread") {
  bench all;
  std::promise<std::future<int>> value;
  std::promise<std::future<void>> nothing;
  std::promise<std::future<movable>> failed;
  asio::post(all.io, [&] {
    value.set_value(all.after(a_while, 5)(asio::use_future));
    nothing.set_value(all.after(0)(asio::use_future));
    failed.set_value(all.failing<movable>(a_while)(asio::use_future));
  });
  std::thread driver([&] { all.io.run(); });
  CHECK(value.get_future().get().get() == 5);
  nothing.get_future().get().get();
  CHECK_THROWS_AS(failed.get_future().get().get(), boost::system::system_error);
  driver.join();
}

TEST_CASE("a callback runs on its executor, never inside the call that began it") {
  bench all;
  asio::thread_pool pool(1);
  for (const auto pause : {colls::time_point{0}, a_while}) {
    std::promise<std::thread::id> there;
    bool inside = true;
    all.after(pause, 3)(asio::bind_executor(pool, [&](error_code ec, int value) {
      CHECK_FALSE(ec);
      CHECK(value == 3);
      there.set_value(std::this_thread::get_id());
    }));
    all.after(pause)([&](error_code) { CHECK_FALSE(inside); });
    auto strand = asio::make_strand(all.io);
    bool on_strand = false;
    all.after(pause)(asio::bind_executor(strand, [&](error_code) {
      CHECK_FALSE(inside);
      on_strand = strand.running_in_this_thread();
    }));
    inside = false;
    all.io.restart();
    all.io.run();
    CHECK(on_strand);
    CHECK(there.get_future().get() != std::this_thread::get_id());
  }
  pool.join();
}

TEST_CASE("a callback's exception belongs to who runs the executor") {
  for (const auto pause : {colls::time_point{0}, a_while}) {
    bench all;
    all.after(pause)([](error_code) { throw std::runtime_error("thrown by a handler"); });
    std::string seen;
    try {
      all.io.run();
    } catch (const std::runtime_error& thrown) {
      seen = thrown.what();
    }
    CHECK(seen == "thrown by a handler");
  }
}

TEST_CASE("sync_wait calls handlers too") {
  bench all;
  bool called = false;
  all.after(a_while)([&](error_code) { called = true; });
  colls::sync_wait(all.on(), all.after(5 * a_while));
  CHECK(called);
}

TEST_CASE("a handler that waits keeps its executor running") {
  bench all;
  asio::io_context other;
  bool called = false;
  all.after(2 * a_while)(asio::bind_executor(other, [&](error_code) { called = true; }));
  std::thread driver([&] { all.io.run(); });
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

TEST_CASE("cancellation ends an operation, if it may") {
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
    bench all;
    asio::cancellation_signal signal;
    operation<int> waiting = all.after(5 * a_while, 1);
    if (each.withdrawable) {
      waiting.started().untouched = [](const colls::detail::call_base&) { return true; };
    }
    int called = 0;
    error_code seen;
    std::move(waiting)(asio::bind_cancellation_slot(signal.slot(), [&](error_code ec, int value) {
      ++called;
      seen = ec;
      CHECK(value == (ec ? 0 : 1));
    }));
    asio::post(all.io, [&] {
      signal.emit(each.given);
      CHECK(called == 0);
      CHECK(all.living == (each.ends ? 0 : 1));
      signal.emit(each.given);
    });
    all.io.run();
    CHECK(called == 1);
    CHECK((seen == asio::error::operation_aborted) == each.ends);
    signal.emit(type::all);  // nobody is left
  }
}

TEST_CASE("a signal that comes after the end changes nothing") {
  bench all;
  asio::cancellation_signal signal;
  int called = 0;
  all.after(0)(asio::bind_cancellation_slot(signal.slot(), [&](error_code ec) {
    CHECK_FALSE(ec);
    ++called;
  }));
  signal.emit(asio::cancellation_type::all);
  all.after(a_while)(asio::bind_cancellation_slot(signal.slot(), [&](error_code ec) {
    CHECK_FALSE(ec);
    ++called;
    signal.emit(asio::cancellation_type::all);
  }));
  all.io.run();
  CHECK(called == 2);
}

TEST_CASE("a cancelled awaitable drops what it waits for") {
  bench all;
  asio::cancellation_signal signal;
  bool aborted = false;
  const auto work = [&]() -> asio::awaitable<void> {
    try {
      co_await all.after(for_ever);
    } catch (const boost::system::system_error& thrown) {
      aborted = thrown.code() == asio::error::operation_aborted;
    }
  };
  asio::co_spawn(all.io, work, asio::bind_cancellation_slot(signal.slot(), rethrow));
  asio::post(all.io,
             [&] { asio::post(all.io, [&] { signal.emit(asio::cancellation_type::all); }); });
  all.io.run();
  CHECK(aborted);
  CHECK(all.living == 0);
}

TEST_CASE("a deferred operation is called later, or dropped") {
  bench all;
  {
    auto dropped = all.after(for_ever)(asio::deferred);
    CHECK(all.living == 1);
  }
  CHECK(all.living == 0);
  auto later = all.after(a_while, std::make_unique<int>(4))(asio::deferred);
  int seen = 0;
  std::move(later)([&](error_code, movable value) { seen += *value; });
  const auto work = [&]() -> asio::awaitable<void> {
    const movable value = co_await all.after(0, std::make_unique<int>(5))(asio::use_awaitable);
    seen += *value;
  };
  asio::co_spawn(all.io, work, rethrow);
  all.io.run();
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
  bench all;
  int balance = 0;
  int count = 0;
  int called = 0;
  for (const auto pause : {colls::time_point{0}, a_while}) {
    all.after(pause)(asio::bind_allocator(counting_allocator<void*>(&balance, &count),
                                          [&](error_code) { ++called; }));
  }
  CHECK(count >= 2);
  all.io.run();
  CHECK(called == 2);
  CHECK(balance == 0);
}

TEST_CASE("a context that ends destroys who still waits") {
  int handlers = 0;
  int frames = 0;
  {
    bench all;
    all.after(for_ever)([held = alive(handlers)](error_code) { FAIL("nothing has ended"); });
    const auto work = [](bench& on, alive) -> asio::awaitable<void> {
      co_await on.after(for_ever);
      FAIL("nothing has ended");
    };
    asio::co_spawn(all.io, work(all, alive(frames)), asio::detached);
    all.io.poll();
    all.after(0)([held = alive(handlers)](error_code) { FAIL("nobody runs the context"); });
    CHECK(handlers == 2);
    CHECK(frames == 1);
  }
  CHECK(handlers == 0);
  CHECK(frames == 0);
}

// ---- real worlds

/// All ranks of a world over TCP in this io_context, each an asio::awaitable.
template <class Main>
void run_world(asio::io_context& io, int size, Main rank_main) {
  // A listening socket that is handed over: no other test can have its port.
  colls::listener door;
  REQUIRE_FALSE(door.listen({asio::ip::make_address("127.0.0.1"), 0}));
  for (int rank = 0; rank < size; ++rank) {
    colls::config how;
    how.rank = rank;
    how.size = size;
    how.address = "tcp://127.0.0.1:" + std::to_string(door.local().port());
    how.join_timeout = std::chrono::seconds(20);
    if (rank == 0) how.store_fd = ::dup(door.descriptor());
    const auto life = [](asio::io_context& on, colls::config who,
                         Main main) -> asio::awaitable<void> {
      colls::world world = co_await colls::join(on.get_executor(), who);
      co_await main(world);
    };
    asio::co_spawn(io, life(io, how, rank_main), rethrow);
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

TEST_CASE("a join that fails says why") {
  asio::io_context io{1};
  error_code seen;
  const auto work = [&]() -> asio::awaitable<void> {
    colls::config how;
    how.rank = 1;
    how.size = 2;
    how.address = "tcp://127.0.0.1:1";
    how.join_timeout = std::chrono::milliseconds(200);
    try {
      co_await colls::join(io.get_executor(), how);
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
  std::atomic<int> went_on = 0;
  run_world(io, 2, [&](colls::world& world) -> asio::awaitable<void> {
    co_await world.barrier();
    const auto executor = co_await asio::this_coro::executor;
    asio::cancellation_signal signal;
    std::vector<int> data(1);
    const auto cancel = [&](asio::cancellation_type how) { return [&, how] { signal.emit(how); }; };
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
    ++went_on;
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
  CHECK(went_on == 2);
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
