// SPDX-FileCopyrightText: 2026 The colls authors SPDX-License-Identifier: BSL-1.0 Adds up numbers
// in many steps. When a rank dies, the launcher starts all ranks again, and they go on from a
// checkpoint: colls-run -n 4 --max-restarts 3 restart --checkpoint sum.txt

#include <colls/colls.hpp>
#include <colls/config.hpp>
#include <colls/run.hpp>

#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

struct settings {
  std::int64_t steps = 100;
  std::int64_t every = 10;  // steps between two checkpoints
  int pause = 10;           // milliseconds of work in a step
  std::string checkpoint = "sum.txt";
};

struct progress {
  std::int64_t steps = 0;  // that are done
  std::int64_t sum = 0;
};

/// Returns the progress in the checkpoint, or none if there is no checkpoint yet.
progress read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  progress saved;
  if (!(file >> saved.steps >> saved.sum))
    throw std::runtime_error(path + " is no checkpoint of this program");
  return saved;
}

/// Replaces the checkpoint. A process that dies meanwhile leaves the one before.
void write(const std::string& path, const progress& done) {
  const std::string next = path + ".new";
  std::ofstream file(next);
  file << done.steps << ' ' << done.sum << '\n';
  file.close();
  if (!file) throw std::runtime_error("cannot write " + next);
  std::filesystem::rename(next, path);
}

colls::task<> work(colls::world& world, const settings& given) {
  progress own;
  if (world.rank() == 0) own = read(given.checkpoint);
  std::int64_t start[] = {own.steps, own.sum};
  co_await world.broadcast(start, 0);
  own = {start[0], start[1]};
  std::printf("rank %d of %d is at step %lld after %d restarts\n", world.rank(), world.size(),
              static_cast<long long>(own.steps), colls::environment().restarts);
  std::fflush(stdout);

  while (own.steps < given.steps) {
    std::this_thread::sleep_for(std::chrono::milliseconds(given.pause));
    std::int64_t sum = world.rank() + own.steps;
    co_await world.all_reduce(std::span(&sum, 1));
    own.sum += sum;
    ++own.steps;
    if (world.rank() == 0 && own.steps % given.every == 0) write(given.checkpoint, own);
  }
  if (world.rank() == 0) {
    std::printf("the sum of %lld steps on %d ranks is %lld\n", static_cast<long long>(own.steps),
                world.size(), static_cast<long long>(own.sum));
  }
}

}  // namespace

int main(int argc, char** argv) {
  settings given;
  CLI::App app{"Adds up numbers, and goes on from a checkpoint after a restart."};
  app.add_option("--steps", given.steps, "number of steps")->check(CLI::NonNegativeNumber);
  app.add_option("--every", given.every, "steps between two checkpoints")
      ->check(CLI::PositiveNumber);
  app.add_option("--pause", given.pause, "milliseconds of work in a step")->check(CLI::Range(1000));
  app.add_option("--checkpoint", given.checkpoint, "file of the checkpoint");
  CLI11_PARSE(app, argc, argv);
  return colls::run([&](colls::world& world) { return work(world, given); });
}
