// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/ddp/driver.hpp>

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
using colls::ddp::drive_by;
using statuses = std::vector<int>;

// Ranks check by exceptions: the first one ends the test, and the others with it.
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

/// Sums the ranks of the driver's communicator once the other side has come to 1, 2, 3.
template <class Communicator>
task<> three_sums(colls::ddp::driver<Communicator>& by, int& sum) {
  for (std::size_t i = 1; i <= 3; ++i) {
    co_await by.reached(i);
    int x[] = {by.comm().rank() + 1};
    co_await by.comm().all_reduce(x);
    sum += x[0];
  }
}

template <class Communicator>
void work_twice(Communicator& ranks, drive how) {
  const auto by = drive_by(ranks, how);
  expect(by->rank() == ranks.rank() && by->size() == ranks.size(), "its place");
  const int all = ranks.size() * (ranks.size() + 1) / 2;
  for (int round = 0; round < 2; ++round) {
    int sum = 0;
    by->start(three_sums(*by, sum));
    by->raise(1);
    // The ranks' own communicator is free meanwhile.
    colls::sync_wait(ranks, ranks.barrier());
    by->raise(3);
    by->wait();
    expect(sum == 3 * all, "the sums");
  }
}

TEST_CASE("a task runs with a communicator of its own, as far as it is let") {
  CHECK(run_tcp(3, [](world& ranks) { work_twice(ranks, drive::thread); }) == statuses{0, 0, 0});
  CHECK(run_tcp(3, [](world& ranks) { work_twice(ranks, drive::hooks); }) == statuses{0, 0, 0});
  colls::threads::run(3, [](colls::threads::communicator& ranks) -> task<> {
    work_twice(ranks, drive::hooks);
    co_return;
  });
}

TEST_CASE("the thread gets on while the other side does something else") {
  std::atomic<int> ended = 0;
  const auto main = [&](world& ranks) {
    const auto by = drive_by(ranks, drive::thread);
    const auto work = [](colls::ddp::driver<world>& with, std::atomic<int>& count) -> task<> {
      co_await with.reached(1);
      co_await with.comm().barrier();
      ++count;
    };
    by->start(work(*by, ended));
    by->raise(1);
    while (ended < ranks.size()) std::this_thread::yield();
    by->wait();
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("wait throws what the task threw") {
  const auto main = [](world& ranks) {
    for (const drive how : {drive::thread, drive::hooks}) {
      const auto by = drive_by(ranks, how);
      const auto fails = [](colls::ddp::driver<world>& with) -> task<> {
        co_await with.comm().barrier();
        throw std::runtime_error("no");
      };
      by->start(fails(*by));
      std::string said;
      try {
        by->wait();
      } catch (const std::runtime_error& thrown) {
        said = thrown.what();
      }
      expect(said == "no", "the error");
      int sum = 0;
      by->start(three_sums(*by, sum));
      by->raise(3);
      by->wait();
      expect(sum == 9, "it takes another task after that");
    }
  };
  CHECK(run_tcp(2, [&](world& ranks) {
          // The sums of two ranks, three times.
          main(ranks);
        }) == statuses{0, 0});
}

TEST_CASE("a rank that gives up says why on all ranks, wherever their tasks are") {
  const auto main = [](world& ranks) {
    for (const drive how : {drive::thread, drive::hooks}) {
      const auto by = drive_by(ranks, how);
      int sum = 0;
      by->start(three_sums(*by, sum));
      // Rank 0 waits for the others, rank 1 gives up at its gate, rank 2 has not come to its own.
      if (ranks.rank() == 0) by->raise(3);
      if (ranks.rank() == 1) by->give_up("enough");
      const colls::failure why = failure_of([&] {
        if (ranks.rank() == 2) by->raise(1);
        by->wait();
      });
      expect(why.code == errc::revoked, "the code");
      expect(why.culprit == 1 && std::string(why.detail) == "enough", "the reason");
      colls::sync_wait(ranks, ranks.barrier());
    }
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
}

TEST_CASE("a driver that is dropped in the middle of a task leaves nobody waiting") {
  const auto main = [](world& ranks) {
    for (const drive how : {drive::thread, drive::hooks}) {
      const auto by = drive_by(ranks, how);
      int sum = 0;
      by->start(three_sums(*by, sum));
      by->raise(1);
      if (ranks.rank() == 1) continue;
      by->raise(3);
      const colls::failure why = failure_of([&] { by->wait(); });
      expect(why.code != errc{} && why.culprit == 1, "the rank that left");
    }
    colls::sync_wait(ranks, ranks.barrier());
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
}

TEST_CASE("a thread is refused where a communicator cannot have another executor") {
  std::string said;
  try {
    colls::threads::run(1, [](colls::threads::communicator& ranks) -> task<> {
      (void)drive_by(ranks, drive::thread);
      co_return;
    });
  } catch (const colls::error& thrown) {
    said = thrown.what();
  }
  CHECK(said.find("pass drive::hooks") != std::string::npos);
}

}  // namespace
