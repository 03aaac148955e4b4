// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>
#include <colls/simulated.hpp>
#include <colls/world.hpp>

#include "../support/communicators.hpp"
#include "../support/driven_threads.hpp"
#include "../support/inproc_ranks.hpp"
#include "../support/lack_of_memory.hpp"
#include "../support/socketpair_world.hpp"
#include "../support/tcp_world.hpp"
#include "../support/view_ranks.hpp"

#include <array>
#include <new>
#include <optional>
#include <span>

// Messages that are sent from strided views and received into them.

namespace {

using colls::errc;
using colls::strided_view;

/// Whatever the layouts of both sides are, and whether either is a view, the elements arrive.
template <class T, class World>
void moves(std::size_t count, int kind) {
  CAPTURE(count);
  CAPTURE(kind);
  view_ranks<World> all(2);
  field<T> from(count, kind, 5);
  field<T> to(count, kind + 1);
  const std::vector<T> plain = from.elements();
  std::vector<T> taken(count);
  auto send = all[0].send(from.view(), 1, 3);
  auto recv = all[1].recv(to.view(), 0, 3);
  CHECK(all.outcome(send).code == errc{});
  CHECK(colls::sync_wait(all.world, recv).count == count);
  CHECK(to.elements() == plain);
  CHECK(to.gaps_are_untouched());

  auto to_vector = all[1].recv(taken, 0);
  auto again = all[0].send(from.view(), 1);
  CHECK(all.outcome(again).code == errc{});
  CHECK(all.outcome(to_vector).code == errc{});
  CHECK(taken == plain);

  to = field<T>(count, kind + 2);
  auto of_vector = all[0].send(plain, 1);
  auto probing = all[1].probe(colls::any_source, colls::any_tag);
  auto message = colls::sync_wait(all.world, probing);
  auto probed = message.recv(to.view());
  CHECK(colls::sync_wait(all.world, probed).count == count);
  CHECK(all.outcome(of_vector).code == errc{});
  CHECK(to.elements() == plain);
  CHECK(to.gaps_are_untouched());
}

template <class World>
void moves() {
  for (int kind = 0; kind < field<int>::kinds; ++kind) {
    moves<int, World>(0, kind);
    moves<int, World>(1, kind);
    moves<char, World>(1000, kind);
    moves<point, World>(50'001, kind);
  }
  // Long messages move in pieces of 256 KiB.
  moves<char, World>(256 * 1024 + 1, 1);
  moves<point, World>(300'000, 2);
  moves<double, World>(150'000, 3);
}

TEST_CASE("messages of views: inproc") { moves<inproc_ranks>(); }
TEST_CASE("messages of views: threads") { moves<driven_threads>(); }
TEST_CASE("messages of views: tcp") { moves<tcp_world>(); }
TEST_CASE("messages of views: tcp with checksums") { moves<checked_tcp_world>(); }
TEST_CASE("messages of views: shared memory") { moves<shm_world>(); }
TEST_CASE("messages of views: shared memory with checksums") { moves<checked_shm_world>(); }
TEST_CASE("messages of views: a transport of the user") { moves<socketpair_world>(); }

TEST_CASE("messages of views: a simulated network") {
  colls::simulated_world world(2);
  auto from = colls::simulated::join(world, 0);
  auto to = colls::simulated::join(world, 1);
  field<point> out(100'000, 1, 5);
  field<point> in(100'000, 2);
  auto sends = from.send(out.view(), 1);
  auto receives = to.recv(in.view(), 0);
  colls::sync_wait(world, sends);
  CHECK(colls::sync_wait(world, receives).count == 100'000);
  CHECK(in.elements() == out.elements());
  CHECK(in.gaps_are_untouched());
}

TEST_CASE("a message that is shorter or longer than the view") {
  view_ranks<inproc_ranks> all(2);
  field<int> longer(20, 1);
  const std::vector<int> three{1, 2, 3};
  auto sent = all[0].send(three, 1);
  auto received = all[1].recv(longer.view(), colls::any_source, colls::any_tag);
  CHECK(colls::sync_wait(all.world, received).count == 3);
  CHECK(all.outcome(sent).code == errc{});
  CHECK(longer.elements()[2] == 3);
  CHECK(longer.elements()[3] == 0);

  for (const std::size_t count : {std::size_t{21}, std::size_t{100'000}}) {
    const field<int> before = longer;
    field<int> too_long(count, 1, 2);
    auto refused = all[1].recv(longer.view(), 0);
    auto lost = all[0].send(too_long.view(), 1);
    CHECK(all.outcome(refused).code == errc::truncated);
    CHECK(all.outcome(lost).code == errc{});
    CHECK(longer.elements() == before.elements());
  }
}

TEST_CASE("ranks exchange views, in place too") {
  for (const std::size_t count : {std::size_t{50}, std::size_t{200'000}}) {
    CAPTURE(count);
    view_ranks<shm_world> all(2);
    fields<int> out(2, count, 1);
    fields<int> in(2, count, 2);
    for (int rank = 0; rank < 2; ++rank) out[index(rank)] = field<int>(count, 1, rank);
    const auto exchange = [&](fields<int>& from, fields<int>& to) {
      for (auto& call : all.start_all([&](auto& comm) {
             const int peer = 1 - comm.rank();
             return comm.send_recv(from.of(comm), peer, to.of(comm), peer);
           })) {
        CHECK(all.outcome(call).code == errc{});
      }
    };
    exchange(out, in);
    all.expect(in, 0, values<int>(1, count));
    all.expect(in, 1, values<int>(0, count));
    exchange(in, in);
    all.expect(in, 0, values<int>(0, count));
    all.expect(in, 1, values<int>(1, count));

    // What comes overwrites all elements before any of them leaves.
    fields<int> data(2, count, 1);
    auto exchanges = all[0].send_recv(in.of(0), 1, in.of(0), 1);
    auto sends = all[1].send(in.of(1), 0);
    CHECK(all.outcome(sends).code == errc{});
    for (int polls = 0; polls < 1000 && in[0].elements() != values<int>(1, count); ++polls) {
      all.poll(1);
    }
    auto receives = all[1].recv(data.of(1), 0);
    CHECK(all.outcome(receives).code == errc{});
    CHECK(all.outcome(exchanges).code == errc{});
    all.expect(data, 1, values<int>(0, count));
    all.expect(in, 0, values<int>(1, count));
  }
}

/// A message of a view is dropped after a part of it has left. The peer gets the rest of its frame,
/// or the connection would be lost, and with it the spare communicators.
template <class World>
void is_dropped() {
  for (int polls = 0; polls < 12; ++polls) {
    CAPTURE(polls);
    view_ranks<World> all(2);
    field<int> to(2'000'000, 2);
    auto receives = all[1].recv(to.view(), 0);
    {
      field<int> from(2'000'000, 1, 3);
      auto sends = all[0].send(from.view(), 1);
      all.poll(polls);
    }
    // A message of which nothing has left is withdrawn, and the next one takes its place.
    std::optional<colls::operation<>> next;
    const int one = 1;
    if (all[0].failed() == nullptr) next = all[0].send(std::span(&one, 1), 1);
    const errc code = all.outcome(receives).code;
    CHECK((code == errc{} || code == errc::cancelled));
    all.expect_spares_work(2);
  }
}
TEST_CASE("a message of a view that is dropped: inproc") { is_dropped<inproc_ranks>(); }
TEST_CASE("a message of a view that is dropped: threads") { is_dropped<driven_threads>(); }
TEST_CASE("a message of a view that is dropped: tcp") { is_dropped<checked_tcp_world>(); }
TEST_CASE("a message of a view that is dropped: shared memory") { is_dropped<shm_world>(); }

/// The memory of a receive that is dropped is not touched afterwards, which ASan checks.
template <class World>
void receive_is_dropped() {
  for (int polls = 0; polls < 12; ++polls) {
    CAPTURE(polls);
    view_ranks<World> all(2);
    field<int> from(2'000'000, 2, 3);
    auto sends = all[0].send(from.view(), 1);
    {
      field<int> to(2'000'000, 1);
      auto receives = all[1].recv(to.view(), 0);
      all.poll(polls);
    }
    std::optional<colls::operation<colls::received>> next;
    field<int> another(2'000'000, 1);
    if (all[1].failed() == nullptr) next = all[1].recv(another.view(), 0);
    const errc code = all.outcome(sends).code;
    CHECK((code == errc{} || code == errc::cancelled));
    all.expect_spares_work(2);
  }
}
TEST_CASE("a receive into a view that is dropped: tcp") { receive_is_dropped<tcp_world>(); }
TEST_CASE("a receive into a view that is dropped: shared memory") {
  receive_is_dropped<shm_world>();
}

TEST_CASE("a probed message is received into no view that a call cannot use") {
  view_ranks<inproc_ranks> all(2);
  const std::vector<int> two{1, 2};
  auto sends = all[0].send(two, 1);
  auto probing = all[1].probe(0);
  auto message = colls::sync_wait(all.world, probing);
  int one = 0;
  auto refused = message.recv(strided_view(&one, {2}, {0}));
  CHECK(all.outcome(refused).code == errc::invalid_argument);
  std::array<int, 3> apart{};
  auto receives = message.recv(strided_view(apart.data(), {2}, {2}));  // it is still there
  CHECK(all.outcome(receives).code == errc{});
  CHECK(apart == std::array{1, 0, 2});
  CHECK(all.outcome(sends).code == errc{});
}

#if !defined(SANITIZED)
template <class World>
void takes_little_memory() {
  const std::size_t count = std::size_t{64} << 20;
  view_ranks<World> all(2);
  std::vector<std::vector<char>> memory(2, std::vector<char>(2 * count));
  for (std::size_t i = 0; i < count; ++i) memory[0][2 * i] = static_cast<char>(i % 119);
  const std::size_t extra = extra_memory([&] {
    auto receives = all[1].recv(strided_view(memory[1].data(), {count}, {2}), 0);
    auto sends = all[0].send(strided_view(memory[0].data(), {count}, {2}), 1);
    CHECK(all.outcome(sends).code == errc{});
    CHECK(all.outcome(receives).code == errc{});
  });
  CHECK(memory[0] == memory[1]);
  CAPTURE(extra);
  CHECK(extra >= 256 * 1024);
  CHECK(extra <= 1024 * 1024);
}
TEST_CASE("64 MiB of a view take two pieces of memory: inproc") {
  takes_little_memory<inproc_ranks>();
}
TEST_CASE("64 MiB of a view take two pieces of memory: threads") {
  takes_little_memory<driven_threads>();
}
TEST_CASE("64 MiB of a view take two pieces of memory: tcp") { takes_little_memory<tcp_world>(); }
TEST_CASE("64 MiB of a view take two pieces of memory: shared memory") {
  takes_little_memory<shm_world>();
}

TEST_CASE("a rank without memory for a message of views ends the communicator") {
  for (const std::size_t count : {std::size_t{1000}, std::size_t{100'000}}) {
    CAPTURE(count);
    int revocations = 0;
    for (std::size_t n = 1; n < 12; ++n) {
      CAPTURE(n);
      communicators all(2);
      field<int> from(count, 1, 3);
      field<int> to(count, 2);
      auto receives = all[1].recv(to.view(), 0);
      errc code = errc::not_enough_memory;
      refused_allocation = n;
      try {
        auto sends = all[0].send(from.view(), 1);
        refused_allocation = 0;
        code = failure_of(all, sends).code;
      } catch (const std::bad_alloc&) {
        refused_allocation = 0;
      }
      CHECK((code == errc{} || code == errc::not_enough_memory));
      if (all[0].failed() != nullptr) ++revocations;
      if (code != errc{} && all[0].failed() == nullptr) all[0].revoke("the message is not sent");
      CHECK((failure_of(all, receives).code == errc{}) == (code == errc{}));
    }
    CHECK(revocations > 0);
  }
}
#endif

}  // namespace
