// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Adds up the squares of numbers in blocks, and goes on with fewer ranks when some of them die:
// colls-run -n 4 --on-failure shrink shrink

#include <colls/colls.hpp>
#include <colls/run.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr std::int64_t block = 1000;  // numbers in a step

struct settings {
  std::int64_t steps = 100;
  int pause = 10;  // milliseconds of work in a step
};

/// What a rank that dies must not take with it. All ranks have the same.
struct progress {
  std::int64_t steps = 0;  // that are done
  std::int64_t sum = 0;
};

/// Returns this rank's part of the sum of a step. Whatever the number of ranks, each number belongs
/// to one of them.
std::int64_t part_of(const colls::world& world, std::int64_t step) {
  std::int64_t sum = 0;
  for (std::int64_t i = step * block + world.rank(); i < (step + 1) * block; i += world.size())
    sum += i * i % 1000;
  return sum;
}

colls::task<> add_up(colls::world& world, const settings& given, progress& own) {
  // A step is done if a rank has done it, although others may have lost a peer in it.
  std::vector<std::int64_t> steps(static_cast<std::size_t>(world.size()));
  co_await world.all_gather(std::span(&own.steps, 1), steps);
  const auto most = std::max_element(steps.begin(), steps.end());
  std::int64_t all[] = {own.steps, own.sum};
  co_await world.broadcast(all, static_cast<int>(most - steps.begin()));
  own = {all[0], all[1]};

  std::printf("rank %d of %d is at step %lld\n", world.rank(), world.size(),
              static_cast<long long>(own.steps));
  std::fflush(stdout);
  while (own.steps < given.steps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(given.pause));
    std::int64_t sum = part_of(world, own.steps);
    co_await world.all_reduce(std::span(&sum, 1));
    own.sum += sum;
    ++own.steps;
  }
}

colls::task<> work(colls::world& world, const settings& given) {
  progress own;
  for (bool is_done = false; !is_done;) {
    try {
      co_await add_up(world, given, own);
      is_done = true;
    } catch (const colls::error& failed) {
      std::fprintf(stderr, "rank %d: %s\n", world.rank(), failed.what());
    }
    // A rank that has done all steps may be needed by one that has not.
    const colls::agreement end = co_await world.agree(is_done ? 1 : 0);
    is_done = end.value == 1;
    if (!is_done) {
      colls::world left = co_await world.shrink();
      world = std::move(left);
    }
  }
  if (world.rank() == 0) {
    std::printf("the sum of %lld steps is %lld, on %d ranks\n", static_cast<long long>(own.steps),
                static_cast<long long>(own.sum), world.size());
  }
}

}  // namespace

int main(int argc, char** argv) {
  settings given;
  CLI::App app{"Adds up squares, and goes on without the ranks that die."};
  app.add_option("--steps", given.steps, "number of steps")->check(CLI::NonNegativeNumber);
  app.add_option("--pause", given.pause, "milliseconds of work in a step")->check(CLI::Range(1000));
  CLI11_PARSE(app, argc, argv);
  return colls::run([&](colls::world& world) { return work(world, given); });
}
