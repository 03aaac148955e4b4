// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/call/communicator_core.hpp>

#include "../support/communicators.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <span>
#include <stdexcept>
#include <string>

// What a communicator does with many calls, with messages between two ranks, and with errors.

namespace {

using colls::algorithm;
using colls::errc;
using colls::operation;
using colls::received;
using colls::task;
using colls::inproc::communicator;

TEST_CASE("messages of one tag arrive in order, different tags do not match") {
  communicators all(2);
  std::vector<std::vector<int>> sent;
  std::vector<std::vector<int>> got(40, std::vector<int>(30'000));
  std::vector<operation<>> sends;
  std::vector<operation<received>> receives;
  for (int i = 0; i < 40; ++i)
    sent.emplace_back(static_cast<std::size_t>(i % 3 == 0 ? 30'000 : i), i);
  for (int i = 0; i < 40; ++i)
    sends.push_back(all[0].send(sent[static_cast<std::size_t>(i)], 1, i % 4));
  // Receives are posted from the last tag to the first, and in order within each tag.
  for (int tag = 3; tag >= 0; --tag) {
    for (int i = tag; i < 40; i += 4)
      receives.push_back(all[1].recv(got[static_cast<std::size_t>(i)], 0, tag));
  }
  for (auto& each : receives) CHECK(all.wait(each).source == 0);
  for (auto& each : sends) all.wait(each);
  for (std::size_t i = 0; i < 40; ++i) {
    got[i].resize(sent[i].size());
    CHECK(got[i] == sent[i]);
  }
  all.check_good();
}

TEST_CASE("any source takes what came first; named sources take their own") {
  communicators all(4);
  std::vector<int> from[4] = {{0}, {1}, {2}, {3}};
  std::vector<int> into(1);
  for (const int rank : {2, 1, 3, 1}) all.wait(all[rank].send(from[rank], 0, 7));
  CHECK(all.wait(all[0].recv(into, 1, 7)).source == 1);
  for (const int rank : {2, 3, 1}) {
    const received got = all.wait(all[0].recv(into, colls::any_source, 7));
    CHECK(got.source == rank);
    CHECK(got.count == 1);
    CHECK(into[0] == rank);
  }
  // Receives that are posted before a message arrives match in posting order.
  std::vector<int> first(1);
  std::vector<int> second(1);
  operation<received> any = all[0].recv(first, colls::any_source);
  operation<received> named = all[0].recv(second, 2);
  operation<received> rest = all[0].recv(into, colls::any_source);
  all.wait(all[2].send(from[2], 0));
  all.wait(all[3].send(from[3], 0));
  all.wait(all[2].send(from[1], 0));
  CHECK(all.wait(any).source == 2);
  CHECK(all.wait(named).source == 2);
  CHECK(all.wait(rest).source == 3);
  CHECK((first[0] == 2 && second[0] == 1 && into[0] == 3));
}

TEST_CASE("messages may be empty, shorter than the buffer, and to oneself; too long is truncated") {
  communicators all(2);
  std::vector<int> nothing;
  std::vector<int> data{1, 2, 3};
  std::vector<int> into(2, 9);
  all.wait(all[0].send(nothing, 1));
  CHECK(all.wait(all[1].recv(into, 0)).count == 0);
  all.wait(all[0].send(nothing, 1));
  CHECK(all.wait(all[1].recv(nothing, 0)).count == 0);
  CHECK(into[0] == 9);
  operation<received> posted = all[0].recv(into, 0, 5);
  all.wait(all[0].send(std::span(data).first(1), 0, 5));
  CHECK(all.wait(posted).count == 1);
  CHECK(into == std::vector<int>{1, 9});

  operation<> send = all[0].send(data, 1, 6);
  operation<received> recv = all[1].recv(into, colls::any_source, 6);
  const colls::failure why = failure_of(all, recv);
  CHECK(why.code == errc::truncated);
  CHECK(says(why, "the message with tag 6 has 12 bytes, the buffer 8"));
  CHECK(why.operation == colls::collective::recv);
  CHECK(why.observer == 1);
  CHECK(why.culprit == 0);
  CHECK(into == std::vector<int>{1, 9});
  all.wait(send);
  all.check_good();

  const char odd[3] = {1, 2, 3};
  all.wait(all[0].send(odd, 1));
  operation<received> full = all[1].recv(into, 0);
  CHECK(failure_of(all, full).code == errc::mismatch);
  CHECK(says(full.reason(), "a message of 3 bytes with tag 0 came for elements of 4 bytes"));
  CHECK(all[1].failed() == nullptr);

  std::vector<int> both(3);
  CHECK(all.wait(all[1].send_recv(data, 1, both, 1, 2)).source == 1);
  CHECK(both == data);
}

TEST_CASE("both ranks send and receive long messages at once") {
  colls::inproc::run(5, [](communicator& comm) -> task<> {
    const int me = comm.rank();
    const std::vector<int> out(200'000, me);
    std::vector<int> in(200'000);
    for (int step = 1; step < comm.size(); ++step) {
      const int dest = (me + step) % comm.size();
      const int source = (me + comm.size() - step) % comm.size();
      CHECK((co_await comm.send_recv(out, dest, in, source, step)).source == source);
      CHECK(in.back() == source);
    }
  });
}

TEST_CASE("a message to or from a rank that has closed ends with closed, and names it") {
  for (const bool closes_later : {true, false}) {
    CAPTURE(closes_later);
    for (const int variant : {0, 1, 2, 3}) {
      CAPTURE(variant);
      communicators all(3);
      std::vector<int> data(10);
      std::vector<int> large(100'000);
      const auto check = [&](auto start) {
        if (!closes_later) all[1] = {};
        auto started = start();
        if (closes_later) all.settle();
        if (closes_later) all[1] = {};
        const colls::failure why = failure_of(all, started);
        CHECK(why.code == errc::closed);
        CHECK(why.culprit == 1);
        CHECK(says(why, "rank 1 has closed the communicator"));
      };
      if (variant == 0) check([&] { return all[0].recv(data, 1, 4); });
      if (variant == 1) check([&] { return all[0].send(large, 1, 4); });
      if (variant == 2) check([&] { return all[0].broadcast(data, 1); });
      if (variant == 3) check([&] { return all[0].all_reduce(data); });
    }
  }
}

TEST_CASE("what was sent before the sender closed is received after it") {
  communicators all(2);
  std::vector<int> data{1, 2, 3};
  std::vector<int> into(3);
  all.wait(all[0].send(data, 1));
  all[0] = {};
  CHECK(all.wait(all[1].recv(into, 0)).count == 3);
  CHECK(into == data);
}

struct throwing {
  static constexpr bool commutative = true;
  int limit;
  int operator()(int a, int b) const {
    if (a + b > limit) throw std::runtime_error("more than the limit");
    return a + b;
  }
};

TEST_CASE("an operation of the user that throws ends the call on all ranks") {
  using call = operation<> (*)(communicator&, std::vector<int>&, std::vector<int>&);
  const call calls[] = {
      [](auto& c, auto& a, auto&) { return c.all_reduce(a, throwing{3}); },
      [](auto& c, auto& a, auto&) {
        return c.template all_reduce<algorithm::direct>(a, throwing{3});
      },
      [](auto& c, auto& a, auto&) {
        return c.template all_reduce<algorithm::ring>(a, throwing{3});
      },
      [](auto& c, auto& a, auto&) {
        return c.template all_reduce<algorithm::linear>(a, throwing{3});
      },
      [](auto& c, auto& a, auto&) { return c.reduce(a, 2, throwing{3}); },
      [](auto& c, auto& a, auto& b) { return c.reduce_scatter(a, b, throwing{3}); },
      [](auto& c, auto& a, auto& b) {
        return c.template reduce_scatter<algorithm::linear>(a, b, throwing{3});
      },
      [](auto& c, auto& a, auto&) { return c.scan(a, throwing{3}); },
      [](auto& c, auto& a, auto&) { return c.template exscan<algorithm::linear>(a, throwing{3}); },
      [](auto& c, auto& a, auto&) { return c.exscan(a, throwing{3}); },
  };
  int number = 0;
  for (const call& each : calls) {
    CAPTURE(number++);
    for (const int p : {3, 4, 5}) {
      CAPTURE(p);
      communicators all(p);
      std::vector<std::vector<int>> in(static_cast<std::size_t>(p));
      std::vector<std::vector<int>> out(in.size(), std::vector<int>(8));
      std::vector<operation<>> kept;
      for (int rank = 0; rank < p; ++rank) {
        auto& mine = in[static_cast<std::size_t>(rank)];
        mine.assign(8 * in.size(), 2);
        kept.push_back(each(all[rank], mine, out[static_cast<std::size_t>(rank)]));
      }
      int culprit = -1;
      for (int rank = 0; rank < p; ++rank) {
        colls::failure why = failure_of(all, kept[static_cast<std::size_t>(rank)]);
        if (why.code == errc{}) {
          operation<> later = all[rank].barrier();
          why = failure_of(all, later);
        }
        CHECK(why.code == errc::user_op_failed);
        CHECK(says(why, "more than the limit"));
        if (culprit < 0) culprit = why.culprit;
        CHECK(why.culprit == culprit);
      }
    }
  }
}

struct finishing {
  static constexpr bool commutative = true;
  int operator()(int a, int b) const { return a + b; }
  int finish(int, int) const { throw 5; }
};

TEST_CASE("a prepare or finish that throws is an error too") {
  communicators all(2);
  std::vector<int> one{1};
  std::vector<int> two{1};
  operation<> first = all[0].all_reduce(one, finishing{});
  operation<> second = all[1].all_reduce(two, finishing{});
  CHECK(failure_of(all, first).code == errc::user_op_failed);
  const errc other = failure_of(all, second).code;
  CHECK(other == errc::user_op_failed);
}

TEST_CASE("revoking a communicator gives all ranks the reason") {
  communicators all(3);
  std::vector<int> data(5);
  operation<> waiting = all[1].all_reduce(data);
  all[2].revoke("the input file is broken");
  all[0].revoke("too late");
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(all[rank].failed() != nullptr);
    CHECK(all[rank].failed()->code == errc::revoked);
    CHECK(all[rank].failed()->culprit == 2);
    CHECK(says(*all[rank].failed(), "the input file is broken"));
  }
  CHECK(failure_of(all, waiting).code == errc::revoked);
}

TEST_CASE("run rethrows the first error, and no rank waits for one that has left") {
  const auto rank_main = [](communicator& comm) -> task<> {
    co_await comm.barrier();
    if (comm.rank() == 2) throw std::runtime_error("rank 2 gives up");
    co_await comm.barrier();
  };
  CHECK_THROWS_WITH_AS(colls::inproc::run(4, rank_main), "rank 2 gives up", std::runtime_error);
  std::string received_text;
  const auto throws_a_number = [&](communicator& comm) -> task<> {
    if (comm.rank() == 1) throw 7;
    try {
      co_await comm.barrier();
    } catch (const colls::error& thrown) {
      received_text = thrown.record().detail;
      throw;
    }
  };
  CHECK_THROWS_AS(colls::inproc::run(2, throws_a_number), int);
  CHECK(received_text == "a rank's main threw something that is no std::exception");
  // A main function may move the communicator away, or return early.
  colls::inproc::run(2, [](communicator& comm) -> task<> {
    communicator mine = std::move(comm);
    co_await mine.barrier();
  });
  colls::inproc::run(2, [](communicator& comm) -> task<> {
    std::vector<int> data(3, comm.rank());
    if (comm.rank() == 0) co_await comm.send(data, 1);
    if (comm.rank() == 1) co_await comm.recv(data, 0);
  });
}

TEST_CASE(
    "if all ranks match but one that calls something else, all end and both calls are named") {
  using call = operation<> (*)(communicator&, std::vector<int>&);
  const call matching_call = [](auto& c, auto& a) {
    return c.template all_reduce<algorithm::direct>(a);
  };
  const call others[] = {
      [](auto& c, auto&) { return c.template barrier<algorithm::direct>(); },
      [](auto& c, auto& a) {
        return c.template all_reduce<algorithm::direct>(std::span(a).first(2));
      },
      [](auto& c, auto& a) {
        return c.template all_reduce<algorithm::direct>(a, colls::maximum{});
      },
      [](auto& c, auto& a) { return c.template all_reduce<algorithm::ring>(a); },
      [](auto& c, auto& a) { return c.broadcast(a, c.rank()); },
      // This call waits for a message, and reports its wait after 100 ms.
      [](auto& c, auto& a) { return c.broadcast(a, (c.rank() + 1) % 3); },
  };
  int number = 0;
  for (const call& differing : others) {
    CAPTURE(number++);
    for (const int first : {0, 1, 2}) {
      for (const int other : {0, 2}) {
        communicators all(3);
        std::vector<int> data[3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
        std::vector<operation<>> kept;
        for (int i = 0; i < 3; ++i) {
          const int rank = (first + i) % 3;
          kept.push_back((rank == other ? differing : matching_call)(all[rank], data[rank]));
        }
        for (operation<>& each : kept) {
          const colls::failure why = failure_of(all, each);
          if (why.code == errc{}) continue;  // a root that only had to send
          CHECK(why.code == errc::mismatch);
          CHECK(says(why, "rank " + std::to_string(other) + " called"));
          CHECK(says(why, "called all_reduce of 3 x int32"));
        }
        for (int rank = 0; rank < 3; ++rank) CHECK(all[rank].failed() != nullptr);
      }
    }
  }
}

TEST_CASE("a call that one rank omits ends by its deadline or as that rank closes, and names it") {
  using call = operation<> (*)(communicator&, std::vector<int>&, const colls::options&);
  const call calls[] = {
      [](auto& c, auto& a, auto& opts) { return c.all_reduce(a, opts); },
      [](auto& c, auto&, auto& opts) { return c.barrier(opts); },
  };
  for (const call& each : calls) {
    for (const int late : {0, 1, 2}) {
      for (const bool leaves : {false, true}) {
        communicators all(3);
        std::vector<int> data[3] = {{1}, {2}, {3}};
        colls::options opts{.algorithm = algorithm::direct};
        if (!leaves) opts.timeout = std::chrono::milliseconds(20);
        std::vector<operation<>> kept;
        for (int rank = 0; rank < 3; ++rank) {
          if (rank != late) kept.push_back(each(all[rank], data[rank], opts));
        }
        if (leaves) all.wait(all[late].close());
        for (operation<>& waiting : kept) {
          const colls::failure why = failure_of(all, waiting);
          CHECK(why.code == (leaves ? errc::closed : errc::timeout));
          CHECK(why.culprit == late);
          if (leaves) continue;
          CHECK(why.waited_for == late);
          CHECK(says(why, "rank " + std::to_string(late) + " has not entered #1 "));
          CHECK(says(why, "; it has made no call; options.timeout is over"));
        }
        CHECK(data[late][0] == late + 1);
      }
    }
  }
}

TEST_CASE("calls on several communicators do not mix, in whatever order the ranks make them") {
  constexpr int p = 6;
  colls::inproc::run(p, [](communicator& world) -> task<> {
    const int me = world.rank();
    communicator half = co_await world.split(me % 2, -me);
    communicator same = co_await half.dup();
    communicator pair = co_await half.split(half.rank() / 2);
    communicator* const comms[] = {&world, &half, &same, &pair};
    const colls::options opts{.algorithm = algorithm::direct};
    for (int round = 0; round < 20; ++round) {
      // Each rank begins with a different communicator, and awaits in yet another order.
      std::vector<std::vector<double>> data;
      for (int i = 0; i < 4; ++i) data.emplace_back(round % 5 == 4 ? 10'000 : round, me + i);
      std::vector<operation<>> kept;
      for (int i = 0; i < 4; ++i) {
        const auto index = static_cast<std::size_t>((i + me + round) % 4);
        kept.push_back(comms[index]->all_reduce(data[index], opts));
      }
      std::vector<operation<>> barriers;
      for (communicator* const each : comms) barriers.push_back(each->barrier(opts));
      for (int i = 0; i < 4; ++i) co_await kept[static_cast<std::size_t>((i + 3 * me + 1) % 4)];
      for (operation<>& each : barriers) co_await each;
      for (std::size_t i = 0; i < 4; ++i) {
        double sum = 0;
        for (int rank = 0; rank < comms[i]->size(); ++rank) {
          sum += comms[i]->world_rank(rank) + static_cast<double>(i);
        }
        CHECK(data[i] == std::vector<double>(data[i].size(), sum));
      }
    }
  });
}

TEST_CASE("a long queue of calls runs in bounded memory and in order") {
  constexpr int calls = 500;
  communicators all(3);
  std::vector<std::vector<int>> data[3];
  std::vector<operation<>> kept;
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < calls; ++i) data[rank].emplace_back(i % 7 == 0 ? 50'000 : 10, i + rank);
  }
  // Each rank makes all its calls before the next rank makes its first.
  for (int rank = 0; rank < 3; ++rank) {
    for (auto& each : data[rank]) kept.push_back(all[rank].all_reduce(each));
    all.settle();
  }
  std::mt19937 random(3);
  std::shuffle(kept.begin(), kept.end(), random);
  for (auto& each : kept) all.wait(each);
  for (int rank = 0; rank < 3; ++rank) {
    for (int i = 0; i < calls; ++i)
      CHECK(data[rank][static_cast<std::size_t>(i)].back() == 3 * i + 3);
  }
}

TEST_CASE("a transport without failure hooks gets no communicator") {
  colls::inproc_world world(2);
  // Only this cast reaches a private base class.
  auto& hooks = (colls::failure_hooks&)world[0];
  world[0].matching().remove(hooks);
  try {
    (void)colls::inproc::join(world, 0);
    FAIL("a communicator was made");
  } catch (const colls::error& thrown) {
    CHECK(thrown.record().code == errc::invalid_argument);
    CHECK(says(thrown.record(), "failure_hooks"));
  }
  world[0].matching().add(hooks);
  const communicator other = colls::inproc::join(world, 1);
  CHECK(other.size() == 2);
}

}  // namespace
