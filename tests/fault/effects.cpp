// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// What ranks are told has its effect, by every way in which it can be told.

#include "processes.hpp"

using namespace processes;
using colls::config;
using colls::errc;
using namespace std::chrono_literals;

namespace {

/// How a rank is told something: a variable of its environment, a field of the config beside an
/// environment that says the rest, or a config that says everything.
enum class way { variable, field, config_alone };

/// A value as each way writes it.
struct value {
  std::string variable;              // NAME=value
  std::function<void(config&)> set;  // writes the field
};

strings by_hand(int rank, int size, int port, const std::string& more) {
  strings all{"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
              "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port)};
  if (!more.empty()) all.push_back(more);
  return all;
}

/// Below the range from which the system draws ports for others.
int next_port() {
  static int which = 0;
  return 32000 + ::getpid() % 35 * 20 + which++;
}

/// A job of `size` ranks, each told `given`.
job told(way by, int size, const value& given, const job::rank_main& main) {
  config how;
  if (by != way::variable) given.set(how);
  if (by == way::config_alone) return {size, main, how};
  how.address = "env://";
  const int port = next_port();
  std::vector<strings> environments;
  for (int rank = 0; rank < size; ++rank) {
    environments.push_back(by_hand(rank, size, port, by == way::variable ? given.variable : ""));
  }
  return {environments, main, how};
}

constexpr way all_ways[] = {way::variable, way::field, way::config_alone};

}  // namespace

TEST_CASE("timeout: an operation ends after so long without a byte") {
  const value given{"COLLS_TIMEOUT=600ms", [](config& how) { how.timeout = 600ms; }};
  for (const way by : all_ways) {
    CAPTURE(static_cast<int>(by));
    job all = told(by, 2, given, [](colls::world& world, const line& test) -> task<> {
      if (world.rank() == 1) {
        test.hear();
        co_return;
      }
      test.say("waits");
      co_await world.barrier();
    });
    REQUIRE(all.hear(0) == "waits");
    const double began = now();
    const ending end = all.wait(0, 10);
    all.tell(1);
    CHECK(end.code == errc::timeout);
    CHECK(end.when - began > 0.4);
    CHECK(end.when - began < 5);
  }
}
