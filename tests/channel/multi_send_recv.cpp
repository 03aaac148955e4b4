// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/channel/multi_send_recv.hpp>

#include "../support/tcp_ranks.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>

namespace {

using colls::errc;
using colls::task;

constexpr colls::options direct{.algorithm = colls::algorithm::direct};

/// A hash of a string of numbers, modulo 2^64: concatenation is associative and not commutative.
struct word {
  std::uint64_t letters = 0;
  std::uint64_t shift = 1;
  bool operator==(const word&) const = default;
};
struct joined {
  word operator()(const word& x, const word& y) const {
    return {x.letters * y.shift + y.letters, x.shift * y.shift};
  }
};
word part(int rank, std::size_t i) {
  return {static_cast<std::uint64_t>(rank) * 1000 + i + 1, 1'000'003};
}
word sum(int first, int last, std::size_t i) {
  word all = part(first, i);
  for (int rank = first + 1; rank < last; ++rank) all = joined()(all, part(rank, i));
  return all;
}
std::vector<word> filled(int rank, std::size_t first, std::size_t n) {
  std::vector<word> data;
  for (std::size_t i = 0; i < n; ++i) data.push_back(part(rank, first + i));
  return data;
}
const word blank{999, 9};

constexpr int kinds = 10;

/// One call of each collective that moves or reduces short vectors, and the expected result.
struct short_call {
  short_call(communicator& comm, int kind, std::size_t n, std::size_t k,
             colls::options opts = direct)
      : rank(comm.rank()), ranks(comm.size()) {
    start(comm, kind, n, k, opts);
  }
  bool is_right() const { return out == wanted; }

  int rank;
  int ranks;
  std::vector<word> in;
  std::vector<word> out;
  std::vector<word> wanted;
  std::unique_ptr<colls::operation<>> started;

 private:
  void start(communicator& comm, int kind, std::size_t n, std::size_t k, colls::options opts) {
    const auto p = static_cast<std::size_t>(ranks);
    const int root = static_cast<int>(k % p);
    const std::size_t offset = static_cast<std::size_t>(rank) * n;
    const auto begin = [&](colls::operation<> call) {
      started = std::make_unique<colls::operation<>>(std::move(call));
    };
    const auto blocks = [&](int peer, std::size_t start, std::size_t count) {
      const std::vector<word> more = filled(peer, start, count);
      wanted.insert(wanted.end(), more.begin(), more.end());
    };
    const auto sums = [&](int first, int last, std::size_t start) {
      for (std::size_t i = 0; i < n; ++i) wanted.push_back(sum(first, last, start + i));
    };
    in = filled(rank, k, n);
    out.assign(n, blank);
    wanted.assign(n, blank);
    switch (kind) {
      case 0:
        out = rank == root ? filled(root, k, n) : out;
        wanted = filled(root, k, n);
        return begin(comm.broadcast(out, root, opts));
      case 1:
        if (rank == root) wanted.clear(), sums(0, ranks, k);
        return begin(comm.reduce(in, out, root, joined(), opts));
      case 2:
        wanted.clear(), sums(0, ranks, k);
        return begin(comm.all_reduce(in, out, joined(), opts));
      case 3:
        in = filled(rank, k, n * p);
        wanted.clear(), sums(0, ranks, k + offset);
        return begin(comm.reduce_scatter(in, out, joined(), opts));
      case 4:
        out.assign(n * p, blank);
        wanted.clear();
        for (int peer = 0; peer < ranks; ++peer) blocks(peer, k, n);
        return begin(comm.all_gather(in, out, opts));
      case 5:
        out.assign(n * p, blank);
        wanted.clear();
        for (int peer = 0; peer < ranks; ++peer) blocks(peer, k, n);
        if (rank != root) wanted.assign(n * p, blank);
        return begin(comm.gather(in, out, root, opts));
      case 6:
        in = filled(root, k, n * p);
        wanted = filled(root, k + offset, n);
        return begin(comm.scatter(in, out, root, opts));
      case 7:
        in = filled(rank, k, n * p);
        out.assign(n * p, blank);
        wanted.clear();
        for (int peer = 0; peer < ranks; ++peer) blocks(peer, k + offset, n);
        return begin(comm.all_to_all(in, out, opts));
      case 8:
        wanted.clear(), sums(0, rank + 1, k);
        out = in;
        return begin(comm.scan(out, joined(), opts));
      default:
        out = in;
        wanted = in;
        if (rank > 0) wanted.clear(), sums(0, rank, k);
        return begin(comm.exscan(out, joined(), opts));
    }
  }
};

task<colls::failure> failure_of(std::unique_ptr<colls::operation<>>& started) {
  try {
    co_await *started;
  } catch (const colls::error& thrown) {
    co_return thrown.record();
  }
  co_return colls::failure();
}

/// Returns after all ranks have left the barrier.
task<> all_are_here(communicator& comm) {
  co_await comm.barrier(direct);
  std::vector<int> token(1);
  if (comm.rank() == 0) {
    for (int peer = 1; peer < comm.size(); ++peer) (void)co_await comm.recv(token, peer, 8);
    for (int peer = 1; peer < comm.size(); ++peer) co_await comm.send(token, peer, 8);
  } else {
    co_await comm.send(token, 0, 8);
    (void)co_await comm.recv(token, 0, 8);
  }
}

task<> pause(communicator& comm, colls::time_point time) {
  co_await comm.net().driver().sleep_until(comm.net().now() + time);
}

}  // namespace

TEST_CASE("multi_send_recv_buffers returns the buffer of each message") {
  std::byte memory[64];
  const colls::mutable_bytes all{memory, sizeof memory};
  const auto at = [&](const colls::mutable_bytes& message) { return message.data - memory; };
  const auto seen = [](const colls::multi_recv_buffers& side, int mine) {
    std::vector<int> ranks;
    side.for_each(mine, [&](int rank) { ranks.push_back(rank); });
    return ranks;
  };
  const auto same = colls::multi_recv_buffers::same({1, 4}, all);
  CHECK(seen(same, 2) == std::vector<int>{1, 3});
  CHECK(at(same.buffer_for(3)) == 0);
  CHECK(same.buffer_for(3).size == 64);
  const auto blocks = colls::multi_recv_buffers::blocks({0, 4}, {memory, 16});
  CHECK(seen(blocks, 0) == std::vector<int>{1, 2, 3});
  CHECK(at(blocks.buffer_for(3)) == 48);
  CHECK(blocks.buffer_for(3).size == 16);
  const std::size_t offsets[] = {0, 3, 3, 8};
  const auto uneven = colls::partition::from_offsets(offsets, 3);
  const auto chunks = colls::multi_recv_buffers::chunks({0, 3}, all, uneven, 4);
  CHECK(at(chunks.buffer_for(2)) == 12);
  CHECK(chunks.buffer_for(1).size == 0);
  CHECK(chunks.buffer_for(2).size == 20);
  const auto even = colls::partition::blocks(4, 4);
  CHECK(at(colls::multi_recv_buffers::chunks({0, 4}, all, even, 4).buffer_for(3)) == 48);
  CHECK(seen(colls::multi_recv_buffers(), 0).empty());
  const std::uint64_t numbers[] = {1, 0, 0, 0, 5, 0, 0, 9};
  const auto spaced = colls::multi_recv_buffers::spaced({0, 4}, {memory, 3}, 16);
  CHECK(seen(spaced, 3) == std::vector<int>{0, 1, 2});
  const auto some = spaced.where_nonzero(numbers[0], 2 * sizeof numbers[0]);
  CHECK(seen(some, 3) == std::vector<int>{0, 2});
  CHECK(seen(some, 0) == std::vector<int>{2});
  CHECK(at(some.buffer_for(2)) == 32);
  CHECK(some.buffer_for(2).size == 3);
}

TEST_CASE_TEMPLATE("short vectors, many operations at a time, awaited in any order", World,
                   shm_world, tcp_world) {
  for (const int p : {1, 2, 3, 5, 17}) {
    ranks<World> world(p);
    world.run([](communicator& comm) -> task<> {
      for (const std::size_t n : {0U, 1U, 3U, 50U}) {
        for (int kind = 0; kind < kinds; ++kind) {
          const std::size_t calls = comm.size() > 5 ? 20 : 150;
          std::vector<std::unique_ptr<short_call>> started;
          for (std::size_t k = 0; k < calls; ++k) {
            // Other lengths, too: the next frame in a ring is not always the same.
            const std::size_t count = n > 1 && k % 4 == 0 ? 1 : n;
            started.push_back(std::make_unique<short_call>(comm, kind, count, k));
            if (k % 10 == 0) co_await comm.barrier(direct);
          }
          bool right = true;
          for (std::size_t k = calls; k-- > 0;) {
            co_await *started[k]->started;
            right &= started[k]->is_right();
          }
          CAPTURE(kind);
          CAPTURE(n);
          CHECK(right);
        }
      }
    });
  }
}

TEST_CASE(
    "a rank that only sends runs ahead as far as ring buffers and credit allow, and no further") {
  for (const std::size_t n : {1U, 600U}) {
    for (const bool keeps_early : {false, true}) {
      ranks<shm_world> world(3);
      std::size_t ahead = 0;
      const auto rank_main = [&](communicator& comm) -> task<> {
        co_await all_are_here(comm);
        const std::size_t calls = n == 1 ? 2000 : 300;
        // Meanwhile the other ranks buffer messages, or do not read them.
        if (comm.rank() > 0 && keeps_early) {
          co_await pause(comm, 5 * colls::milliseconds);
          CHECK(ahead * n * sizeof(word) <= colls::interprocess::credit_window);
        }
        bool right = true;
        for (std::size_t k = 0; k < calls; ++k) {
          short_call one(comm, 0, n, k * 3);  // from rank 0
          co_await *one.started;
          right &= one.is_right();
          if (comm.rank() == 0) ++ahead;
        }
        CHECK(right);
        short_call last(comm, 4, 1, 1);
        co_await *last.started;
        CHECK(last.is_right());
      };
      CHECK_NOTHROW(world.run(rank_main));
    }
  }
}

TEST_CASE("a receiver whose sender had no credits requests the message at once") {
  ranks<shm_world> world(2);
  communicator& sender = world.all[0];
  communicator& receiver = world.all[1];
  world.run([](communicator& comm) -> task<> { co_await all_are_here(comm); });
  constexpr std::size_t n = 16 * 1024 / sizeof(word);
  for (int round = 0; round < 4; ++round) {
    // `done()` runs one rank alone and checks no deadline: nothing happens by time.
    std::vector<std::unique_ptr<short_call>> sent;
    do {
      REQUIRE(sent.size() * n * sizeof(word) <= colls::interprocess::credit_window);
      sent.push_back(std::make_unique<short_call>(sender, 0, n, 2 * sent.size()));
    } while (sent.back()->started->done());
    std::vector<std::unique_ptr<short_call>> taken;
    for (std::size_t k = 0; k < sent.size(); ++k) {
      taken.push_back(std::make_unique<short_call>(receiver, 0, n, 2 * k));
    }
    CHECK(!taken.back()->started->underlying_call().is_done());
    for (int polls = 0; polls < 4 && !taken.back()->started->done(); ++polls) {
      (void)sent.back()->started->done();
    }
    bool right = sent.back()->started->underlying_call().is_done();
    for (const auto& each : taken) {
      right &= each->started->underlying_call().is_done() && each->is_right();
    }
    CHECK(right);
  }
}

TEST_CASE_TEMPLATE("a rank that does not send its part is named", World, shm_world, tcp_world) {
  // The ranks wait for rank 2: as a root, as one of many, by rank order.
  for (const int kind : {0, 1, 2, 3, 4, 5, 6, 7}) {
    ranks<World> world(3);
    world.run([=](communicator& comm) -> task<> {
      co_await all_are_here(comm);
      if (comm.rank() == 2) co_return;
      colls::options opts = direct;
      // Long enough for a query of the state of rank 2.
      opts.timeout = std::chrono::milliseconds(300);
      const bool from_two = kind == 0 || kind == 6;
      short_call one(comm, kind, 2, from_two ? 2 : 0, opts);
      const colls::failure why = co_await failure_of(one.started);
      CAPTURE(kind);
      if (comm.rank() == 0 || kind != 1) {
        const bool only_sent = comm.rank() == 1 && (kind == 5 || kind == 1);
        CHECK(why.code == (only_sent ? errc{} : errc::timeout));
        CHECK((only_sent || why.culprit == 2));
      }
    });
  }
}

TEST_CASE_TEMPLATE(
    "short vectors of other lengths end the communicator, also if the root has continued", World,
    shm_world, tcp_world) {
  for (int kind = 0; kind < kinds; ++kind) {
    ranks<World> world(3);
    world.run([=](communicator& comm) -> task<> {
      co_await all_are_here(comm);
      short_call one(comm, kind, comm.rank() == 1 ? 3 : 2, 0);
      colls::failure why = co_await failure_of(one.started);
      while (why.code == errc{}) {
        short_call next(comm, 4, 1, 1);
        why = co_await failure_of(next.started);
      }
      CAPTURE(kind);
      CHECK(why.code == errc::mismatch);
    });
  }
}

TEST_CASE_TEMPLATE("a short operation that is dropped ends the communicator with the culprit named",
                   World, shm_world, tcp_world) {
  for (const int kind : {2, 4, 7}) {
    ranks<World> world(3);
    world.run([=](communicator& comm) -> task<> {
      co_await all_are_here(comm);
      if (comm.rank() == 1) {
        {
          const short_call dropped(comm, kind, 2, 0);
        }
        co_return;
      }
      short_call one(comm, kind, 2, 0);  // rank 1 has sent its part of this one
      short_call two(comm, kind, 2, 0);
      const colls::failure why = co_await failure_of(two.started);
      CHECK(why.code == errc::cancelled);
      CHECK(why.culprit == 1);
      (void)one.started->done();
    });
  }
}

TEST_CASE_TEMPLATE(
    "an operation that needs a rank that has left or died fails, in every short collective", World,
    shm_world, tcp_world) {
  for (int kind = 0; kind < kinds; ++kind) {
    for (const bool dies : {false, true}) {
      ranks<World> world(3);
      world.run([=](communicator& comm) -> task<> {
        co_await all_are_here(comm);
        if (comm.rank() == 0 && !dies) co_await comm.close();
      });
      if (dies) world.kill(0);
      world.run([=](communicator& comm) -> task<> {
        if (comm.rank() == 0) co_return;
        short_call one(comm, kind, 2, 0);  // whose root is rank 0
        colls::failure why = co_await failure_of(one.started);
        // A rank that only sends may have written its message before it saw the end.
        while (why.code == errc{}) {
          co_await pause(comm, colls::milliseconds);
          short_call next(comm, 2, 1, 1);
          why = co_await failure_of(next.started);
        }
        CAPTURE(kind);
        CHECK(why.code == (dies ? errc::peer_failed : errc::closed));
        CHECK(why.culprit == 0);
      });
    }
  }
}
