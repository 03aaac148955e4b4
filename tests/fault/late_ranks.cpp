// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// All ranks that wait name a rank that is late or has stopped, and the call in which it is. They
// name no rank that waits itself.

#include "processes.hpp"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <memory>

using namespace processes;
using colls::algorithm;
using colls::errc;
using namespace std::chrono_literals;

namespace {

/// Returns the culprit and the text of an error in one line.
std::string text_of(const colls::error& failed) {
  return std::to_string(failed.record().culprit) + " " + failed.what();
}

/// Returns the error of a call, or "".
task<std::string> outcome(colls::operation<> started) {
  std::string text;
  try {
    co_await started;
  } catch (const colls::error& failed) {
    const bool is_timeout = failed.code() == errc::timeout;
    text = is_timeout ? text_of(failed) : std::string("other: ") + failed.what();
  }
  co_return text;
}

/// Returns the ranks that an error names, without the rank that reports it, each once.
std::vector<int> named(const std::string& text) {
  std::vector<int> all;
  const std::string begin = "failed: timeout: ";
  const std::string end = ". Hint";
  const std::string part = text.substr(std::min(text.find(begin), text.size()), text.find(end));
  for (const std::string word : {"rank ", "ranks ", ", "}) {
    for (auto at = part.find(word); at != part.npos; at = part.find(word, at + 1)) {
      const char digit = part[std::min(at + word.size(), part.size() - 1)];
      if (std::isdigit(static_cast<unsigned char>(digit)) != 0) all.push_back(digit - '0');
    }
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

/// The timeout of the calls under test only, so that a slow machine fails no other call.
constexpr colls::options soon{.timeout = 1500ms};

colls::config by(const char* transport) {
  colls::config made;
  made.transport = transport;
  made.secret = "a secret";
  return made;
}

/// A call in which every rank waits for every other rank, or all ranks wait for one.
struct family {
  const char* operation;
  algorithm algo;
  colls::operation<> (*start)(colls::world&, std::vector<double>&, int late, const colls::options&);
};

colls::operation<> sum(colls::world& world, std::vector<double>& data, int,
                       const colls::options& opts) {
  return world.all_reduce(data, opts);
}
colls::operation<> meet(colls::world& world, std::vector<double>&, int,
                        const colls::options& opts) {
  return world.barrier(opts);
}
colls::operation<> send_to_all(colls::world& world, std::vector<double>& data, int late,
                               const colls::options& opts) {
  return world.broadcast(data, late, opts);
}
colls::operation<> collect(colls::world& world, std::vector<double>& data, int,
                           const colls::options& opts) {
  const auto size = static_cast<std::size_t>(world.size());
  const std::span all(data);
  return world.all_gather(all.first(10), all.subspan(10, 10 * size), opts);
}
colls::operation<> exchange(colls::world& world, std::vector<double>& data, int,
                            const colls::options& opts) {
  const auto size = static_cast<std::size_t>(world.size());
  const std::span all(data);
  return world.all_to_all(all.first(10 * size), all.subspan(100, 10 * size), opts);
}

constexpr family families[] = {
    {"all_reduce", algorithm::linear, sum},
    {"all_reduce", algorithm::ring, sum},
    {"all_reduce", algorithm::recursive_doubling, sum},
    {"all_reduce", algorithm::recursive_halving, sum},
    {"all_reduce", algorithm::double_tree, sum},
    {"all_reduce", algorithm::circulant, sum},
    {"all_reduce", algorithm::direct, sum},
    {"all_reduce", algorithm::automatic, sum},
    {"barrier", algorithm::dissemination, meet},
    {"barrier", algorithm::binomial_tree, meet},
    {"broadcast", algorithm::knomial_tree, send_to_all},
    {"broadcast", algorithm::chain, send_to_all},
    {"all_gather", algorithm::bruck, collect},
    {"all_to_all", algorithm::pairwise, exchange},
};

/// Runs each family on its own communicator, whose ranks are those of the world in reverse order.
/// All ranks make one call; then `late` processes no message until the others have failed in the
/// next call.
job::rank_main late_in_each(int late) {
  return [=](colls::world& world, const line& test) -> task<> {
    for (const family& each : families) {
      colls::world mine = co_await world.split(0, -world.rank());
      std::vector<double> data(4000, 1);
      const colls::options opts{.algorithm = each.algo, .timeout = 1500ms};
      const int root = world.size() - 1 - late;
      colls::operation<> first = world.barrier();
      co_await first;
      colls::operation<> before = sum(mine, data, root, {});
      co_await before;
      if (world.rank() == late) test.hear();
      task<std::string> call = outcome(each.start(mine, data, root, opts));
      const std::string failed = co_await call;
      test.say("said " + failed);
      if (world.rank() != late) test.hear();
    }
  };
}

void check(job& all, int late, const family& each) {
  const std::string late_rank = "rank " + std::to_string(late);
  for (int rank = 0; rank < all.size(); ++rank) {
    if (rank == late) continue;
    const std::string text = all.hear(rank, 60);
    CAPTURE(rank);
    CAPTURE(text);
    REQUIRE(contains(text, "said " + std::to_string(late) + " "));
    CHECK(contains(text, late_rank + " has not entered #2 " + each.operation));
    CHECK(contains(text, "; it has made no call since #1 all_reduce"));
    CHECK(named(text) == std::vector<int>{late});
  }
  all.tell(late);
  const std::string text = all.hear(late, 60);
  CAPTURE(text);
  for (int rank = 0; rank < all.size(); ++rank) {
    if (rank != late) all.tell(rank);
  }
  // The late rank may have received all that it needs before the others failed.
  if (text == "said ") return;
  CHECK(contains(text, "said " + std::to_string(late) + " "));
  CHECK(contains(text, "the others waited for this rank: " + late_rank + " has not entered #2"));
}

/// Checks that ranks 0 to 2 of four name rank 3 alone, in that sentence; then lets all go on.
void check_others(job& all, const char* sentence) {
  for (const int rank : {0, 1, 2}) {
    const std::string text = all.hear(rank);
    CAPTURE(rank);
    CAPTURE(text);
    CHECK(contains(text, "3 colls: rank "));
    CHECK(contains(text, sentence));
    CHECK(named(text) == std::vector<int>{3});
  }
  for (const int rank : {0, 1, 2, 3, 3}) all.tell(rank);
}

/// Sums over all ranks and returns the error, or "".
task<std::string> sum_of(colls::world& world, colls::options opts = {}) {
  std::vector<double> data(1000, 1);
  task<std::string> call = outcome(world.all_reduce(data, opts));
  std::string text = co_await call;
  co_return text;
}

}  // namespace

TEST_CASE("all ranks that wait name the late rank and no other, whatever the algorithm") {
  struct one {
    const char* transport;
    int late;
    std::unique_ptr<job> world;
  };
  // All at the same time, because in a row they take minutes.
  std::vector<one> all;
  for (const int size : {2, 3, 5, 8}) {
    for (const char* const transport : transports()) {
      for (const int late : {size / 2, size - 1}) {
        all.push_back(
            {transport, late, std::make_unique<job>(size, late_in_each(late), by(transport))});
      }
    }
  }
  for (const family& each : families) {
    CAPTURE(std::string(each.operation));
    CAPTURE(std::string(name(each.algo)));
    for (const one& tried : all) {
      CAPTURE(std::string(tried.transport));
      CAPTURE(tried.world->size());
      CAPTURE(tried.late);
      check(*tried.world, tried.late, each);
    }
  }
}

TEST_CASE("of several late ranks the lowest is named, and the others beside it") {
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    job all(
        6,
        [](colls::world& world, const line& test) -> task<> {
          co_await world.barrier();
          const int rank = world.rank();
          if (rank == 1 || rank == 3 || rank == 4) test.hear();
          task<std::string> call = sum_of(world, {.algorithm = algorithm::ring, .timeout = 1500ms});
          const std::string text = co_await call;
          test.say(text);
        },
        by(transport));
    for (const int rank : {0, 2, 5}) {
      const std::string text = all.hear(rank);
      CAPTURE(rank);
      CAPTURE(text);
      CHECK(contains(text,
                     "rank 1 has not entered #2 all_reduce; it has made no call since "
                     "#1 barrier; no"));
      // Which rank waits for rank 3 to send or to receive depends on the transport.
      CHECK((contains(text, "; nor have ranks 3, 4; ") ||
             contains(text, "; nor has rank 4; nothing was heard of rank 3; ")));
    }
    for (const int rank : {1, 3, 4}) all.tell(rank);
  }
}

// Rank 4 waits for rank 5. Rank 3, and in the second case also the rank that received its part,
// have ended the call and answer no more.
TEST_CASE("a rank that has done its part and computes is not late") {
  for (const char* const transport : transports()) {
    for (const bool parent_computes : {false, true}) {
      CAPTURE(std::string(transport));
      CAPTURE(parent_computes);
      job all(
          8,
          [=](colls::world& world, const line& test) -> task<> {
            co_await world.barrier();
            const int rank = world.rank();
            std::vector<double> data(1000, 1);
            std::vector<double> sums(1000);
            if (rank == 5) test.hear();
            task<std::string> call =
                outcome(world.reduce(data, sums, 0, colls::plus{},
                                     {.algorithm = algorithm::binomial_tree, .timeout = 2s}));
            std::string text = co_await call;
            if (rank == 3 || (parent_computes && rank == 2)) test.hear();
            if (text.empty()) {
              task<std::string> next = outcome(world.barrier({.timeout = 30s}));
              text = co_await next;
            }
            test.say(text);
          },
          by(transport));
      for (const int rank : {0, 1, 2, 4, 6, 7}) {
        if (parent_computes && rank == 2) continue;
        const std::string text = all.hear(rank);
        CAPTURE(rank);
        CAPTURE(text);
        CHECK(contains(text,
                       "rank 5 has not entered #2 reduce; it has made no call since #1 barrier"));
        CHECK(named(text) == std::vector<int>{5});
      }
      for (const int rank : {2, 3, 5}) all.tell(rank);
    }
  }
}

TEST_CASE("a late rank that waits elsewhere says where, and of two crossed calls both are named") {
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    job all(
        3,
        [](colls::world& world, const line& test) -> task<> {
          colls::world one = co_await world.dup();
          colls::world other = co_await world.dup();
          co_await world.barrier();
          // Rank 2 waits for a message; rank 1 crosses the order of the calls, and gives up first.
          std::vector<double> data(10);
          task<std::string> call;
          if (world.rank() == 0) call = outcome(one.barrier({.timeout = 1700ms}));
          if (world.rank() == 1) call = outcome(other.barrier(soon));
          if (world.rank() == 2) {
            try {
              co_await world.recv(data, 0, 7);
            } catch (const colls::error&) {
            }
            test.hear();
            co_return;
          }
          const std::string text = co_await call;
          // Rank 1 still answers when rank 0 gives up.
          auto& driver = world.net().driver();
          if (world.rank() == 1) co_await driver.sleep_until(driver.now() + colls::seconds);
          test.say(text);
          test.hear();
        },
        by(transport));
    const std::string of_zero = all.hear(0);
    const std::string of_one = all.hear(1);
    CAPTURE(of_zero);
    CAPTURE(of_one);
    CHECK(contains(of_zero, "barrier #1 on communicator"));
    CHECK(contains(of_zero,
                   "rank 1 has not entered #1 barrier; it is at #1 barrier on communicator"));
    CHECK(contains(of_zero, ", which has failed; nor has rank 2"));
    CHECK(
        contains(of_one, "rank 0 has not entered #1 barrier; it is at #1 barrier on communicator"));
    for (const int rank : {0, 1, 2}) all.tell(rank);
  }
}

TEST_CASE("a rank that waits in an earlier call is not late, the rank that it waits for is") {
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    job all(
        4,
        [](colls::world& world, const line& test) -> task<> {
          std::vector<double> data(10);
          std::vector<double> whole(40);
          co_await world.barrier();
          if (world.rank() == 3) test.hear();
          // Rank 0 waits there for rank 3; ranks 1 and 2 have done their part.
          colls::operation<> first = world.gather(data, whole, 0, {.algorithm = algorithm::linear});
          task<std::string> call = outcome(world.barrier(soon));
          const std::string text = co_await call;
          test.say(text);
          test.hear();
        },
        by(transport));
    check_others(all, "rank 3 has not entered #2 gather; it has made no call since #1 barrier");
  }
}

TEST_CASE("a stopped rank is named: before its call, and inside of it") {
  for (const char* const transport : transports()) {
    for (const bool inside : {false, true}) {
      CAPTURE(std::string(transport));
      CAPTURE(inside);
      const bool one_host = transport == std::string("hybrid");
      job all(
          4,
          [=](colls::world& world, const line& test) -> task<> {
            co_await world.barrier();
            test.say("ready");
            if (world.rank() == 3 || (world.rank() == 2 && !inside)) test.hear();
            // Time for a slow machine to start rank 3 and for that rank to wait for rank 2.
            const auto limit = inside ? 4000ms : 1500ms;
            task<std::string> call =
                sum_of(world, {.algorithm = algorithm::ring, .timeout = limit});
            if (world.rank() == 3) test.say("goes on");
            const std::string text = co_await call;
            test.say(text);
          },
          by(transport));
      REQUIRE(all.all_say("ready"));
      // Until then all ranks have waited for rank 3 and announced that to each other.
      if (inside) ::usleep(500'000);
      all.stop(2);
      all.tell(3);
      CHECK(all.hear(3) == "goes on");
      for (const int rank : {0, 1, 3}) {
        const std::string text = all.hear(rank);
        CAPTURE(rank);
        CAPTURE(text);
        CHECK(contains(text, "2 colls: rank "));
        if (inside) {
          CHECK(contains(text, "rank 2 entered #2 all_reduce and has been silent for "));
        } else {
          CHECK(contains(text,
                         "rank 2 has not entered #2 all_reduce; it has made no call since "
                         "#1 barrier"));
        }
        if (one_host) CHECK(contains(text, ", and is stopped; options.timeout is over"));
        CHECK(named(text) == std::vector<int>{2});
      }
      all.go_on(2);
      if (!inside) all.tell(2);
      const std::string text = all.hear(2);
      CAPTURE(text);
      CHECK((text.empty() || contains(text, "2 colls: rank 2: ")));
    }
  }
}

TEST_CASE("a rank that stops in the middle of its message is named, whatever takes the message") {
  constexpr const char* calls[] = {"recv", "send_recv", "gather"};
  for (const char* const transport : transports()) {
    for (const char* const call : calls) {
      CAPTURE(std::string(transport));
      CAPTURE(std::string(call));
      const std::string what = call;
      job all(
          3,
          [=](colls::world& world, const line& test) -> task<> {
            co_await world.barrier();
            constexpr std::size_t count = std::size_t{128} << 20;
            std::vector<char> data(world.rank() == 2 || what == "gather" ? count : 1);
            std::vector<char> came(world.rank() == 0 ? (what == "gather" ? 3 * count : count) : 1);
            if (world.rank() != 0) {
              constexpr colls::options opts{.algorithm = algorithm::linear};
              try {
                if (what == "gather") {
                  co_await world.gather(data, came, 0, opts);
                } else if (world.rank() == 2) {
                  co_await world.send(data, 0, 5);
                } else if (what == "send_recv") {
                  co_await world.recv(data, 0, 5);
                }
              } catch (const colls::error&) {
              }
              test.hear();
              co_return;
            }
            // Parts of the message come; then rank 2 is stopped while this rank polls nothing.
            std::string text;
            const auto take = [&](auto started) -> task<> {
              for (int turn = 0; turn < 10; ++turn) {
                CHECK_FALSE(started.done());
                ::usleep(1000);
              }
              test.say("has begun");
              test.hear();
              try {
                co_await started;
              } catch (const colls::error& failed) {
                text = text_of(failed);
              }
            };
            if (what == "gather") {
              constexpr colls::options opts{.algorithm = algorithm::linear, .timeout = 1500ms};
              colls::operation<> started = world.gather(data, came, 0, opts);
              co_await take(std::move(started));
            } else {
              colls::operation<colls::received> started =
                  what == "recv" ? world.recv(came, 2, 5, soon)
                                 : world.send_recv(data, 1, came, 2, 5, soon);
              co_await take(std::move(started));
            }
            test.say(text);
          },
          by(transport));
      CHECK(all.hear(0) == "has begun");
      all.stop(2);
      all.tell(0);
      const std::string text = all.hear(0);
      CAPTURE(text);
      CHECK(contains(text, "2 colls: rank 0: "));
      CHECK(contains(text, what == "gather"
                               ? "rank 2 entered #2 gather and has been silent for "
                               : "rank 2 has not sent tag 5; nothing was heard of it "));
      CHECK(named(text) == std::vector<int>{2});
      all.go_on(2);
      for (const int rank : {1, 2}) all.tell(rank);
    }
  }
}

TEST_CASE("a rank that enters just before the deadline is not named, the late rank is") {
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    for (int attempts = 5;; --attempts) {
      job all(
          4,
          [](colls::world& world, const line& test) -> task<> {
            std::vector<double> began{now()};
            co_await world.all_reduce(began, colls::maximum{});
            const double deadline = began[0] + 2;
            if (world.rank() == 3) test.hear();
            // Until then rank 1 answers that it has not entered the call.
            std::vector<int> word(1);
            while (world.rank() == 1 && now() < deadline - 0.05) {
              colls::operation<> sending = world.send(word, 1, 9);
              co_await world.recv(word, 1, 9);
              co_await sending;
            }
            if (world.rank() == 1) test.say(now() < deadline - 0.03 ? "in time" : "too late");
            const std::chrono::duration<double> left(deadline - now());
            const auto limit = world.rank() == 1
                                   ? 60s
                                   : std::chrono::duration_cast<std::chrono::nanoseconds>(left);
            task<std::string> call =
                sum_of(world, {.algorithm = algorithm::linear, .timeout = limit});
            const std::string text = co_await call;
            test.say(text);
            test.hear();
          },
          by(transport));
      // On a busy machine rank 1 may sleep until the deadline is over.
      const bool in_time = all.hear(1) == "in time";
      if (in_time) {
        check_others(all, "rank 3 has not entered #2 all_reduce");
        break;
      }
      REQUIRE(attempts > 1);
      for (const int rank : {0, 1, 2}) {
        all.hear(rank);
        all.tell(rank);
      }
      for (int i = 0; i < 2; ++i) all.tell(3);
    }
  }
}

TEST_CASE("a receive and a send name the rank whose message is missing, and where it is") {
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    job all(
        3,
        [](colls::world& world, const line& test) -> task<> {
          co_await world.barrier();
          std::vector<double> data(10);
          std::vector<double> large(100'000);
          if (world.rank() == 1) {
            try {
              co_await world.recv(data, 2, 7, {.timeout = 1s});
            } catch (const colls::error& failed) {
              test.say(failed.what());
            }
            test.hear();
          } else if (world.rank() == 2) {
            test.hear();
          } else {
            for (int i = 0; i < 3; ++i) {
              std::string text;
              const colls::options at_once{.timeout = 500ms};
              try {
                if (i == 0) co_await world.recv(data, 1, 5, at_once);
                if (i == 1) co_await world.recv(data, colls::any_source, 6, at_once);
                if (i == 2) {
                  colls::operation<> sent = world.send(large, 2, 3, at_once);
                  co_await sent;
                }
              } catch (const colls::error& failed) {
                text = failed.what();
              }
              test.say(text);
            }
          }
        },
        by(transport));
    const std::string first = all.hear(0);
    CAPTURE(first);
    CHECK(contains(first,
                   "timeout: rank 1 has not sent tag 5; it is at recv with tag 7; "
                   "options.timeout is over"));
    CHECK(contains(all.hear(0), "timeout: no rank has sent tag 6; options.timeout is over"));
    const std::string third = all.hear(0);
    CAPTURE(third);
    CHECK(
        contains(third, "timeout: rank 2 has not received tag 3; nothing was heard of it for 0."));
    CHECK(contains(third, "; 0 of 800000 bytes done"));
    const std::string other = all.hear(1);
    CAPTURE(other);
    CHECK(contains(other, "timeout: rank 2 has not sent tag 7; nothing was heard of it for "));
    for (const int rank : {1, 2}) all.tell(rank);
  }
}

#ifndef SANITIZED  // it would only wait
TEST_CASE("after 30 s the waiting ranks log which rank is late, and where it is") {
  std::vector<std::unique_ptr<job>> jobs;
  for (const char* const transport : transports()) {
    jobs.push_back(std::make_unique<job>(
        4,
        [](colls::world& world, const line& test) -> task<> {
          co_await world.barrier();
          if (world.rank() == 1) test.hear();
          task<std::string> call = sum_of(world, {.algorithm = algorithm::ring});
          const std::string text = co_await call;
          test.say("ended " + text);
        },
        by(transport)));
  }
  // Many messages to one rank are logged in one line. Of two collectives the second has its own
  // line once the first has ended.
  job many(
      2,
      [](colls::world& world, const line& test) -> task<> {
        co_await world.barrier();
        std::vector<int> data(20'000);
        if (world.rank() == 1) {
          test.hear();
          co_await world.broadcast(std::span(data).first(1000), 1);
          test.hear();
          int tag = 0;
          for (int& each : data) co_await world.recv(std::span(&each, 1), 0, tag++);
          co_await world.barrier();
          co_return;
        }
        std::vector<colls::operation<>> all;
        int tag = 0;
        for (int& each : data) all.push_back(world.send(std::span(&each, 1), 1, tag++));
        std::vector<int> other(1000);
        all.push_back(world.broadcast(other, 1));
        all.push_back(world.barrier());
        for (colls::operation<>& each : all) co_await each;
      },
      by("hybrid"));
  const auto check_line = [&](const std::string& expected) {
    const double until = now() + 45;
    while (!contains(many.log(0), expected) && now() < until) ::usleep(10'000);
    CHECK(contains(many.log(0), expected));
    CHECK(count(many.log(0), expected) == 1);
  };
  for (const auto& each : jobs) {
    for (const int rank : {0, 2, 3}) {
      const std::string expected =
          "rank " + std::to_string(rank) +
          " has waited 30 s in all_reduce #2: rank 1 has not entered #2 all_reduce; it has made no "
          "call since #1 barrier\n";
      const double until = now() + 45;
      while (!contains(each->log(rank), "has waited") && now() < until) ::usleep(10'000);
      CHECK(contains(each->log(rank), expected));
      CHECK(count(each->log(rank), "has waited") == 1);
    }
    each->tell(1);
    for (int rank = 0; rank < 4; ++rank) CHECK(each->wait(rank).status == 0);
  }
  check_line(" more messages): rank 1 has not received tag ");
  check_line("has waited 30 s in broadcast #2: rank 1 has not entered #2 broadcast");
  CHECK(count(many.log(0), "has waited") == 2);
  many.tell(1);
  check_line("has waited 30 s in barrier #3: rank 1 has not entered #3 barrier");
  many.tell(1);
  for (const int rank : {0, 1}) CHECK(many.wait(rank).status == 0);
}
#endif
