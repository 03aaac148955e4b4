// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Training in processes: the other ranks name a rank that is killed, in time; the number of
// threads; and the results of the examples without libtorch.

#include <colls/ddp/gradient_buckets.hpp>
#include <colls/interprocess.hpp>

#include "launcher.hpp"
#include "processes.hpp"

#include <random>

using namespace processes;
using colls::errc;
using colls::ddp::drive;

namespace {

#ifdef SANITIZED
constexpr double promised = 10;
#else
constexpr double promised = 2;
#endif

/// Makes steps until one fails.
void train(colls::world& ranks, drive mode, const line& test) {
  std::vector<colls::ddp::parameter> parameters;
  for (const std::size_t elements : {1000u, 500'000u, 10u, 20'000u}) {
    parameters.push_back({"p" + std::to_string(parameters.size()), elements});
  }
  colls::ddp::gradient_buckets<float, colls::world> mine(
      ranks, parameters, {.drive = mode, .first_bucket_bytes = 1000, .bucket_bytes = 100'000});
  for (int step = 0;; ++step) {
    if (step == 2) test.say("training");
    for (std::size_t i = parameters.size(); i-- > 0;) {
      for (float& each : mine.gradient(i)) each = 1;
      mine.mark_ready(i);
    }
    mine.finish();
  }
}

}  // namespace

TEST_CASE("kill -9 of a rank that trains ends all others, and they name it") {
  std::mt19937 random(20261122);
  for (int round = 0; round < 12; ++round) {
    const int size = 2 + static_cast<int>(random() % 3);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    const drive mode = round % 2 == 0 ? drive::thread : drive::hooks;
    CAPTURE(round);
    CAPTURE(size);
    CAPTURE(victim);
    job all(size, [=](colls::world& world, const line& test) -> task<> {
      train(world, mode, test);
      co_return;
    });
    REQUIRE(all.all_say("training"));
    ::usleep(static_cast<unsigned>(random() % 30'000));
    const double killed_at = now();
    all.kill(victim);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      const ending& end = all.wait(rank);
      CAPTURE(rank);
      CAPTURE(end.message);
      CHECK(end.status == 1);
      CHECK(end.code == errc::peer_failed);
      CHECK(end.culprit == victim);
      CHECK(end.time - killed_at < promised);
    }
  }
}

TEST_CASE("a step takes one thread more with drive::thread, and none with drive::hooks") {
  for (const auto& [drive_mode, more] : {std::pair(drive::thread, 1), std::pair(drive::hooks, 0)}) {
    const drive mode = drive_mode;
    job all(2, [mode](colls::world& world, const line& test) -> task<> {
      test.say("joined");
      test.hear();
      train(world, mode, test);
      co_return;
    });
    REQUIRE(all.all_say("joined"));
    const int before = all.threads(0);
    for (const int rank : {0, 1}) all.tell(rank);
    REQUIRE(all.all_say("training"));
    CHECK(all.threads(0) == before + more);
    CHECK(all.threads(1) == before + more);
  }
}

TEST_CASE("data-parallel by hand learns the same on one rank and on three") {
  launcher_test::run alone({"-n", "1", "--no-prefix", "examples/data_parallel_by_hand"});
  launcher_test::run together({"-n", "3", "--no-prefix", "examples/data_parallel_by_hand"});
  CHECK(alone.wait() == 0);
  CHECK(together.wait() == 0);
  CHECK(alone.out() == together.out());
  CHECK(contains(alone.out(), "1.00 2.00 3.00 4.00 5.00 6.00 7.01 8.00 are the weights"));
}

TEST_CASE("local SGD learns, and the average is nearer to the truth than a rank alone") {
  launcher_test::run it({"-n", "4", "--no-prefix", "examples/local_sgd"});
  CHECK(it.wait() == 0);
  double alone = 0;
  double average = 0;
  const std::size_t last = it.out().rfind("step 2000");
  REQUIRE(last != std::string::npos);
  REQUIRE(std::sscanf(it.out().c_str() + last,
                      "step 2000 a rank alone is off by %lf, the average by %lf", &alone,
                      &average) == 2);
  CHECK(alone < 1);
  CHECK(average < alone);
}
