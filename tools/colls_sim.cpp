// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// colls-sim: runs one collective on a simulated network, prints its cost and checks its result.

#include "colls_sim/draw.hpp"
#include "colls_sim/run.hpp"
#include "colls_sim/trace.hpp"

#include <nlohmann/json.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>

namespace sim {
namespace {

double mib(double bytes) { return bytes / (1 << 20); }

double available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    double kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return 1e18;
}

// Also covers allocations in functions that must not throw.
void report_out_of_memory() {
  static constexpr auto exit_out_of_memory = [] {
    constexpr char line[] = "colls-sim: not enough memory for that\n";
    (void)!::write(2, line, sizeof line - 1);
    ::_exit(2);
  };
  std::set_new_handler(exit_out_of_memory);
  std::set_terminate([] {
    try {
      if (std::current_exception()) throw;
    } catch (const std::bad_alloc&) {
      exit_out_of_memory();
    } catch (...) {
    }
    std::abort();
  });
}

// Checks the memory that a rank needs without any call, and its buffers. A limit covers the memory
// that an algorithm allocates: the program then ends with a message and does not exhaust the
// machine.
void check_memory(const options& opts) {
  const double left = available_memory();
  const std::size_t element = size_of(opts.dtype);
  const double vector = static_cast<double>(opts.elements(element) * element);
  const double per_rank = 4096 + (opts.is_phantom() ? 0 : vector);
  if (per_rank * opts.ranks > left) {
    throw refusal(fmt::format("{} ranks need about {:.0f} MiB, and {:.0f} MiB of memory are free{}",
                              opts.ranks, mib(per_rank * opts.ranks), mib(left),
                              opts.is_phantom() || vector < 4096 ? "" : ": try --payload phantom"));
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(left * 0.95));
  if (::setrlimit(RLIMIT_AS, &limit) != 0) {
    throw refusal(fmt::format("cannot limit its memory: {}", std::strerror(errno)));
  }
  report_out_of_memory();
}

void check(const options& opts) {
  if (opts.ranks < 1) throw refusal("--ranks must be 1 or more");
  if (opts.root < 0 || opts.root >= opts.ranks) {
    throw refusal(fmt::format("--root {} is not in 0..{}", opts.root, opts.ranks - 1));
  }
  if (!opts.draw.empty() && (opts.ranks < 2 || opts.ranks > 32)) {
    throw refusal("--draw shows 2 to 32 ranks");
  }
  (void)opts.pinned_algorithm();
  const std::uint64_t n = opts.elements(size_of(opts.dtype));
  const bool is_even = n % static_cast<std::uint64_t>(opts.ranks) == 0;
  if (opts.is_phantom() && opts.operation() == colls::collective::all_to_all && !is_even) {
    throw refusal(
        "a phantom all_to_all needs a count that is a multiple of the ranks: different lengths are "
        "sent as data");
  }
  check_memory(opts);
}

constexpr std::size_t max_printed_failures = 8;

// Returns the exit status: 0 if every rank has the right result.
int simulate(const options& opts) {
  const auto begin = std::chrono::steady_clock::now();
  check(opts);
  const std::unique_ptr<job> work = make_job(opts);
  simulation done(opts, *work);
  int status = 0;
  std::size_t failures = 0;
  done.for_each_failure([&](const colls::failure& reason) {
    if (reason.code == colls::errc::not_applicable ||
        reason.code == colls::errc::invalid_argument) {
      throw refusal(reason.detail);
    }
    if (reason.code == colls::errc::not_enough_memory) throw std::bad_alloc();
    if (++failures <= max_printed_failures) std::fprintf(stderr, "%s\n", to_text(reason).c_str());
  });
  if (failures > max_printed_failures) {
    std::fprintf(stderr, "colls-sim: and %zu more ranks\n", failures - max_printed_failures);
  }
  if (const std::string stuck = done.stuck_report(); !stuck.empty()) {
    std::fprintf(stderr, "colls-sim: the ranks wait forever:\n%s", stuck.c_str());
  }
  const bool correct = done.has_succeeded() && (opts.is_phantom() || work->is_correct());
  if (!correct) status = 1;

  const colls::simulated_world& world = done.world();
  const double time_us = static_cast<double>(done.duration()) / 1e6;
  if (!opts.trace.empty()) {
    write_file(opts.trace, chrome_trace(world.trace(), opts.ranks, world.network().overhead()));
  }
  if (!opts.draw.empty()) {
    const std::uint64_t n = opts.elements(size_of(opts.dtype));
    picture drawn(world.trace(), *work, opts.ranks, world.time() - done.duration(),
                  fmt::format("{} {}: {} ranks, {} x {}, {:g} us, {} messages in {} rounds",
                              opts.collective, opts.algorithm, opts.ranks, n, opts.dtype, time_us,
                              world.messages(), world.rounds()));
    write_file(opts.draw, drawn.text());
  }
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  nlohmann::ordered_json line{{"time_us", time_us},
                              {"messages", world.messages()},
                              {"bytes_on_wire", world.bytes()},
                              {"rounds", world.rounds()},
                              {"wall_s", std::round(wall.count() * 1e3) / 1e3},
                              {"rss_mib", used.ru_maxrss / 1024},
                              {"verified", nullptr}};
  if (!opts.is_phantom() || !correct) line["verified"] = correct;
  return std::puts(line.dump().c_str()) < 0 ? 1 : status;
}

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  CLI::App app(
      "Runs one collective on a simulated network, prints its cost and checks its result.");
  sim::options opts;
  sim::declare(app, opts);
  const auto refuse = [](const char* reason) {
    std::fprintf(stderr, "colls-sim: %s\n", reason);
    return 2;
  };
  try {
    app.parse(argc, argv);
    return sim::simulate(opts);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& wrong) {
    return refuse(wrong.what());
  } catch (const std::bad_alloc&) {
    return refuse("not enough memory for that");
  } catch (const std::exception& wrong) {
    return refuse(wrong.what());
  }
}
