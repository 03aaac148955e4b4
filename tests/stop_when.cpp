// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // wrong about std::stop_source with -Og
#endif

#include <colls/stop_when.hpp>

#include <colls/join.hpp>
#include <colls/simulated.hpp>
#include <colls/threads.hpp>

#include "support/communicators.hpp"
#include "support/paired_threads.hpp"
#include "support/tcp_ranks.hpp"
#include "support/tcp_threads.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <thread>
#include <vector>

// Operations that a stop token cancels.

namespace {

using colls::errc;
using colls::failure;
using colls::operation;
using colls::received;
using colls::stop_when;
using namespace std::chrono_literals;

/// Returns the failure of an operation, with code 0 if it succeeded.
template <class World, class Operation>
failure failure_in(World& world, Operation& waiting) {
  try {
    (void)colls::sync_wait(world, waiting);
  } catch (const colls::error& thrown) {
    return thrown.record();
  }
  return {};
}
template <class World, class Operation>
errc code_in(World& world, Operation& waiting) {
  return failure_in(world, waiting).code;
}

/// Requests a stop on another thread, after a pause.
class later_stop {
 public:
  explicit later_stop(std::chrono::milliseconds pause)
      : thread_([this, pause] {
          std::this_thread::sleep_for(pause);
          requested_at_ = std::chrono::steady_clock::now();
          source_.request_stop();
        }) {}
  ~later_stop() {
    if (thread_.joinable()) thread_.join();
  }
  std::stop_token token() const { return source_.get_token(); }
  /// Returns how much time has passed since the request.
  std::chrono::steady_clock::duration age() {
    const auto now = std::chrono::steady_clock::now();
    thread_.join();
    return now - requested_at_;
  }

 private:
  std::stop_source source_;
  std::chrono::steady_clock::time_point requested_at_;
  std::thread thread_;
};

TEST_CASE("a receive or a send that no peer has matched is withdrawn") {
  communicators all(2);
  std::vector<int> in(colls::eager_limit);  // so long that the send waits for its receive
  std::vector<int> out(colls::eager_limit, 5);
  std::stop_source source;
  auto receiving = stop_when(source.get_token(), all[0].recv(in, 1, 1));
  auto sending = stop_when(source.get_token(), all[1].send(out, 0, 2));
  all.settle();
  CHECK_FALSE(receiving.done());
  source.request_stop();
  CHECK(receiving.reason().code == errc{});  // the thread of the world has not polled yet
  const failure why = failure_of(all, receiving);
  CHECK(why.code == errc::cancelled);
  CHECK(why.culprit == 0);
  CHECK(why.operation == colls::collective::recv);
  CHECK(says(why, "a stop was requested before the operation had ended"));
  CHECK(failure_of(all, sending).code == errc::cancelled);
  all.check_good();
  auto again = all[0].recv(in, 1, 1);
  auto other = all[1].send(out, 0, 1);
  all.wait(again);
  all.wait(other);
  CHECK(in == out);
}

TEST_CASE("a collective that is stopped ends on all ranks, which name the rank that stopped it") {
  for (const bool is_deferred : {false, true}) {
    CAPTURE(is_deferred);
    communicators all(3);
    std::vector<int> data[3] = {std::vector<int>(1000), std::vector<int>(1000),
                                std::vector<int>(1000)};
    std::stop_source source;
    std::vector<operation<>> earlier;  // more calls than run at a time, so the next has not begun
    for (int i = 0; is_deferred && i < 200; ++i) earlier.push_back(all[1].all_reduce(data[1]));
    auto stopped = stop_when(source.get_token(), all[1].all_reduce(data[1]));
    auto waiting = all[0].all_reduce(data[0]);
    all.settle();
    source.request_stop();
    const failure own = failure_of(all, stopped);
    CHECK(own.code == errc::cancelled);
    CHECK(own.culprit == 1);
    CHECK(own.operation == colls::collective::all_reduce);
    CHECK(own.sequence == earlier.size() + 1);
    CHECK(failure_of(all, waiting).culprit == 1);
    for (int rank = 0; rank < 3; ++rank) {
      auto later = all[rank].barrier();
      const failure why = failure_of(all, later);
      CHECK(why.code == errc::cancelled);
      CHECK(why.culprit == 1);
      CHECK(says(why, "a stop was requested"));
      CHECK(all[rank].failed() != nullptr);
    }
  }
}

TEST_CASE("a stop that was requested earlier cancels at once, one after the end does nothing") {
  communicators all(2);
  int in = 0;
  const int out = 3;
  std::stop_source source;
  auto finished = stop_when(source.get_token(), all[0].recv(std::span(&in, 1), 1));
  auto sent = all[1].send(std::span(&out, 1), 0);
  all.wait(sent);
  all.settle();
  source.request_stop();
  all.settle();
  CHECK(all.wait(finished).count == 1);
  CHECK(in == 3);

  auto cancelled = stop_when(source.get_token(), all[0].recv(std::span(&in, 1), 1));
  CHECK(cancelled.reason().code == errc::cancelled);
  CHECK(failure_of(all, cancelled).code == errc::cancelled);
  all.check_good();

  // This one has ended before `stop_when` is called. So have the two after it, although the
  // completion of the first of them still waits in the run queue. They have no coroutine.
  auto again = all[0].recv(std::span(&in, 1), 1);
  sent = all[1].send(std::span(&out, 1), 0);
  all.settle();
  auto ended = stop_when(source.get_token(), std::move(again));
  CHECK(all.wait(ended).count == 1);
  all.wait(sent);
  int sums[2] = {1, 2};
  auto first = all[0].all_reduce(std::span(&sums[0], 1));
  auto second = all[1].all_reduce(std::span(&sums[1], 1));
  first = stop_when(source.get_token(), std::move(first));
  second = stop_when(source.get_token(), std::move(second));
  CHECK(failure_of(all, first).code == errc{});
  CHECK(failure_of(all, second).code == errc{});
  CHECK(sums[0] == 3);
  CHECK(sums[1] == 3);
  all.check_good();
}

TEST_CASE("tokens that never stop, refused operations and empty handles are left alone") {
  communicators all(2);
  int in = 0;
  const int out = 4;
  std::optional<std::stop_source> gone(std::in_place);
  const std::stop_token orphan = gone->get_token();
  std::stop_source source;
  auto never = stop_when(std::stop_token(), all[0].recv(std::span(&in, 1), 1, 0));
  auto orphaned = stop_when(orphan, all[0].recv(std::span(&in, 1), 1, 1));
  gone.reset();
  auto first = all[1].send(std::span(&out, 1), 0, 0);
  auto second = all[1].send(std::span(&out, 1), 0, 1);
  CHECK(all.wait(never).count == 1);
  CHECK(all.wait(orphaned).count == 1);
  all.wait(first);
  all.wait(second);

  auto refused = stop_when(source.get_token(), all[0].recv(std::span(&in, 1), 7));
  source.request_stop();
  CHECK(failure_of(all, refused).code == errc::invalid_argument);
  auto refused_later = stop_when(source.get_token(), all[0].recv(std::span(&in, 1), 7));
  CHECK(failure_of(all, refused_later).code == errc::invalid_argument);
  auto closed = stop_when(source.get_token(), colls::inproc::communicator().close());
  CHECK_NOTHROW(closed.result());

  auto moved = all[0].recv(std::span(&in, 1), 1);
  auto kept = std::move(moved);
  CHECK_FALSE(stop_when(source.get_token(), std::move(moved)));
  auto third = all[1].send(std::span(&out, 1), 0);
  CHECK(all.wait(kept).count == 1);
  all.wait(third);
  all.check_good();
}

TEST_CASE("an operation may be moved, dropped, watched twice, and failed by others") {
  communicators all(2);
  int in = 0;
  std::stop_source source;
  std::stop_source other;
  {
    auto first = stop_when(source.get_token(), all[0].recv(std::span(&in, 1), 1));
    auto moved = std::move(first);
    std::vector<operation<received>> list;
    list.push_back(std::move(moved));
    source.request_stop();
    CHECK(failure_of(all, list[0]).code == errc::cancelled);
  }
  for (const bool is_inner : {false, true}) {
    std::stop_source outer;
    std::stop_source inner;
    auto watched = stop_when(inner.get_token(), all[0].recv(std::span(&in, 1), 1));
    watched = stop_when(outer.get_token(), std::move(watched));
    (is_inner ? inner : outer).request_stop();
    CHECK(failure_of(all, watched).code == errc::cancelled);
    (is_inner ? outer : inner).request_stop();
    all.settle();
    auto both = stop_when(inner.get_token(), all[0].recv(std::span(&in, 1), 1));
    CHECK(failure_of(all, both).code == errc::cancelled);
  }
  {
    auto dropped = stop_when(other.get_token(), all[0].recv(std::span(&in, 1), 1));
    auto also = stop_when(other.get_token(), all[0].recv(std::span(&in, 1), 1));
    other.request_stop();
  }
  all.settle();
  all.check_good();
  // A user's callback may drop the operation in the middle of the request.
  std::stop_source third;
  std::optional<operation<received>> held;
  const std::stop_callback before(third.get_token(), [&] { held.reset(); });
  held.emplace(stop_when(third.get_token(), all[0].recv(std::span(&in, 1), 1)));
  const std::stop_callback after(third.get_token(), [&] { held.reset(); });
  third.request_stop();
  all.settle();
  all.check_good();
  std::stop_source fourth;
  auto revoked = stop_when(fourth.get_token(), all[0].recv(std::span(&in, 1), 1));
  all[1].revoke("enough");
  CHECK(failure_of(all, revoked).code == errc::revoked);
  fourth.request_stop();
  all.settle();
}

TEST_CASE("an operation whose communicator has failed keeps the reason of that failure") {
  for (const bool is_late : {false, true}) {
    CAPTURE(is_late);
    communicators all(3);
    std::vector<int> data(1000);
    std::stop_source source;
    auto summing = all[0].all_reduce<colls::algorithm::ring>(data);
    all.settle();
    if (!is_late) summing = stop_when(source.get_token(), std::move(summing));
    all[1].revoke("enough");
    source.request_stop();
    if (is_late) summing = stop_when(source.get_token(), std::move(summing));
    const failure why = failure_of(all, summing);
    CHECK(why.code == errc::revoked);
    CHECK(why.culprit == 1);
  }
}

/// Answers requests until a stop is requested.
template <class Comm>
colls::task<> serve(Comm& comm, std::stop_token token) {
  int data[1];
  try {
    for (;;) {
      const auto request = co_await colls::stop_when(token, comm.recv(data, colls::any_source));
      co_await comm.send(data, request.source);
    }
  } catch (const colls::error& thrown) {
    if (thrown.code() != colls::errc::cancelled) throw;
  }
  co_await comm.barrier();  // no request was on its way, so the communicator is good
}
template <class Comm>
colls::task<> ask_and_stop(Comm& comm, std::stop_source server) {
  for (int i = 0; i < 100; ++i) {
    int data[1] = {i};
    int answer[1] = {};
    co_await comm.send(data, 0);
    co_await comm.recv(answer, 0);
    CHECK(answer[0] == i);
  }
  server.request_stop();
  co_await comm.barrier();
}

TEST_CASE("a coroutine on the thread of the world may request the stop") {
  const auto check = [](auto& world, auto& comms) {
    std::stop_source source;
    std::vector<colls::task<>> mains;
    mains.push_back(serve(comms[0], source.get_token()));
    mains.push_back(ask_and_stop(comms[1], source));
    colls::sync_wait(world, colls::when_all(std::move(mains)));
  };
  {
    communicators all(2);
    check(all.world(), all);
  }
  {
    colls::simulated_world world(2);
    std::vector<colls::simulated::communicator> comms;
    for (int rank = 0; rank < 2; ++rank) comms.push_back(colls::simulated::join(world, rank));
    check(world, comms);
  }
  {
    ranks<tcp_world> all(2);
    check(all.world, all.all);
  }
  std::stop_source source;
  colls::threads::run(2, [&](colls::threads::communicator& comm) -> colls::task<> {
    return comm.rank() == 0 ? serve(comm, source.get_token()) : ask_and_stop(comm, source);
  });
}

/// Checks that stops of another thread withdraw receives and end collectives on a world of two
/// ranks in this process.
template <class World>
void check_stops_of_another_thread() {
  ranks<World> all(2);
  int in = 0;
  const int out = 6;
  {
    later_stop stop(5ms);
    auto receiving = stop_when(stop.token(), all.all[0].recv(std::span(&in, 1), 1));
    CHECK(code_in(all.world, receiving) == errc::cancelled);
  }
  auto again = all.all[0].recv(std::span(&in, 1), 1);
  auto sending = all.all[1].send(std::span(&out, 1), 0);
  CHECK(code_in(all.world, again) == errc{});
  CHECK(code_in(all.world, sending) == errc{});
  CHECK(in == 6);

  std::vector<int> data(5000);
  later_stop stop(5ms);
  auto waiting = stop_when(stop.token(), all.all[1].all_reduce(data));
  CHECK(code_in(all.world, waiting) == errc::cancelled);
  for (communicator& comm : all.all) {
    auto later = comm.barrier();
    const failure why = failure_in(all.world, later);
    CHECK(why.code == errc::cancelled);
    CHECK(why.culprit == 1);
  }
}

TEST_CASE("another thread stops operations between processes") {
  check_stops_of_another_thread<tcp_world>();
  check_stops_of_another_thread<shm_world>();
}

TEST_CASE("ranks with executors of their own learn which rank has stopped a collective") {
  const std::vector<int> statuses = run_tcp(3, [](colls::world& world) -> colls::task<> {
    co_await world.barrier();
    std::optional<later_stop> stop;
    std::vector<int> data(100000);
    std::stop_token token;
    if (world.rank() == 1) token = stop.emplace(20ms).token();
    failure why;
    try {
      if (world.rank() == 2) {
        int never = 0;  // this rank does not call, so the others wait
        (void)co_await world.recv(std::span(&never, 1), 0);
      } else {
        co_await stop_when(token, world.all_reduce(data));
      }
    } catch (const colls::error& thrown) {
      why = thrown.record();
    }
    if (why.code != errc::cancelled || why.culprit != 1) throw colls::error(why);
  });
  CHECK(statuses == std::vector<int>{0, 0, 0});
}

TEST_CASE("a stop ends a join, which belongs to no communicator") {
  boost::asio::io_context context(1);
  const std::shared_ptr<colls::engine> driver = colls::engine::get(context.get_executor());
  colls::config cfg;
  cfg.rank = 1;
  cfg.size = 2;
  cfg.address = "tcp://127.0.0.1:1";
  later_stop stop(20ms);
  auto joining = stop_when(stop.token(), colls::join(context.get_executor(), cfg));
  CHECK(code_in(*driver, joining) == errc::cancelled);
}

/// Checks that the request of another thread wakes a thread that waits in `wait_for(operation)`,
/// before the thread awakes by itself, which it does every 50 ms.
template <class Comm, class Wait>
void check_wakes(Comm& comm, const Wait& wait_for) {
  auto shortest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 5; ++i) {
    int in = 0;
    later_stop stop(5ms);
    auto receiving = stop_when(stop.token(), comm.recv(std::span(&in, 1), 1));
    wait_for(receiving);
    const auto age = stop.age();
    if (i > 0) shortest = std::min(shortest, age);  // not only the first request wakes it
    CHECK(receiving.reason().code == errc::cancelled);
  }
  CHECK(shortest < 30ms);
}

TEST_CASE("a stop wakes a sleeping thread") {
  SUBCASE("of a rank thread") {
    colls::thread_world world(2);
    world[0].spin(0);
    auto comm = colls::threads::join(world, 0);
    check_wakes(comm, [&](auto& waiting) { (void)code_in(comm, waiting); });
  }
  SUBCASE("between processes") {
    ranks<tcp_world> all(2);
    all.world.on().spin(0);
    check_wakes(all.all[0], [&](auto& waiting) { (void)code_in(all.world, waiting); });
  }
  SUBCASE("that runs an io_context") {
    ranks<shm_world> all(2);
    all.world.on().spin(0);
    check_wakes(all.all[0], [&](auto& waiting) {
      while (waiting.reason().code == errc{}) {
        colls::detail::io_context_of(all.world.on().executor())->run_one_for(1s);
      }
    });
  }
}

TEST_CASE("a stop of another thread at the moment when the operation ends, moves or is dropped") {
  communicators all(2);
  int in = 0;
  int out = 0;
  std::optional<std::stop_source> source(std::in_place);
  std::optional<operation<received>> receiving;
  std::optional<operation<>> sending;
  std::uint64_t cancelled = 0;
  std::uint64_t received_count = 0;
  const auto receive = [&] {
    return stop_when(source->get_token(), all[0].recv(std::span(&in, 1), 1));
  };
  paired_threads threads;
  threads.run(
      4000,
      [&](std::uint64_t i) {
        receiving.emplace(receive());
        switch (i % 4) {
          case 0:  // nothing comes
            CHECK(code_in(all.world(), *receiving) == errc::cancelled);
            break;
          case 1:  // a message comes
            out = static_cast<int>(i);
            sending.emplace(all[1].send(std::span(&out, 1), 0));
            (void)code_in(all.world(), *receiving);
            break;
          case 2:
            (void)receive();
            receiving.reset();
            break;
          default:
            for (int moves = 0; moves < 10; ++moves) {
              auto moved = std::move(*receiving);
              receiving.emplace(std::move(moved));
            }
            CHECK(code_in(all.world(), *receiving) == errc::cancelled);
        }
      },
      [&](std::uint64_t i) {
        // The stop comes after various times, so that it hits various moments of the operation. In
        // a slow build the operation takes longer.
        const std::uint64_t step = i < 2000 ? 1 : 64;
        for (std::atomic<std::uint64_t> pause = i / 4 % 512 * step; pause > 0;) --pause;
        source->request_stop();
      },
      [&](std::uint64_t i) {
        if (sending) {
          // Either the receive has taken the message, or it is still there.
          if (code_in(all.world(), *receiving) == errc::cancelled) {
            ++cancelled;
            receiving.emplace(all[0].recv(std::span(&in, 1), 1));
            CHECK(code_in(all.world(), *receiving) == errc{});
          } else {
            ++received_count;
          }
          CHECK(in == static_cast<int>(i));
          CHECK(code_in(all.world(), *sending) == errc{});
          sending.reset();
        }
        receiving.reset();
        source.emplace();
      });
  all.check_good();
  CHECK(received_count > 0);
  CHECK(cancelled > 0);
}

TEST_CASE("a stop of another thread at the moment when a collective of rank threads ends") {
  constexpr int rounds = 1500;
  std::vector<std::stop_source> sources(rounds);
  std::atomic<int> round = 0;
  std::atomic<bool> is_over = false;
  std::thread stopper([&] {
    for (int stopped = 0; stopped < rounds && !is_over;) {
      if (round.load() > stopped) sources[static_cast<std::size_t>(stopped++)].request_stop();
    }
  });
  colls::threads::run(2, [&](colls::threads::communicator& world) -> colls::task<> {
    int failures = 0;
    for (int i = 0; i < rounds; ++i) {
      // A communicator of its own for each round, because a stop in time revokes it.
      colls::threads::communicator comm = co_await world.dup();
      int sum = 1;
      if (world.rank() == 0) round = i + 1;
      auto summing = comm.all_reduce(std::span(&sum, 1));
      if (world.rank() == 0) {
        const std::stop_token token = sources[static_cast<std::size_t>(i)].get_token();
        summing = stop_when(token, std::move(summing));
      }
      bool failed = false;
      try {
        co_await summing;
      } catch (const colls::error& thrown) {
        failed = true;
        if (thrown.record().code != errc::cancelled || thrown.record().culprit != 0) throw;
      }
      failures += failed ? 1 : 0;
      if (!failed && sum != 2) throw std::runtime_error("a wrong sum");
    }
    co_await world.barrier();
    if (failures == rounds && world.rank() == 0) throw std::runtime_error("no call has ended");
  });
  is_over = true;
  stopper.join();
}

}  // namespace
