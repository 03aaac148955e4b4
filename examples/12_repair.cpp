// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Adds up numbers in many steps, and takes in replacements of the ranks that die:
// colls-run -n 4 --on-failure replace repair

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

struct settings {
  std::int64_t steps = 100;
  int pause = 10;  // milliseconds of work in a step
  colls::recovery_options recovery;
};

/// What a rank that dies must not take with it. All ranks have the same.
struct progress {
  std::int64_t steps = 0;  // that are done
  std::int64_t sum = 0;
};

/// Gives all ranks the progress of one that has done the most steps. A replacement has done none.
colls::task<> share(colls::world& world, progress& own) {
  std::vector<std::int64_t> steps(static_cast<std::size_t>(world.size()));
  co_await world.all_gather(std::span(&own.steps, 1), steps);
  const auto most = std::max_element(steps.begin(), steps.end());
  std::int64_t all[] = {own.steps, own.sum};
  co_await world.broadcast(all, static_cast<int>(most - steps.begin()));
  own = {all[0], all[1]};
}

/// Does the steps that are left. Returns false if the world is to be repaired before.
colls::task<bool> add_up(colls::world& world, const settings& given, progress& own) {
  co_await share(world, own);
  std::printf("rank %d of %d is at step %lld in generation %u\n", world.rank(), world.size(),
              static_cast<long long>(own.steps), world.generation());
  std::fflush(stdout);
  while (own.steps < given.steps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(given.pause));
    std::int64_t sum[] = {world.rank() + own.steps, world.waiting()};
    co_await world.all_reduce(sum);
    own.sum += sum[0];
    ++own.steps;
    if (sum[1] > 0) co_return false;  // a replacement waits, and all ranks know it now
  }
  // A rank that has died in the last step may have left others behind, so no rank ends before.
  const colls::agreement end = co_await world.agree(1);
  if (!end.lost.empty()) co_return false;
  try {
    co_await world.barrier();
  } catch (const colls::error&) {  // all ranks have done the steps, whatever happens to them now
  }
  co_return true;
}

colls::task<> work(colls::world& world, const settings& given) {
  progress own;
  for (bool is_done = false; !is_done;) {
    bool is_lost = false;
    try {
      is_done = co_await add_up(world, given, own);
      is_lost = !is_done;
    } catch (const colls::error& failed) {
      is_lost = failed.code() == colls::errc::peer_failed ||
                failed.code() == colls::errc::revoked || failed.code() == colls::errc::closed;
      if (!is_lost) throw;
    }
    if (is_lost) world = co_await world.repair(given.recovery);
  }
  if (world.rank() == 0) {
    std::printf("the sum of %lld steps on %d ranks is %lld\n", static_cast<long long>(own.steps),
                world.size(), static_cast<long long>(own.sum));
  }
}

}  // namespace

int main(int argc, char** argv) {
  settings given;
  double wait = 0;
  CLI::App app{"Adds up numbers, and takes in replacements of the ranks that die."};
  app.add_option("--steps", given.steps, "number of steps")->check(CLI::NonNegativeNumber);
  app.add_option("--pause", given.pause, "milliseconds of work in a step")->check(CLI::Range(1000));
  app.add_option("--at-least", given.recovery.at_least, "go on with this number of ranks");
  app.add_option("--wait", wait, "after waiting this number of seconds for replacements")
      ->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  given.recovery.wait = std::chrono::duration<double>(wait);
  return colls::run([&](colls::world& world) { return work(world, given); });
}
