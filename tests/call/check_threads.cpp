// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// COLLS_CHECK_THREADS: calls of a thread to which the communicator does not belong.

#include <colls/interprocess.hpp>
#include <colls/threads.hpp>

#include "../extend/star.hpp"
#include "../support/communicators.hpp"
#include "../support/tcp_threads.hpp"

#include <colls/ddp/driver.hpp>

#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>

#include <cstdlib>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using colls::errc;
using colls::failure;
using colls::operation;
using colls::task;

/// Sets the variable as long as this object exists.
struct checked {
  checked() { ::setenv("COLLS_CHECK_THREADS", "1", 1); }
  checked(const checked&) = delete;
  ~checked() { ::unsetenv("COLLS_CHECK_THREADS"); }
};

std::string text_of(std::thread::id id) {
  std::ostringstream text;
  text << id;
  return text.str();
}

/// Returns the failure that `call()` throws, with code 0 if it throws none.
template <class Call>
failure thrown_by(const Call& call) {
  try {
    call();
  } catch (const colls::error& thrown) {
    return thrown.record();
  }
  return {};
}

/// Returns the failures that each call throws on another thread, and checks that they name this
/// thread and the other one.
void check_refused_on_another_thread(const std::vector<std::function<void()>>& calls) {
  std::vector<failure> refused;
  std::thread other([&] {
    for (const auto& call : calls) refused.push_back(thrown_by(call));
  });
  const std::string caller = text_of(other.get_id());
  other.join();
  for (std::size_t i = 0; i < refused.size(); ++i) {
    CAPTURE(i);
    const std::string detail = refused[i].detail;
    CHECK(refused[i].code == errc::invalid_argument);
    CHECK(detail.starts_with("thread " + caller +
                             " makes a call, but the world belongs to thread " +
                             text_of(std::this_thread::get_id()) + ";"));
  }
}

template <class Comm>
std::vector<std::function<void()>> calls_of(Comm& comm, std::vector<int>& data) {
  const int peer = 1 - comm.rank();
  return {
      [&] { (void)comm.all_reduce(data); },
      [&] { (void)comm.all_reduce(data, colls::maximum{}); },
      [&] { (void)comm.broadcast(data, 7); },  // invalid arguments
      [&] { (void)comm.broadcast(data, 0); },
      [&] { (void)comm.barrier(); },
      [&] { (void)comm.template all_reduce<colls::algorithm::ring>(data); },
      [&, peer] { (void)comm.send(data, peer); },
      [&, peer] { (void)comm.recv(data, peer); },
      [&, peer] { (void)comm.recv(data, peer, -1); },
      [&] { (void)comm.split(0); },
      [&] { (void)comm.dup(); },
      [&] { (void)comm.measure(); },
      [&] { (void)comm.template allocate<int>(8); },
      [&] { comm.set_costs(comm.tuning().costs()); },
      [&] { comm.revoke("no"); },
      [&] { (void)comm.close(); },
      [&] { colls::sync_wait(comm, colls::yield()); },
  };
}

TEST_CASE("a call of another thread throws at once, names both threads and touches nothing") {
  const checked variable;
  communicators all(2);
  std::vector<int> data(100, 1);
  std::vector<int> other(100, 2);
  const auto reduce = [&] {
    operation<> first = all[0].all_reduce(data);
    operation<> second = all[1].all_reduce(other);
    all.wait(first);
    all.wait(second);
  };
  reduce();
  reduce();
  CHECK(data[0] == 6);
  std::vector<int> unused(100);
  check_refused_on_another_thread(calls_of(all[0], unused));
  operation<> pending = all[0].barrier();
  check_refused_on_another_thread(calls_of(all[0], unused));
  operation<> last = all[1].barrier();
  all.wait(pending);
  all.wait(last);
  reduce();
  CHECK(all[0].failed() == nullptr);
  all[1].revoke("enough");
  check_refused_on_another_thread(calls_of(all[0], unused));
}

TEST_CASE("the first thread that calls or waits has the world, whichever made it") {
  const checked variable;
  const auto on_a_thread = [](const std::function<void()>& call) { std::thread(call).join(); };
  for (const bool waits_first : {false, true}) {
    colls::inproc_world world(1);
    colls::inproc::communicator comm = colls::inproc::join(world, 0);
    failure reason;
    std::thread first([&] {
      if (waits_first) colls::sync_wait(world, colls::yield());
      colls::sync_wait(world, comm.barrier());
    });
    const std::string owner = text_of(first.get_id());
    first.join();
    reason = thrown_by([&] { (void)comm.barrier(); });
    CHECK(reason.code == errc::invalid_argument);
    CHECK(std::string(reason.detail).find("belongs to thread " + owner + ";") != std::string::npos);
    reason = thrown_by([&] { colls::sync_wait(world, colls::yield()); });
    CHECK(reason.code == errc::invalid_argument);
  }
  // A refused call of the first thread counts, too.
  colls::inproc_world world(1);
  colls::inproc::communicator comm = colls::inproc::join(world, 0);
  CHECK(comm.send(std::span<int>(), 9).reason().code == errc::invalid_argument);
  on_a_thread([&] { CHECK(thrown_by([&] { (void)comm.barrier(); }).code != errc{}); });
  colls::sync_wait(world, comm.barrier());
}

TEST_CASE("the first call may pin an algorithm of the user's own") {
  const checked variable;
  communicators all(2);
  int sums[2] = {1, 2};
  operation<> first = all[0].all_reduce<my::star>(std::span(&sums[0], 1));
  operation<> second = all[1].all_reduce<my::star>(std::span(&sums[1], 1));
  REQUIRE(failure_of(all, first).code == errc{});
  CHECK(failure_of(all, second).code == errc{});
  CHECK(sums[0] == 3);
  CHECK(sums[1] == 3);
}

TEST_CASE("without the variable threads may take turns") {
  communicators all(1);
  all.wait(all[0].barrier());
  std::thread([&] { all.wait(all[0].barrier()); }).join();
  all.wait(all[0].barrier());
}

TEST_CASE("another thread calls all the time while a rank thread works") {
  const checked variable;
  colls::threads::run(2, [](colls::threads::communicator& comm) -> task<> {
    int sum = 1;
    co_await comm.all_reduce(std::span(&sum, 1));
    std::atomic<bool> has_begun = false;
    std::atomic<bool> is_over = false;
    int refused = 0;
    std::thread second([&] {
      std::vector<int> unused(100);
      const auto calls = calls_of(comm, unused);
      while (!is_over) {
        for (const auto& call : calls) {
          refused += thrown_by(call).code == errc::invalid_argument ? 1 : -1'000'000;
        }
        has_begun = true;
      }
    });
    bool is_right = sum == 2;
    while (!has_begun) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) {
      std::vector<int> data(static_cast<std::size_t>(i % 20), 3);
      co_await comm.all_reduce(data);
      for (const int each : data) is_right &= each == 6;
      sum = comm.rank();
      co_await comm.broadcast(std::span(&sum, 1), i % 2);
      is_right &= sum == i % 2;
    }
    is_over = true;
    second.join();
    if (!is_right) throw std::runtime_error("a wrong result");
    if (refused <= 0) throw std::runtime_error("a call of the second thread was accepted");
  });
}

TEST_CASE("run, dup(executor) and a training step on a thread of its own work under the check") {
  const checked variable;
  const auto main = [](colls::world& world) -> task<> {
    boost::asio::io_context context(1);
    colls::world second = co_await world.dup(context.get_executor());
    std::string problem;
    std::thread user([&] {
      try {
        int sum = 1;
        colls::sync_wait(second, second.all_reduce(std::span(&sum, 1)));
        if (sum != 2) problem = "a wrong sum";
        if (thrown_by([&] { (void)world.barrier(); }).code != errc::invalid_argument) {
          problem = "a call on the first world was accepted";
        }
        colls::sync_wait(second, second.close());
      } catch (const std::exception& thrown) {
        problem = thrown.what();
      }
    });
    int sum = 1;
    co_await world.all_reduce(std::span(&sum, 1));
    user.join();
    if (!problem.empty()) throw std::runtime_error(problem);
    if (sum != 2) throw std::runtime_error("a wrong sum");
    {
      const auto driver = colls::ddp::make_driver(world, colls::ddp::drive::thread);
      for (int step = 0; step < 3; ++step) {
        driver->start([](auto& comm) -> task<> { co_await comm.barrier(); }(driver->comm()));
        driver->wait();
      }
    }
    co_await world.barrier();
  };
  CHECK(run_tcp(2, main) == std::vector<int>{0, 0});
}

TEST_CASE("a world on a strand of several threads is not checked") {
  const checked variable;
  boost::asio::io_context context;
  CHECK(colls::engine::get(context.get_executor())->queue().is_checked());
  const auto strand = boost::asio::make_strand(context.get_executor());
  CHECK_FALSE(colls::engine::get(strand)->queue().is_checked());
  boost::asio::thread_pool pool(1);
  CHECK_FALSE(colls::engine::get(pool.get_executor())->queue().is_checked());
}

}  // namespace
