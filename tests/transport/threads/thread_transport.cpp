// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/threads.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../../support/counted_memory.hpp"
#include "../../support/long_wait.hpp"
#include "../../support/slow_build.hpp"

namespace {

using namespace colls;
using threads::communicator;

// Fails the test if `good` is false, and ends the rank with an error, which ends the other ranks.
void expect(bool good, const std::string& message) {
  if (good) return;
  FAIL_CHECK(message);
  throw std::logic_error(message);
}
template <class T>
void expect_equal(const std::vector<T>& got, const std::vector<T>& want, const std::string& name) {
  expect(got.size() == want.size(), name + ": size");
  for (std::size_t i = 0; i < got.size(); ++i) {
    expect(got[i] == want[i], name + ": element " + std::to_string(i) + " is " +
                                  std::to_string(got[i]) + ", not " + std::to_string(want[i]));
  }
}

// Element i of a rank. All elements are different.
std::int64_t value(int rank, std::size_t i) {
  return (rank + 1) * 1'000'003 + static_cast<std::int64_t>(i);
}
std::vector<std::int64_t> values(int rank, std::size_t n, std::size_t first = 0) {
  std::vector<std::int64_t> all(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = value(rank, first + i);
  return all;
}
std::vector<std::int64_t> sums(int ranks, std::size_t n, std::size_t first = 0) {
  std::vector<std::int64_t> all(n);
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::size_t i = 0; i < n; ++i) all[i] += value(rank, first + i);
  }
  return all;
}
std::size_t count(int n) { return static_cast<std::size_t>(n); }

task<> every_collective(communicator& comm, std::size_t n) {
  const int p = comm.size();
  const int me = comm.rank();
  const int root = p - 1;
  const std::string prefix = "rank " + std::to_string(me) + " of " + std::to_string(p) + ", " +
                             std::to_string(n) + " elements: ";
  co_await comm.barrier();

  auto data = values(me, n);
  co_await comm.all_reduce(data);
  expect_equal(data, sums(p, n), prefix + "all_reduce");

  data = me == root ? values(root, n) : std::vector<std::int64_t>(n);
  co_await comm.broadcast(data, root);
  expect_equal(data, values(root, n), prefix + "broadcast");

  data = values(me, n);
  co_await comm.reduce(data, root);
  if (me == root) expect_equal(data, sums(p, n), prefix + "reduce");

  const auto whole = values(me, n * count(p));
  std::vector<std::int64_t> part(n);
  co_await comm.reduce_scatter(whole, part);
  expect_equal(part, sums(p, n, n * count(me)), prefix + "reduce_scatter");

  std::vector<std::int64_t> gathered(n * count(p));
  const auto mine = values(me, n);
  co_await comm.all_gather(mine, gathered);
  std::vector<std::int64_t> everything;
  for (int rank = 0; rank < p; ++rank) {
    for (const std::int64_t each : values(rank, n)) everything.push_back(each);
  }
  expect_equal(gathered, everything, prefix + "all_gather");

  gathered.assign(gathered.size(), 0);
  co_await comm.gather(mine, gathered, root);
  if (me == root) expect_equal(gathered, everything, prefix + "gather");

  co_await comm.scatter(everything, part, root);
  expect_equal(part, values(me, n), prefix + "scatter");

  co_await comm.all_to_all(whole, gathered);
  std::vector<std::int64_t> exchanged;
  for (int rank = 0; rank < p; ++rank) {
    for (const std::int64_t each : values(rank, n, n * count(me))) exchanged.push_back(each);
  }
  expect_equal(gathered, exchanged, prefix + "all_to_all");

  data = values(me, n);
  co_await comm.scan(data);
  expect_equal(data, sums(me + 1, n), prefix + "scan");

  data = values(me, n);
  co_await comm.exscan(data);
  if (me > 0) expect_equal(data, sums(me, n), prefix + "exscan");

  std::vector<std::int64_t> neighbours(n);
  const received got = co_await comm.send_recv(mine, (me + 1) % p, neighbours, (me + p - 1) % p, 3);
  expect(got.count == n && got.source == (me + p - 1) % p, prefix + "the result of send_recv");
  expect_equal(neighbours, values((me + p - 1) % p, n), prefix + "send_recv");
}

TEST_CASE("every collective gives every rank its elements") {
  for (const int p : {1, 2, 3, 4, 5, 8}) {
    threads::run(p, [](communicator& comm) -> task<> {
      const std::size_t counts[] = {0, 1, 7, 1000, 20'000};
      for (const std::size_t n : counts) co_await every_collective(comm, n);
    });
  }
}

TEST_CASE("a late thread is named by all others, whatever the algorithm") {
  for (const int p : {2, 3, 5, 8}) {
    for (const algorithm algo : {algorithm::ring, algorithm::linear, algorithm::double_tree,
                                 algorithm::recursive_doubling}) {
      const int late = p / 2;
      std::atomic<int> failed = 0;
      threads::run(p, [&](communicator& comm) -> task<> {
        communicator mine = co_await comm.dup();
        std::vector<double> data(1000);
        co_await mine.all_reduce(data, {.algorithm = algo});
        if (comm.rank() == late) {
          while (failed < p - 1) std::this_thread::yield();
        }
        operation<> sum =
            mine.all_reduce(data, {.algorithm = algo, .timeout = std::chrono::milliseconds(400)});
        failure reason;
        try {
          co_await sum;
        } catch (const error& thrown) {
          reason = thrown.record();
        }
        ++failed;
        // All messages that the late rank needs may have arrived.
        if (comm.rank() == late && reason.code == errc()) co_return;
        expect(reason.code == errc::timeout && reason.culprit == late, to_text(reason));
        const std::string expected =
            "rank " + std::to_string(late) + " has not entered #2 all_reduce";
        expect(std::string(reason.detail).find(expected) != std::string::npos, to_text(reason));
      });
      CHECK(failed == p);
    }
  }
}

TEST_CASE("threads agree, and those that have left are lost") {
  for (const int p : {2, 3, 5, 8}) {
    threads::run(p, [=](communicator& comm) -> task<> {
      const int leaves = p - 1;
      for (std::uint64_t i = 0; i < 50; ++i) {
        const agreement all = co_await comm.agree(i | (std::uint64_t{1} << (8 + comm.rank())));
        expect(all.value == i && all.lost.empty(), "all agree");
      }
      if (comm.rank() == leaves) co_return;
      const agreement rest = co_await comm.agree(static_cast<std::uint64_t>(3));
      expect(rest.value == 3, "the others agree");
      const bool is_lost = rest.lost.size() == 1 && rest.lost[0] == lost_rank{leaves, true};
      expect(is_lost, "the thread that has left is lost");
    });
  }
}

TEST_CASE("threads leave one after the other, and the others go on with what is left") {
  for (const int p : {2, 3, 5, 8}) {
    threads::run(p, [](communicator& comm) -> task<> {
      const int own = comm.rank();
      std::vector<int> data(20'000);
      while (comm.rank() != comm.size() - 1) {
        const int size = comm.size();
        try {
          for (;;) co_await comm.all_reduce(data, maximum{});
        } catch (const error&) {
        }
        communicator left = co_await comm.shrink();
        comm = std::move(left);
        expect(comm.size() == size - 1, "one thread has left");
        expect(comm.rank() == own && comm.previous_rank(own) == own, "the ranks keep their order");
      }
    });
  }
}

// Polls for a random short time, or not at all.
void poll_randomly(communicator& comm, std::mt19937& random) {
  const auto polls = random() % 3 == 0 ? 0 : random() % 400;
  for (std::size_t i = 0; i < polls; ++i) comm.poll();
}

/// Runs `round(comm, i, random)` many times, each time on a new communicator that may fail.
template <class Round>
void repeat_on_duplicates(int p, int rounds, Round round) {
  threads::run(p, [&](communicator& comm) -> task<> {
    std::mt19937 random(static_cast<unsigned>(1000 * p + comm.rank()));
    for (int i = 0; i < rounds; ++i) {
      communicator fresh = co_await comm.dup();
      co_await round(fresh, i, random);
    }
  });
}

constexpr int rounds = is_slow_build ? 300 : 1000;

TEST_CASE("operations are kept and awaited in any order") {
  for (const int p : {2, 4}) {
    threads::run(p, [](communicator& comm) -> task<> {
      constexpr std::size_t operations = 300;
      std::vector<std::vector<std::int64_t>> data;
      std::vector<operation<>> kept;
      for (std::size_t i = 0; i < operations; ++i) data.push_back(values(comm.rank(), 100 + i));
      for (std::vector<std::int64_t>& each : data) kept.push_back(comm.all_reduce(each));
      std::vector<std::size_t> order(operations);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(comm.rank())));
      for (const std::size_t i : order) {
        co_await kept[i];
        expect_equal(data[i], sums(comm.size(), 100 + i), "operation " + std::to_string(i));
      }
    });
  }
}

TEST_CASE("an operation that is dropped at any moment ends on all ranks") {
  std::atomic<int> well = 0;
  std::atomic<int> cancelled = 0;
  for (const int p : {2, 3, 4}) {
    repeat_on_duplicates(p, rounds, [&](communicator& comm, int i, std::mt19937& random) -> task<> {
      const int culprit = i % comm.size();
      const std::size_t n = i % 2 == 0 ? 20 : 5'000;
      auto data = values(comm.rank(), n);
      if (comm.rank() == culprit) {
        operation<> dropped = comm.all_reduce(data);
        if (i % 10 == 9) co_await dropped;
        poll_randomly(comm, random);
        co_return;
      }
      try {
        co_await comm.all_reduce(data);
        expect_equal(data, sums(comm.size(), n), "all_reduce with a rank that drops it");
        ++well;
      } catch (const error& thrown) {
        expect(thrown.record().code == errc::cancelled, thrown.what());
        expect(thrown.record().culprit == culprit, thrown.what());
        ++cancelled;
      }
    });
  }
  CHECK(well > 0);
  CHECK(cancelled > 0);  // an operation that is dropped at once cannot have ended
}

TEST_CASE("a send that is dropped at any moment arrives completely, or not at all") {
  std::atomic<int> arrived = 0;
  std::atomic<int> withdrawn = 0;
  repeat_on_duplicates(2, rounds, [&](communicator& comm, int i, std::mt19937& random) -> task<> {
    const std::size_t n = i % 2 == 0 ? 20'000 : 40'000;
    const std::int64_t last[1] = {7};
    if (comm.rank() == 0) {
      {
        const auto data = values(0, n);
        operation<> dropped = comm.send(data, 1, 5);
        if (i % 10 == 9) co_await dropped;
        if (i % 10 != 8) poll_randomly(comm, random);
      }
      try {
        co_await comm.send(last, 1, 5);
      } catch (const error& thrown) {
        expect(thrown.record().code == errc::cancelled, thrown.what());
      }
      co_return;
    }
    std::vector<std::int64_t> data(n);
    try {
      poll_randomly(comm, random);
      received got = co_await comm.recv(data, any_source, 5);
      if (got.count == n) {
        expect_equal(data, values(0, n), "a dropped send");
        ++arrived;
        got = co_await comm.recv(data, 0, 5);
      } else {
        ++withdrawn;
      }
      expect(got.count == 1 && data[0] == 7, "the send after a dropped one");
    } catch (const error& thrown) {
      expect(thrown.record().code == errc::cancelled, thrown.what());
    }
  });
  CHECK(arrived > 0);
  CHECK(withdrawn > 0);
}

TEST_CASE("revoking at any moment ends every operation of all ranks with that reason") {
  for (const int p : {2, 3, 5}) {
    repeat_on_duplicates(
        p, rounds / 2, [&](communicator& comm, int i, std::mt19937& random) -> task<> {
          const int culprit = i % comm.size();
          std::vector<std::vector<std::int64_t>> data(
              4, values(comm.rank(), i % 3 == 0 ? 10 : 10'000));
          std::vector<operation<>> kept;
          for (auto& each : data) kept.push_back(comm.all_reduce(each));
          if (comm.rank() == culprit) {
            poll_randomly(comm, random);
            comm.revoke("enough");
          }
          // The last operation never succeeds, because rank `culprit` does not call it.
          if (comm.rank() != culprit) kept.push_back(comm.barrier());
          bool failed = false;
          for (auto& each : kept) {
            try {
              co_await each;
            } catch (const error& thrown) {
              failed = true;
              expect(thrown.record().code == errc::revoked, thrown.what());
              expect(thrown.record().culprit == culprit, thrown.what());
              expect(std::string(thrown.record().detail) == "enough", thrown.what());
            }
          }
          expect(failed || comm.rank() == culprit,
                 "an operation that no other rank joins has ended");
          expect(comm.failed() != nullptr, "the communicator is still good");
        });
  }
}

TEST_CASE("a reduction that throws on every rank at once ends on all of them") {
  struct throws {
    int operator()(int, int) const { throw std::runtime_error("never"); }
  };
  repeat_on_duplicates(3, rounds / 4, [&](communicator& comm, int, std::mt19937&) -> task<> {
    std::vector<int> data(5'000, comm.rank());
    const throws op;
    try {
      co_await comm.all_reduce(data, op);
      expect(false, "no error");
    } catch (const error& thrown) {
      expect(thrown.record().code == errc::user_op_failed, thrown.what());
    }
  });
}

TEST_CASE("a rank that computes only delays the others") {
  std::atomic<int> waiting = 0;
  threads::run(4, [&](communicator& comm) -> task<> {
    auto data = values(comm.rank(), 3000);
    while (comm.rank() == 1 && waiting < 3) std::this_thread::yield();
    auto sum = comm.all_reduce(data);
    ++waiting;
    co_await sum;
    expect_equal(data, sums(4, 3000), "all_reduce with a late rank");
  });
}

TEST_CASE("an operation that needs a rank that has left fails") {
  for (const std::size_t n : {std::size_t{1}, std::size_t{30'000}}) {
    std::atomic<bool> notified = false;
    threads::run(3, [&](communicator& comm) -> task<> {
      co_await comm.barrier();
      if (comm.rank() == 0) co_return;
      while (comm.rank() == 2 && !notified) std::this_thread::yield();
      auto data = values(comm.rank(), n);
      try {
        co_await comm.all_reduce(data);
        expect(false, "all_reduce without rank 0 has ended");
      } catch (const error& thrown) {
        expect(thrown.record().code == errc::closed, thrown.what());
        expect(thrown.record().culprit == 0, thrown.what());
      }
      notified = true;
    });
  }
  // A rank leaves only a duplicate of the world: calls on the world still succeed.
  threads::run(3, [](communicator& comm) -> task<> {
    {
      communicator part = co_await comm.dup();
      auto data = values(comm.rank(), 30);
      if (comm.rank() != 0) {
        try {
          co_await part.all_reduce(data);
          expect(false, "all_reduce without rank 0 has ended");
        } catch (const error& thrown) {
          expect(thrown.record().code == errc::closed, thrown.what());
          expect(thrown.record().culprit == 0, thrown.what());
        }
      } else {
        co_await part.close();
      }
    }
    co_await every_collective(comm, 10);
  });
}

TEST_CASE("what was sent before a rank left still arrives") {
  std::atomic<bool> left = false;
  threads::run(2, [&](communicator& comm) -> task<> {
    std::vector<std::int64_t> data = values(0, 50);
    if (comm.rank() == 0) {
      for (int tag = 0; tag < 20; ++tag) co_await comm.send(data, 1, tag);
      co_await comm.close();
      left = true;
      co_return;
    }
    while (!left) std::this_thread::yield();
    for (int tag = 19; tag >= 0; --tag) {
      data.assign(50, 0);
      co_await comm.recv(data, 0, tag);
      expect_equal(data, values(0, 50), "tag " + std::to_string(tag));
    }
    try {
      co_await comm.recv(data, 0, 20);
      expect(false, "a message that was never sent has arrived");
    } catch (const error& thrown) {
      expect(thrown.record().code == errc::closed, thrown.what());
    }
  });
}

TEST_CASE("an inbox keeps the order of its entries, and takes none once it is closed") {
  threads::inbox box;
  threads::inbox_entry items[5];
  const auto holds = [&](const threads::inbox_entry* first, std::size_t from, std::size_t to) {
    for (; from < to; ++from, first = first->next_entry) {
      if (first != &items[from]) return false;
    }
    return first == nullptr;
  };
  CHECK(box.take() == nullptr);
  for (int i = 0; i < 3; ++i) CHECK(box.put(items[i]));
  CHECK(holds(box.take(), 0, 3));
  CHECK(box.take() == nullptr);
  for (int i = 3; i < 5; ++i) CHECK(box.put(items[i]));
  CHECK(holds(box.close(), 3, 5));
  CHECK(!box.put(items[0]));
  CHECK(box.take() == nullptr);
}

TEST_CASE("small messages run ahead of their receives as far as the window, large ones wait") {
  threads::run(2, [](communicator& comm) -> task<> {
    constexpr std::size_t n = 4096;
    std::vector<std::vector<std::int64_t>> data;
    for (std::size_t i = 0; i < 20; ++i) data.push_back(values(0, n, i));
    // Each received message frees its space in the window, and no more.
    for (int repeat = 0; repeat < 3; ++repeat) {
      co_await comm.barrier();
      if (comm.rank() == 0) {
        std::vector<operation<>> kept;
        int done = 0;
        for (const auto& each : data) {
          kept.push_back(comm.send(each, 1));
          done += kept.back().done() ? 1 : 0;
        }
        expect(done == 15, std::to_string(done) + " sends of 32 KiB have ended alone");
        co_await comm.barrier();
        for (auto& each : kept) co_await each;
      } else {
        co_await comm.barrier();
        for (int i = 0; i < 20; ++i) {
          std::vector<std::int64_t> into(n);
          co_await comm.recv(into, any_source);
          expect_equal(into, data[count(i)], "message " + std::to_string(i));
        }
      }
    }
  });
}

TEST_CASE("a message that is too long for its receive is an error of that receive only") {
  threads::run(2, [](communicator& comm) -> task<> {
    for (const std::size_t n : {std::size_t{10}, std::size_t{100'000}}) {
      const auto data = values(0, n);
      if (comm.rank() == 0) {
        co_await comm.send(data, 1);
        continue;
      }
      std::vector<std::int64_t> into(n - 1);
      try {
        co_await comm.recv(into, 0);
        expect(false, "the message was not too long");
      } catch (const error& thrown) {
        expect(thrown.record().code == errc::truncated, thrown.what());
        expect(thrown.record().culprit == 0, thrown.what());
      }
    }
    co_await every_collective(comm, 5);
  });
}

TEST_CASE("different calls with one sequence number fail on all ranks, and both are named") {
  repeat_on_duplicates(3, 50, [&](communicator& comm, int i, std::mt19937& random) -> task<> {
    const int other_rank = i % 3;
    std::vector<std::int64_t> data(comm.rank() == other_rank ? 9 : 10);
    poll_randomly(comm, random);
    try {
      co_await comm.all_reduce(data);
      expect(false, "sums of 9 and of 10 elements have ended");
    } catch (const error& thrown) {
      expect(thrown.record().code == errc::mismatch, thrown.what());
      const std::string message = thrown.what();
      expect(message.find("rank " + std::to_string(other_rank) + " called all_reduce of 9") !=
                 std::string::npos,
             message);
    }
  });
}

TEST_CASE("a rank sends a message to itself") {
  threads::run(2, [](communicator& comm) -> task<> {
    for (const std::size_t n : {std::size_t{10}, std::size_t{100'000}}) {
      const auto data = values(comm.rank(), n);
      std::vector<std::int64_t> into(n);
      operation<> sending = comm.send(data, comm.rank());
      co_await comm.recv(into, comm.rank());
      co_await sending;
      expect_equal(into, data, "a message of a rank to itself");
    }
  });
}

TEST_CASE("run throws the first error, and no rank waits for the rank that failed") {
  for (int round = 0; round < 50; ++round) {
    std::string seen;
    std::atomic<int> notified = 0;
    try {
      threads::run(4, [&notified](communicator& comm) -> task<> {
        if (comm.rank() == 2) throw std::runtime_error("rank 2 is out of luck");
        try {
          co_await comm.barrier();
        } catch (const error& thrown) {
          notified += std::string(thrown.record().detail) == "rank 2 is out of luck" ? 1 : 0;
          throw;
        }
      });
    } catch (const std::runtime_error& thrown) {
      seen = thrown.what();
    }
    CHECK(seen == "rank 2 is out of luck");
    CHECK(notified == 3);
  }
  std::string notified;
  const auto throws_a_number = [&notified](communicator& comm) -> task<> {
    if (comm.rank() == 1) throw 7;
    try {
      co_await comm.barrier();
    } catch (const error& thrown) {
      notified = thrown.record().detail;
    }
  };
  CHECK_THROWS_AS(threads::run(2, throws_a_number), int);
  CHECK(notified == "a rank's main threw something that is no std::exception");
}

TEST_CASE("in the steady state nothing is allocated") {
  threads::run(2, [](communicator& comm) -> task<> {
    std::vector<std::int64_t> data(16);
    const int peer = 1 - comm.rank();
    // First let every pool reach its maximum: waiting receives and messages, control messages about
    // a late rank.
    for (const int late : {0, 1}) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
      while (comm.rank() == late && std::chrono::steady_clock::now() < until) comm.poll();
      std::vector<std::vector<std::int64_t>> into(10, data);
      std::vector<operation<>> kept;
      std::vector<operation<received>> receives;
      for (std::size_t i = 0; i < 10; ++i) {
        receives.push_back(comm.recv(into[i], peer));
        kept.push_back(comm.send(data, peer));
        kept.push_back(comm.barrier());
      }
      for (auto& each : kept) co_await each;
      for (auto& each : receives) co_await each;
    }
    std::size_t before = 0;
    for (int i = 0; i < 1100; ++i) {
      if (i == 100) {
        co_await comm.barrier();
        before = allocations;
        co_await comm.barrier();
      }
      co_await comm.all_reduce(data);
      if (comm.rank() == 0) {
        co_await comm.send(data, peer);
        co_await comm.recv(data, peer);
      } else {
        co_await comm.recv(data, peer);
        co_await comm.send(data, peer);
      }
    }
    const std::size_t after = allocations;
    co_await comm.barrier();
    expect(after == before, std::to_string(after - before) + " allocations in 1000 rounds");
  });
}

TEST_CASE("calls and waits of a second thread are refused while the rank's own waits") {
  threads::run(2, [](communicator& comm) -> task<> {
    auto data = values(comm.rank(), 100);
    co_await comm.all_reduce(data);
    std::vector<failure> refused;
    std::thread([&] {
      const auto record_refusal = [&](const auto& started) { refused.push_back(started.reason()); };
      std::vector<std::int64_t> other(100);
      record_refusal(comm.all_reduce(other));  // the same call as before
      record_refusal(comm.broadcast(other, 0));
      record_refusal(comm.send(other, 1 - comm.rank()));
      record_refusal(comm.recv(other, 1 - comm.rank()));
      record_refusal(comm.dup());
      try {
        sync_wait(comm, comm.all_reduce(other));
      } catch (const error& thrown) {
        refused.push_back(thrown.record());
      }
    }).join();
    expect(refused.size() == 6, "the wait on a second thread was not refused");
    for (const failure& reason : refused) {
      expect(reason.code == errc::invalid_argument && reason.observer == comm.rank() &&
                 std::string(reason.detail).starts_with("another thread is inside"),
             to_text(reason));
    }
    expect(comm.failed() == nullptr, "a refused call ended the communicator");
    data = values(comm.rank(), 100);
    co_await comm.all_reduce(data);
    expect_equal(data, sums(2, 100), "the call after it");
  });
}

TEST_CASE("a thread that waits for a device stays awake, unless ranks share its core") {
  thread_world world(1);
  CHECK(sleeps_in_a_long_wait(world[0]) < 500);
  world[0].spin(0);
  CHECK(sleeps_in_a_long_wait(world[0]) > 2000);
}

}  // namespace
