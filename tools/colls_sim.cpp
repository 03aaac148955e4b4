// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// colls-sim: one collective on a simulated network: what it costs, and whether its result is right.

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

// Where nothing may throw, too.
void say_when_out_of_memory() {
  static constexpr auto give_up = [] {
    constexpr char line[] = "colls-sim: not enough memory for that\n";
    (void)!::write(2, line, sizeof line - 1);
    ::_exit(2);
  };
  std::set_new_handler(give_up);
  std::set_terminate([] {
    try {
      if (std::current_exception()) throw;
    } catch (const std::bad_alloc&) {
      give_up();
    } catch (...) {
    }
    std::abort();
  });
}

// What a rank needs even if it does nothing, and its buffers. Whatever else an algorithm takes
// meets the limit, and fails with a word instead of taking the machine with it.
void check_memory(const options& how) {
  const double left = available_memory();
  const double vector = static_cast<double>(how.elements(size_of(how.dtype)) * size_of(how.dtype));
  const double each = 4096 + (how.is_phantom() ? 0 : vector);
  if (each * how.ranks > left) {
    throw refusal(fmt::format("{} ranks need about {:.0f} MiB, and {:.0f} MiB of memory are free{}",
                              how.ranks, mib(each * how.ranks), mib(left),
                              how.is_phantom() || vector < 4096 ? "" : ": try --payload phantom"));
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(left * 0.95));
  if (::setrlimit(RLIMIT_AS, &limit) != 0) {
    throw refusal(fmt::format("cannot limit its memory: {}", std::strerror(errno)));
  }
  say_when_out_of_memory();
}

void check(const options& how) {
  if (how.ranks < 1) throw refusal("--ranks must be 1 or more");
  if (how.root < 0 || how.root >= how.ranks) {
    throw refusal(fmt::format("--root {} is not in 0..{}", how.root, how.ranks - 1));
  }
  if (!how.draw.empty() && (how.ranks < 2 || how.ranks > 32)) {
    throw refusal("--draw shows 2 to 32 ranks");
  }
  (void)how.how();
  const std::uint64_t n = how.elements(size_of(how.dtype));
  const bool is_even = n % static_cast<std::uint64_t>(how.ranks) == 0;
  if (how.is_phantom() && how.what() == colls::collective::all_to_all && !is_even) {
    throw refusal(
        "a phantom all_to_all needs a count that is a multiple of the ranks: lengths that "
        "differ are told in messages");
  }
  check_memory(how);
}

constexpr std::size_t most_told = 8;  // of the ranks whose calls failed

// Exit status: 0 if all went well.
int simulate(const options& how) {
  const auto begin = std::chrono::steady_clock::now();
  check(how);
  const std::unique_ptr<job> what = make_job(how);
  simulation done(how, *what);
  int status = 0;
  std::size_t failures = 0;
  done.each_failure([&](const colls::failure& why) {
    if (why.code == colls::errc::not_applicable || why.code == colls::errc::invalid_argument) {
      throw refusal(why.detail);
    }
    if (why.code == colls::errc::not_enough_memory) throw std::bad_alloc();
    if (++failures <= most_told) std::fprintf(stderr, "%s\n", to_text(why).c_str());
  });
  if (failures > most_told) {
    std::fprintf(stderr, "colls-sim: and %zu more ranks\n", failures - most_told);
  }
  if (const std::string stuck = done.stuck(); !stuck.empty()) {
    std::fprintf(stderr, "colls-sim: nothing will ever happen:\n%s", stuck.c_str());
  }
  const bool right = done.is_whole() && (how.is_phantom() || what->is_right());
  if (!right) status = 1;

  const colls::simulated_world& world = done.world();
  const double time_us = static_cast<double>(done.duration()) / 1e6;
  if (!how.trace.empty()) {
    write_file(how.trace, chrome_trace(world.trace(), how.ranks, world.wires().overhead()));
  }
  if (!how.draw.empty()) {
    const std::uint64_t n = how.elements(size_of(how.dtype));
    picture drawn(world.trace(), *what, how.ranks, world.time() - done.duration(),
                  fmt::format("{} {}: {} ranks, {} x {}, {:g} us, {} messages in {} rounds",
                              how.collective, how.algorithm, how.ranks, n, how.dtype, time_us,
                              world.messages(), world.rounds()));
    write_file(how.draw, drawn.text());
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
  if (!how.is_phantom() || !right) line["verified"] = right;
  return std::puts(line.dump().c_str()) < 0 ? 1 : status;
}

}  // namespace
}  // namespace sim

int main(int argc, char** argv) {
  CLI::App app(
      "Runs one collective on a simulated network: what it costs, and whether it is right.");
  sim::options how;
  sim::declare(app, how);
  const auto refuse = [](const char* why) {
    std::fprintf(stderr, "colls-sim: %s\n", why);
    return 2;
  };
  try {
    app.parse(argc, argv);
    return sim::simulate(how);
  } catch (const CLI::Success& asked) {
    return app.exit(asked);
  } catch (const CLI::ParseError& wrong) {
    return refuse(wrong.what());
  } catch (const std::bad_alloc&) {
    return refuse("not enough memory for that");
  } catch (const std::exception& wrong) {
    return refuse(wrong.what());
  }
}
