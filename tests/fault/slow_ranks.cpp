// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// A rank that computes for a long time while others wait for it is late and never taken for dead.

#include "processes.hpp"

#include <cstdlib>
#include <memory>

using namespace processes;

namespace {

/// Longer than any timeout after which a silent rank might be taken for dead. SLOW_RANK_SECONDS
/// sets another time.
double busy_seconds() {
  const char* const text = std::getenv("SLOW_RANK_SECONDS");
  return text != nullptr ? std::atof(text) : 12;
}

/// Computes without polling. After a second it leaves the cores to the other jobs.
void compute() {
  const double began = now();
  while (now() < began + busy_seconds()) {
    if (now() > began + 1) ::usleep(1000);
  }
}

std::vector<float> numbers(int rank, std::size_t count) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<float>(rank + 1) * float(i % 1000);
  return data;
}

constexpr std::size_t long_message = (16 << 20) / sizeof(float);

void check(bool right) {
  if (!right) throw std::runtime_error("wrong data");
}

task<> sum(colls::world& world, std::size_t count) {
  std::vector<float> data = numbers(world.rank(), count);
  co_await world.all_reduce(data);
  const int size = world.size();
  check(data == numbers(size * (size + 1) / 2 - 1, count));
}

struct situation {
  const char* what;
  int size;
  job::rank_main main;
};

/// `late` computes before it makes the call that the others wait in.
job::rank_main late_for_sum(int late, std::size_t count, bool connected) {
  return [=](colls::world& world, const line&) -> task<> {
    if (connected) co_await sum(world, 1000);
    if (world.rank() == late) compute();
    co_await sum(world, count);
    co_await world.barrier();
  };
}

/// Rank 0 sends 16 MiB to rank 1, and one of them computes, before its call or in the middle of it.
job::rank_main late_for_message(int late, bool in_the_middle) {
  return [=](colls::world& world, const line&) -> task<> {
    std::vector<float> data = numbers(world.rank(), long_message);
    const bool busy = world.rank() == late;
    if (busy && !in_the_middle) compute();
    if (world.rank() == 0) {
      auto sending = world.send(data, 1);
      // A few polls, so that it has begun.
      for (int i = 0; i < 20; ++i) {
        (void)sending.done();
        ::usleep(1000);
      }
      if (busy && in_the_middle) compute();
      co_await sending;
    } else {
      auto receiving = world.recv(data, 0);
      for (int i = 0; i < 20; ++i) {
        (void)receiving.done();
        ::usleep(1000);
      }
      if (busy && in_the_middle) compute();
      const colls::received got = co_await receiving;
      check(got.count == long_message && data == numbers(0, long_message));
    }
  };
}

/// All ranks have called; `late` computes in the middle of the call.
job::rank_main pause_in_sum(int late) {
  return [=](colls::world& world, const line&) -> task<> {
    std::vector<float> data = numbers(world.rank(), long_message / 4);
    auto summing = world.all_reduce(data);
    for (int i = 0; i < 10; ++i) {
      (void)summing.done();
      ::usleep(500);
    }
    if (world.rank() == late) compute();
    co_await summing;
    check(data == numbers(5, long_message / 4));
  };
}

}  // namespace

TEST_CASE("ranks that wait for a rank that computes wait until it is done") {
  const situation all[] = {
      {"all_reduce, the rank with the store, no connections", 3, late_for_sum(0, 1000, false)},
      {"all_reduce, another rank, no connections", 3, late_for_sum(2, 1000, false)},
      {"all_reduce over connections", 3, late_for_sum(1, 1000, true)},
      {"long all_reduce over connections", 3, late_for_sum(0, long_message / 4, true)},
      {"all_reduce, paused in the middle", 3, pause_in_sum(1)},
      {"16 MiB, the sender is late", 2, late_for_message(0, false)},
      {"16 MiB, the receiver is late", 2, late_for_message(1, false)},
      {"16 MiB, the sender pauses", 2, late_for_message(0, true)},
      {"16 MiB, the receiver pauses", 2, late_for_message(1, true)},
  };
  // All at the same time, because in a row they take minutes.
  std::vector<std::unique_ptr<job>> jobs;
  for (const situation& each : all) jobs.push_back(std::make_unique<job>(each.size, each.main));
  const double limit = 60 + 2 * busy_seconds();
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    CAPTURE(std::string(all[i].what));
    for (int rank = 0; rank < jobs[i]->size(); ++rank) {
      const ending& end = jobs[i]->wait(rank, limit);
      CAPTURE(rank);
      CAPTURE(end.message);
      CHECK(end.status == 0);
      // After 30 s the waiting ranks log for which rank they wait.
      if (busy_seconds() < 25) {
        CHECK(jobs[i]->log(rank) == "");
      } else {
        MESSAGE(std::string(all[i].what), ": ", jobs[i]->log(rank));
      }
    }
  }
}

TEST_CASE("a deadline names the rank that was waited for, whether it should send or receive") {
  using call = colls::operation<> (*)(colls::world&, std::vector<float>&, const colls::options&);
  const call calls[] = {
      [](colls::world& world, std::vector<float>& data, const colls::options& opts) {
        return world.send(data, 2, 0, opts);
      },
      [](colls::world& world, std::vector<float>& data, const colls::options& opts) {
        return world.broadcast(data, 1, opts);
      },
      [](colls::world& world, std::vector<float>& data, const colls::options& opts) {
        return world.reduce(data, 1, opts);
      },
  };
  for (const call& start : calls) {
    for (const bool connected : {true, false}) {
      CAPTURE(connected);
      job all(3, [=](colls::world& world, const line& test) -> task<> {
        if (connected) co_await sum(world, 1000);
        if (world.rank() != 1) {
          test.hear();
          co_return;
        }
        std::vector<float> data(long_message);
        const colls::options soon{.timeout = std::chrono::milliseconds(300)};
        colls::operation<> late = start(world, data, soon);
        co_await late;
      });
      const ending& end = all.wait(1);
      CAPTURE(end.message);
      CHECK(end.code == colls::errc::timeout);
      CHECK((end.culprit == 0 || end.culprit == 2));
      const std::string late = "rank " + std::to_string(end.culprit);
      CHECK((contains(end.message, late + " has not entered #") ||
             contains(end.message, late + " has not received tag 0")));
      for (const int rank : {0, 2}) all.tell(rank);
      for (const int rank : {0, 2}) CHECK(all.wait(rank).status == 0);
    }
  }
}
