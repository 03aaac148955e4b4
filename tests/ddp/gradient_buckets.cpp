// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/ddp/gradient_buckets.hpp>

#include <colls/inproc.hpp>
#include <colls/interprocess.hpp>
#include <colls/threads.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../support/communicators.hpp"
#include "../support/tcp_threads.hpp"

namespace {

using colls::errc;
using colls::failure;
using colls::task;
using colls::world;
using colls::ddp::compression;
using colls::ddp::drive;
using colls::ddp::gradient_buckets;
using colls::ddp::hooks_driver;
using colls::ddp::options;
using colls::ddp::parameter;
using colls::ddp::timeline;
using statuses = std::vector<int>;
using sizes = std::vector<std::size_t>;

// Ranks on threads check by exceptions: the first exception ends the test on all ranks.
void expect(bool good, const std::string& what) {
  if (!good) throw std::logic_error(what);
}

template <class Call>
failure failure_of(const Call& call) {
  try {
    call();
  } catch (const colls::error& thrown) {
    return thrown.record();
  }
  return {};
}

std::vector<parameter> with_sizes(const sizes& elements) {
  std::vector<parameter> all;
  for (const std::size_t each : elements) all.push_back({"p" + std::to_string(all.size()), each});
  return all;
}

/// All ranks on this thread. The test makes the calls of one rank after another.
template <class T>
struct stepwise {
  using buckets = gradient_buckets<T, colls::inproc::communicator>;

  stepwise(int ranks, const sizes& elements, options opts = {})
      : all(ranks), traces(static_cast<std::size_t>(ranks)) {
    std::vector<colls::operation<colls::inproc::communicator>> made;
    for (int rank = 0; rank < ranks; ++rank) made.push_back(all[rank].dup());
    for (int rank = 0; rank < ranks; ++rank) {
      opts.trace = &traces[static_cast<std::size_t>(rank)];
      mine.push_back(
          std::make_unique<buckets>(std::make_unique<hooks_driver<colls::inproc::communicator>>(
                                        all.wait(made[static_cast<std::size_t>(rank)])),
                                    with_sizes(elements), opts));
    }
  }

  buckets& operator[](int rank) { return *mine[static_cast<std::size_t>(rank)]; }
  void fill(int rank, std::size_t i, T value) {
    for (T& each : (*this)[rank].gradient(i)) each = value;
  }
  void ready(int rank, std::size_t i, T value) {
    fill(rank, i, value);
    (*this)[rank].mark_ready(i);
  }
  void finish() {
    for (auto& each : mine) each->finish();
  }
  bool holds(std::size_t i, T value) {
    for (auto& each : mine) {
      for (const T& got : each->gradient(i)) {
        if (got != value) return false;
      }
    }
    return true;
  }

  communicators all;
  std::vector<timeline> traces;
  std::vector<std::unique_ptr<buckets>> mine;
};

const options small_buckets{.drive = drive::hooks, .first_bucket_bytes = 1, .bucket_bytes = 1};

TEST_CASE("the first bucket's sum has begun, and ended, before the last gradient is ready") {
  stepwise<float> ranks(2, {3, 2}, small_buckets);
  for (int rank = 0; rank < 2; ++rank) ranks.ready(rank, 1, float(rank));
  ranks.all.settle();
  for (const timeline& seen : ranks.traces) {
    CHECK(seen.buckets[0].begin != 0);
    CHECK(seen.buckets[0].end != 0);
    CHECK(seen.buckets[0].elements == 2);
    CHECK(seen.buckets[1].begin == 0);
    CHECK(seen.ready[1] != 0);
    CHECK(seen.ready[0] == 0);
  }
  CHECK(ranks.holds(1, 0.5));
  for (int rank = 0; rank < 2; ++rank) ranks.ready(rank, 0, 4);
  ranks.finish();
  CHECK(ranks.holds(0, 4));
  for (const timeline& seen : ranks.traces) {
    CHECK(seen.begin <= seen.ready[1]);
    CHECK(seen.ready[1] <= seen.buckets[0].begin);
    CHECK(seen.buckets[0].begin <= seen.buckets[0].end);
    CHECK(seen.buckets[0].end <= seen.ready[0]);
    CHECK(seen.ready[0] <= seen.buckets[1].begin);
    CHECK(seen.buckets[1].end <= seen.end);
  }
}

TEST_CASE("a bucket starts when all its gradients are ready, and all before it have started") {
  // Two buckets of two parameters: {3, 2} and {1, 0}.
  stepwise<double> ranks(2, {2, 2, 2, 2},
                         {.drive = drive::hooks, .first_bucket_bytes = 32, .bucket_bytes = 32});
  const auto begun = [&](std::size_t bucket) {
    ranks.all.settle();
    return ranks.traces[0].buckets[bucket].begin != 0;
  };
  for (const std::size_t i : {0u, 1u, 3u}) {
    for (int rank = 0; rank < 2; ++rank) ranks.ready(rank, i, double(i));
    CHECK(!begun(0));
    CHECK(!begun(1));
  }
  ranks.ready(0, 2, 8);
  CHECK(begun(0));
  CHECK(ranks.traces[0].buckets[0].end == 0);  // rank 1 has not started this bucket yet
  ranks.ready(1, 2, 4);
  CHECK(begun(1));
  ranks.finish();
  CHECK(ranks.holds(2, 6));
  CHECK(ranks.holds(0, 0));
  CHECK(ranks.holds(3, 3));
}

TEST_CASE("after the first step the buckets are in the order of rank 0, and keep what they hold") {
  stepwise<float> ranks(3, {4, 1, 2, 3}, small_buckets);
  const std::vector<sizes> orders{{1, 3, 0, 2}, {3, 2, 1, 0}, {0, 1, 2, 3}};
  for (int rank = 0; rank < 3; ++rank) {
    for (const std::size_t i : orders[static_cast<std::size_t>(rank)]) {
      ranks.ready(rank, i, float(i) + float(rank));
    }
  }
  for (int rank = 0; rank < 3; ++rank) CHECK(ranks[rank].plan().order() == sizes{3, 2, 1, 0});
  ranks.finish();
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(ranks[rank].plan().order() == orders[0]);
    for (std::size_t i = 0; i < 4; ++i)
      CHECK(ranks[rank].gradient(i).size() == sizes{4, 1, 2, 3}[i]);
  }
  for (std::size_t i = 0; i < 4; ++i) CHECK(ranks.holds(i, float(i) + 1));
  // A later step does not change the order again.
  for (int rank = 0; rank < 3; ++rank) {
    for (const std::size_t i : {2u, 3u, 0u, 1u}) ranks.ready(rank, i, float(10 * i));
  }
  ranks.finish();
  CHECK(ranks[1].plan().order() == orders[0]);
  for (std::size_t i = 0; i < 4; ++i) CHECK(ranks.holds(i, float(10 * i)));
}

TEST_CASE("a shared gradient outlives the buckets") {
  std::shared_ptr<float> kept;
  {
    stepwise<float> ranks(1, {3, 2}, small_buckets);
    ranks.fill(0, 0, 7);
    kept = ranks[0].shared_gradient(0);
    CHECK(kept.get() == ranks[0].gradient(0).data());
  }
  CHECK(kept.get()[2] == 7);
}

// One rank's part of a test that all transports and drivers pass: gradients become ready in random
// order, and the averages are compared with those that every rank can calculate for itself.
template <class T, class Communicator>
void train(Communicator& ranks, options opts, double tolerance) {
  const sizes elements{1, 100, 0, 17, 3000, 64, 5, 999, 2};
  gradient_buckets<T, Communicator> mine(ranks, with_sizes(elements), opts);
  std::mt19937 order(static_cast<unsigned>(ranks.rank()));
  const auto value = [](int rank, int step, std::size_t i, std::size_t k) {
    return static_cast<T>(static_cast<float>(
        std::sin(0.1 * rank + step + 10.0 * static_cast<double>(i) + static_cast<double>(k))));
  };
  const auto samples_of = [&](int rank, int step) { return (rank * 7 + step) % 5; };
  for (int step = 0; step < 6; ++step) {
    const bool weighted = step >= 2;
    double total = 0;
    std::vector<double> weights;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      weights.push_back(weighted ? samples_of(rank, step) : 1);
      total += weights.back();
    }
    if (weighted) mine.samples(samples_of(ranks.rank(), step));
    sizes sequence = colls::ddp::bucket_plan::reverse_order(elements.size());
    std::shuffle(sequence.begin(), sequence.end(), order);
    for (const std::size_t i : sequence) {
      for (std::size_t k = 0; k < elements[i]; ++k) {
        mine.gradient(i)[k] = value(ranks.rank(), step, i, k);
      }
      mine.mark_ready(i);
    }
    mine.finish();
    std::vector<T> flat;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      for (std::size_t k = 0; k < elements[i]; ++k) {
        double average = 0;
        for (int rank = 0; rank < ranks.size(); ++rank) {
          if (total == 0) continue;
          average += weights[static_cast<std::size_t>(rank)] / total *
                     static_cast<double>(value(rank, step, i, k));
        }
        const auto got = static_cast<double>(mine.gradient(i)[k]);
        expect(std::abs(got - average) <= tolerance,
               "step " + std::to_string(step) + " parameter " + std::to_string(i) + ": got " +
                   std::to_string(got) + ", not " + std::to_string(average));
        flat.push_back(mine.gradient(i)[k]);
      }
    }
    std::vector<T> first = flat;
    colls::sync_wait(ranks, ranks.broadcast(first, 0));
    expect(std::memcmp(first.data(), flat.data(), flat.size() * sizeof(T)) == 0,
           "all ranks have the same bits");
  }
}

template <class T>
void train_on_threads(int ranks, options opts, double tolerance) {
  opts.drive = drive::hooks;
  colls::threads::run(ranks, [&](colls::threads::communicator& comm) -> task<> {
    train<T>(comm, opts, tolerance);
    co_return;
  });
}

TEST_CASE("averages are those of all ranks, weighted by their samples, the same bits everywhere") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::size_t bytes : {1u, 1000u, 1u << 20}) {
      const options opts{.first_bucket_bytes = bytes, .bucket_bytes = 4 * bytes};
      train_on_threads<float>(ranks, opts, 1e-6);
      train_on_threads<double>(ranks, opts, 1e-14);
    }
  }
  train_on_threads<colls::float16>(3, {}, 2e-3);
  train_on_threads<colls::bfloat16>(3, {}, 2e-2);
}

TEST_CASE("compressed averages are those of all ranks but for two roundings") {
  for (const int ranks : {1, 2, 5}) {
    train_on_threads<float>(ranks, {.compression = compression::float16}, 1e-3);
    train_on_threads<float>(ranks, {.compression = compression::bfloat16}, 1e-2);
  }
}

TEST_CASE("averages over TCP are right, with a driver thread and without one") {
  for (const drive mode : {drive::thread, drive::hooks}) {
    const auto main = [&](world& ranks) {
      train<float>(ranks, {.drive = mode, .first_bucket_bytes = 100, .bucket_bytes = 4000}, 1e-6);
      train<float>(ranks, {.drive = mode, .compression = compression::float16}, 1e-3);
    };
    CHECK(run_tcp(1, main) == statuses{0});
    CHECK(run_tcp(3, main) == statuses{0, 0, 0});
  }
}

TEST_CASE("some of the ranks may train, with a communicator of their own") {
  const auto main = [](world& ranks) {
    world some = colls::sync_wait(ranks, ranks.group(std::vector{2, 0}));
    expect(bool(some) == (ranks.rank() != 1), "the members");
    if (some) train<float>(some, {.first_bucket_bytes = 100, .bucket_bytes = 4000}, 1e-6);
    colls::sync_wait(ranks, ranks.barrier());
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
}

TEST_CASE("with a thread the first bucket's sum begins while its rank does something else") {
  std::atomic<int> begun = 0;
  const auto main = [&](world& ranks) {
    timeline seen;
    gradient_buckets<float, world> mine(
        ranks, with_sizes({1000, 1000}),
        {.first_bucket_bytes = 1, .bucket_bytes = 1, .trace = &seen});
    mine.reduce_by([&](world& comm, std::span<float> bucket) -> task<> {
      ++begun;
      co_await comm.all_reduce(bucket);
    });
    mine.mark_ready(1);
    while (begun < ranks.size()) std::this_thread::yield();
    mine.mark_ready(0);
    mine.finish();
    expect(seen.buckets[0].begin < seen.ready[0],
           "the first bucket's sum began before the last gradient was ready");
    expect(seen.buckets[1].begin >= seen.ready[0], "the second bucket's sum began afterwards");
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("a rank without samples contributes nothing, not even a NaN, by backward or without") {
  stepwise<float> ranks(3, {2, 3}, small_buckets);
  const auto both = [&](int rank, float value) {
    for (const std::size_t i : {0u, 1u}) ranks.ready(rank, i, value);
  };
  for (int rank = 0; rank < 3; ++rank) ranks[rank].samples(rank == 1 ? 0 : 3 - rank);
  both(0, 1);
  both(1, std::numeric_limits<float>::quiet_NaN());
  both(2, 9);
  ranks.finish();
  CHECK(ranks.holds(0, 3));  // (3 * 1 + 1 * 9) / 4
  CHECK(ranks.holds(1, 3));

  ranks[0].samples(1);
  ranks[2].samples(3);
  both(0, 1);
  both(2, 5);
  ranks[1].take_part();
  ranks[0].finish();
  ranks[2].finish();
  CHECK(ranks.holds(0, 4));
  CHECK(ranks.holds(1, 4));

  // No rank has samples: there is nothing to average.
  for (int rank = 0; rank < 3; ++rank) ranks[rank].samples(0);
  for (int rank = 0; rank < 3; ++rank) both(rank, 5);
  ranks.finish();
  CHECK(ranks.holds(0, 0));
}

TEST_CASE("samples hold for one step; if only some ranks call it, all ranks get an error") {
  stepwise<float> ranks(2, {1}, small_buckets);
  ranks[0].samples(1);
  ranks[1].samples(3);
  for (int rank = 0; rank < 2; ++rank) ranks.ready(rank, 0, float(4 * rank));
  ranks.finish();
  CHECK(ranks.holds(0, 3));
  for (int rank = 0; rank < 2; ++rank) ranks.ready(rank, 0, float(4 * rank));
  ranks.finish();
  CHECK(ranks.holds(0, 2));

  CHECK(failure_of([&] { ranks[0].samples(-1); }).code == errc::invalid_argument);
  ranks[0].samples(7);
  for (int rank = 0; rank < 2; ++rank) ranks.ready(rank, 0, 1);
  for (int rank = 0; rank < 2; ++rank) {
    const failure why = failure_of([&] { ranks[rank].finish(); });
    CHECK(why.code == errc::mismatch);
    CHECK(why.culprit == 1);
    CHECK(std::string(why.detail).find("rank 0 said how many samples") == 0);
    // All later calls fail for the same reason.
    CHECK(failure_of([&] { ranks[rank].mark_ready(0); }).code == errc::mismatch);
    CHECK(failure_of([&] { ranks[rank].finish(); }).code == errc::mismatch);
  }
}

TEST_CASE("under no_sync gradients accumulate, and are averaged afterwards") {
  stepwise<float> ranks(2, {1, 1}, small_buckets);
  {
    const auto quiet = ranks[0].no_sync();
    const auto also = ranks[1].no_sync();
    {
      const auto inner = ranks[1].no_sync();
    }
    for (int rank = 0; rank < 2; ++rank) {
      ranks.ready(rank, 0, float(rank + 1));
      ranks.ready(rank, 0, float(rank + 1));
      CHECK(ranks[rank].is_accumulating());
      CHECK(!ranks[rank].is_in_step());
    }
  }
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(!ranks[rank].is_accumulating());
    ranks[rank].gradient(0)[0] += 10;
    ranks[rank].mark_ready(0);
    ranks.ready(rank, 1, 1);
  }
  ranks.finish();
  CHECK(ranks.holds(0, 11.5));
}

TEST_CASE("a gradient that never came is an error that names its parameter, on all ranks") {
  stepwise<float> ranks(2, {1, 1, 1}, small_buckets);
  for (const std::size_t i : {0u, 1u, 2u}) ranks.ready(0, i, 1);
  ranks.ready(1, 2, 1);
  const auto check = [&](int rank) {
    const failure why = failure_of([&] { ranks[rank].finish(); });
    CHECK(why.code == errc::revoked);
    CHECK(why.culprit == 1);
    CHECK(std::string(why.detail) ==
          "parameters 'p0', 'p1' got no gradient in this step; options.allow_unused makes that "
          "count as zero");
  };
  check(1);
  check(0);
  CHECK(failure_of([&] { ranks[1].mark_ready(0); }).code == errc::revoked);
}

TEST_CASE("where many gradients did not come, some are named and the others counted") {
  stepwise<float> ranks(1, {1, 1, 1, 1, 1, 1}, small_buckets);
  ranks.ready(0, 1, 1);
  const failure why = failure_of([&] { ranks[0].finish(); });
  CHECK(std::string(why.detail).find("parameters 'p0', 'p2', 'p3' and 2 more got no") == 0);
}

TEST_CASE("a gradient that comes twice is an error on all ranks") {
  stepwise<float> ranks(2, {1, 1}, small_buckets);
  ranks.ready(1, 1, 1);
  const failure why = failure_of([&] { ranks[1].mark_ready(1); });
  CHECK(why.code == errc::revoked);
  CHECK(std::string(why.detail) == "the gradient of parameter 'p1' became ready twice in one step");
  for (const std::size_t i : {0u, 1u}) ranks.ready(0, i, 1);
  CHECK(failure_of([&] { ranks[0].finish(); }).code == errc::revoked);
}

TEST_CASE("a step that is abandoned ends on all ranks with its reason") {
  for (const bool all_sums_are_there : {false, true}) {
    stepwise<float> ranks(2, {1, 1}, small_buckets);
    for (int rank = 0; rank < 2; ++rank) ranks.ready(rank, 1, 1);
    if (all_sums_are_there) {
      for (int rank = 0; rank < 2; ++rank) ranks.ready(rank, 0, 1);
      ranks.all.settle();
    }
    ranks[1].abandon("enough");
    for (const int rank : {1, 0}) {
      const failure why = failure_of([&] {
        ranks[rank].finish();
        ranks.ready(rank, 0, 1);  // rank 0 may learn of it in the next step
        ranks.ready(rank, 1, 1);
        ranks[rank].finish();
      });
      CHECK(why.code == errc::revoked);
      CHECK(std::string(why.detail) == "enough");
    }
    ranks[1].abandon("again");
    CHECK(std::string(failure_of([&] { ranks[1].finish(); }).detail) == "enough");
  }
}

TEST_CASE("there is no gradient beyond the last parameter") {
  stepwise<float> ranks(1, {1, 1}, small_buckets);
  CHECK(failure_of([&] { ranks[0].mark_ready(2); }).code == errc::invalid_argument);
  CHECK(!ranks[0].is_in_step());
}

TEST_CASE("an untouched gradient counts with its value, but not as used") {
  colls::threads::run(2, [](colls::threads::communicator& ranks) -> task<> {
    options opts = small_buckets;
    opts.allow_unused = true;
    gradient_buckets<float, colls::threads::communicator> mine(ranks, with_sizes({1, 1}), opts);
    mine.gradient(0)[0] = float(2 + ranks.rank());
    mine.mark_untouched(0);
    mine.gradient(1)[0] = 1;
    if (ranks.rank() == 0) {
      mine.mark_untouched(1);
    } else {
      mine.mark_ready(1);
    }
    mine.finish();
    expect(mine.gradient(0)[0] == 2.5 && !mine.used(0), "untouched on all ranks");
    expect(mine.gradient(1)[0] == 1 && mine.used(1), "untouched on one rank");
    co_return;
  });
}

TEST_CASE("where it is allowed, a parameter counts as zero on the ranks that do not use it") {
  colls::threads::run(2, [](colls::threads::communicator& ranks) -> task<> {
    options opts = small_buckets;
    opts.allow_unused = true;
    gradient_buckets<float, colls::threads::communicator> mine(ranks, with_sizes({2, 1, 1}), opts);
    const auto ready = [&](std::size_t i, float value) {
      std::fill_n(mine.gradient(i).begin(), mine.gradient(i).size(), value);
      mine.mark_ready(i);
    };
    for (int step = 0; step < 2; ++step) {
      for (const std::size_t i : {0u, 1u, 2u}) mine.gradient(i)[0] = 77;
      if (ranks.rank() == 0) ready(0, 4);
      ready(2, ranks.rank() == 0 ? 1 : 3);
      mine.finish();
      expect(mine.gradient(0)[0] == 2 && mine.gradient(0)[1] == 2, "used on one rank");
      expect(mine.gradient(2)[0] == 2, "used on both ranks");
      expect(mine.used(0) && !mine.used(1) && mine.used(2), "which are used");
    }
    co_return;
  });
}

TEST_CASE("where it is allowed, a step may have no gradient at all, on one rank or on all") {
  colls::threads::run(3, [](colls::threads::communicator& ranks) -> task<> {
    gradient_buckets<float, colls::threads::communicator> mine(
        ranks, with_sizes({2, 1}), {.drive = drive::hooks, .allow_unused = true});
    for (const int users : {2, 0}) {
      if (ranks.rank() < users) {
        for (const std::size_t i : {0u, 1u}) {
          for (float& each : mine.gradient(i)) each = 3;
          mine.mark_ready(i);
        }
      }
      mine.finish();
      for (const std::size_t i : {0u, 1u}) {
        expect(mine.used(i) == (users > 0), "whether a rank used it");
        expect(mine.gradient(i)[0] == float(users), "the average");
      }
    }
    co_return;
  });
}

TEST_CASE("after each step all ranks have rank 0's buffers") {
  stepwise<float> ranks(3, {1}, small_buckets);
  std::vector<std::vector<double>> means(3, std::vector<double>(5));
  std::vector<std::vector<std::int64_t>> batches(3, std::vector<std::int64_t>(1));
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ranks[static_cast<int>(rank)].keep_equal({std::as_writable_bytes(std::span(means[rank])),
                                              std::as_writable_bytes(std::span(batches[rank]))});
  }
  for (int step = 0; step < 2; ++step) {
    for (std::size_t rank = 0; rank < 3; ++rank) {
      std::fill(means[rank].begin(), means[rank].end(), static_cast<double>(rank) + 10 * step + 1);
      batches[rank][0] = static_cast<std::int64_t>(rank) + step + 100;
    }
    if (step == 0) {
      for (int rank = 0; rank < 3; ++rank) ranks.ready(rank, 0, 1);
      ranks.finish();
    } else {
      for (const int rank : {0, 2}) {
        ranks[rank].samples(1);
        ranks.ready(rank, 0, 1);
      }
      ranks[1].take_part();
      ranks[0].finish();
      ranks[2].finish();
    }
    for (std::size_t rank = 0; rank < 3; ++rank) {
      CHECK(means[rank] == std::vector<double>(5, 10 * step + 1));
      CHECK(batches[rank][0] == step + 100);
    }
  }
}

TEST_CASE("a rank that leaves in the middle of a step is named by the others") {
  for (const drive mode : {drive::thread, drive::hooks}) {
    const auto main = [&](world& ranks) {
      {
        gradient_buckets<float, world> mine(ranks, with_sizes({10, 10}), {.drive = mode});
        mine.mark_ready(1);
        if (ranks.rank() != 2) {
          mine.mark_ready(0);
          const failure why = failure_of([&] { mine.finish(); });
          expect(why.code != errc{} && why.culprit == 2,
                 std::string("the rank that left: ") + colls::error(why).what());
        }
      }
      colls::sync_wait(ranks, ranks.barrier());
    };
    CHECK(run_tcp(3, main) == statuses{0, 0, 0});
  }
}

}  // namespace
