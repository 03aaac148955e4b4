// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/ddp/driver.hpp>

#include <colls/interprocess.hpp>
#include <colls/threads.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../support/tcp_threads.hpp"

namespace {

using colls::errc;
using colls::task;
using colls::world;
using colls::ddp::drive;
using colls::ddp::make_driver;
using statuses = std::vector<int>;

// Ranks check by exceptions: the first exception ends the test on all ranks.
void expect(bool good, const char* what) {
  if (!good) throw std::logic_error(what);
}

template <class Call>
colls::failure failure_of(const Call& call) {
  try {
    call();
  } catch (const colls::error& thrown) {
    return thrown.record();
  }
  return {};
}

/// Sums the ranks of the driver's communicator each time that the counter reaches 1, 2, 3.
template <class Communicator>
task<> three_sums(colls::ddp::driver<Communicator>& driver, int& sum) {
  for (std::size_t i = 1; i <= 3; ++i) {
    co_await driver.wait_for(i);
    int x[] = {driver.comm().rank() + 1};
    co_await driver.comm().all_reduce(x);
    sum += x[0];
  }
}

template <class Communicator>
void work_twice(Communicator& ranks, drive mode) {
  const auto driver = make_driver(ranks, mode);
  expect(driver->rank() == ranks.rank() && driver->size() == ranks.size(), "rank and size");
  const int all = ranks.size() * (ranks.size() + 1) / 2;
  for (int round = 0; round < 2; ++round) {
    int sum = 0;
    driver->start(three_sums(*driver, sum));
    driver->advance(1);
    // The ranks may use their own communicator meanwhile.
    colls::sync_wait(ranks, ranks.barrier());
    driver->advance(3);
    driver->wait();
    expect(sum == 3 * all, "the sums");
  }
}

TEST_CASE("a task runs on a communicator of its own, as far as it is advanced") {
  CHECK(run_tcp(3, [](world& ranks) { work_twice(ranks, drive::thread); }) == statuses{0, 0, 0});
  CHECK(run_tcp(3, [](world& ranks) { work_twice(ranks, drive::hooks); }) == statuses{0, 0, 0});
  colls::threads::run(3, [](colls::threads::communicator& ranks) -> task<> {
    work_twice(ranks, drive::hooks);
    co_return;
  });
}

TEST_CASE("the thread makes progress while the computing side does something else") {
  std::atomic<int> ended = 0;
  const auto main = [&](world& ranks) {
    const auto driver = make_driver(ranks, drive::thread);
    const auto work = [](colls::ddp::driver<world>& task_driver,
                         std::atomic<int>& count) -> task<> {
      co_await task_driver.wait_for(1);
      co_await task_driver.comm().barrier();
      ++count;
    };
    driver->start(work(*driver, ended));
    driver->advance(1);
    while (ended < ranks.size()) std::this_thread::yield();
    driver->wait();
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("wait throws what the task threw") {
  const auto main = [](world& ranks) {
    for (const drive mode : {drive::thread, drive::hooks}) {
      const auto driver = make_driver(ranks, mode);
      const auto fails = [](colls::ddp::driver<world>& task_driver) -> task<> {
        co_await task_driver.comm().barrier();
        throw std::runtime_error("no");
      };
      driver->start(fails(*driver));
      std::string text;
      try {
        driver->wait();
      } catch (const std::runtime_error& thrown) {
        text = thrown.what();
      }
      expect(text == "no", "the error");
      int sum = 0;
      driver->start(three_sums(*driver, sum));
      driver->advance(3);
      driver->wait();
      // The ranks of two, summed three times.
      expect(sum == 9, "the driver takes another task after that");
    }
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("a rank that revokes gives its reason to all ranks, wherever their tasks are") {
  const auto main = [](world& ranks) {
    for (const drive mode : {drive::thread, drive::hooks}) {
      const auto driver = make_driver(ranks, mode);
      int sum = 0;
      driver->start(three_sums(*driver, sum));
      // Rank 0 waits for the others, rank 1 revokes while its task waits, rank 2 has not advanced.
      if (ranks.rank() == 0) driver->advance(3);
      if (ranks.rank() == 1) driver->revoke("enough");
      const colls::failure why = failure_of([&] {
        if (ranks.rank() == 2) driver->advance(1);
        driver->wait();
      });
      expect(why.code == errc::revoked, "the code");
      expect(why.culprit == 1 && std::string(why.detail) == "enough", "the reason");
      colls::sync_wait(ranks, ranks.barrier());
    }
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
}

TEST_CASE("a driver that is dropped in the middle of a task leaves no rank waiting") {
  const auto main = [](world& ranks) {
    for (const drive mode : {drive::thread, drive::hooks}) {
      const auto driver = make_driver(ranks, mode);
      int sum = 0;
      driver->start(three_sums(*driver, sum));
      driver->advance(1);
      if (ranks.rank() == 1) continue;
      driver->advance(3);
      const colls::failure why = failure_of([&] { driver->wait(); });
      expect(why.code != errc{} && why.culprit == 1, "the rank that left");
    }
    colls::sync_wait(ranks, ranks.barrier());
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
}

TEST_CASE("a thread is refused where a communicator cannot have another executor") {
  std::string text;
  try {
    colls::threads::run(1, [](colls::threads::communicator& ranks) -> task<> {
      (void)make_driver(ranks, drive::thread);
      co_return;
    });
  } catch (const colls::error& thrown) {
    text = thrown.what();
  }
  CHECK(text.find("pass drive::hooks") != std::string::npos);
}

}  // namespace
