// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// suite: what every transport between or inside processes promises when ranks fail, disagree,
// cancel or leave, under many messages, and with messages that are probed.
//
// A World has `explicit World(int size)`, `size()`, `operator[](rank)` that returns a transport,
// `communicator_of(rank)` that makes the world communicator of a rank, and is the driver of all
// ranks. If `World::ranks_can_die` is true, `kill(rank)` ends a rank as the end of its process
// would. A rank that is cut off is a matter of tests/sim/pipes.cpp and tests/net/partitions.cpp:
// the ranks of one process cannot lose their connections silently.

#include <colls/call/communicator.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/coroutine/when_all.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace transport_suite {

using colls::errc;
using colls::failure;

/// Lengths below and above the eager limit.
inline constexpr std::size_t short_message = 64;
inline constexpr std::size_t long_message = 1 << 20;

/// The ranks of a world. Each has its world communicator, and a spare one of the same ranks.
template <class World>
class ranks {
 public:
  using communicator = decltype(std::declval<World&>().communicator_of(0));

  explicit ranks(int size) : world(size) {
    for (int rank = 0; rank < size; ++rank) {
      comms.push_back(world.communicator_of(rank));
      world[rank].matching().find(0)->inactivity = 20 * colls::seconds;  // a hang ends as a timeout
    }
    std::vector<colls::operation<communicator>> dups;
    for (communicator& comm : comms) dups.push_back(comm.dup());
    for (auto& dup : dups) spares.push_back(colls::sync_wait(world, dup));
  }

  int size() const { return static_cast<int>(comms.size()); }
  communicator& operator[](int rank) { return comms[static_cast<std::size_t>(rank)]; }
  communicator& spare(int rank) { return spares[static_cast<std::size_t>(rank)]; }

  /// Returns `start(communicator)` of every rank, in rank order.
  template <class Start>
  auto start_all(const Start& start) {
    std::vector<decltype(start(comms.front()))> started;
    for (communicator& comm : comms) started.push_back(start(comm));
    return started;
  }
  /// Polls the world a few times.
  void poll(int times) {
    for (int i = 0; i < times; ++i) world.poll();
  }
  /// Waits until the operation has ended, and returns its failure, or a failure without a code.
  template <class Operation>
  failure outcome(Operation& operation) {
    try {
      colls::sync_wait(world, operation);
    } catch (const colls::error& thrown) {
      return thrown.record();
    }
    return {};
  }
  /// Requires that the spare communicators of `members` ranks still work.
  void expect_spares_work(int members) {
    std::vector<std::vector<int>> data(static_cast<std::size_t>(members), std::vector<int>(3, 1));
    std::vector<colls::operation<>> calls;
    for (int rank = 0; rank < members; ++rank) {
      calls.push_back(spare(rank).all_reduce(data[static_cast<std::size_t>(rank)]));
    }
    for (auto& call : calls) CHECK(outcome(call).code == errc{});
    for (const auto& each : data) CHECK(each == std::vector<int>(3, members));
  }
  void kill(int rank) {
    spares[static_cast<std::size_t>(rank)] = {};
    comms[static_cast<std::size_t>(rank)] = {};
    world.kill(rank);
  }

  World world;
  std::vector<communicator> comms;
  std::vector<communicator> spares;
};

inline std::vector<char> sample(std::size_t size, int seed) {
  std::vector<char> all(size);
  for (std::size_t i = 0; i < size; ++i) {
    all[i] = static_cast<char>(i * 31 + static_cast<std::size_t>(seed));
  }
  return all;
}

/// Requires `peer_failed` that names the rank `culprit`.
inline void expect_death_of(int culprit, const failure& why) {
  CAPTURE(std::string(why.detail));
  CHECK(why.code == errc::peer_failed);
  CHECK(why.culprit == culprit);
}

template <class World>
void a_rank_dies() {
  if constexpr (World::ranks_can_die) {
    for (const int size : {2, 3, 5}) {
      const int last = size - 1;
      CAPTURE(size);
      {  // before the others begin, and while they wait
        for (const bool they_wait : {false, true}) {
          ranks<World> all(size);
          if (!they_wait) all.kill(last);
          std::vector<colls::operation<>> barriers;
          for (int rank = 0; rank < last; ++rank) barriers.push_back(all[rank].barrier());
          if (they_wait) {
            all.poll(20);
            all.kill(last);
          }
          for (auto& barrier : barriers) expect_death_of(last, all.outcome(barrier));
        }
      }
      {  // as a message to it waits, and as one from it has arrived in part
        ranks<World> all(size);
        const std::vector<char> out = sample(long_message, 1);
        auto unread = all[0].send(out, last);
        all.poll(5);
        all.kill(last);
        expect_death_of(last, all.outcome(unread));
        auto later = all[0].send(out, last);
        expect_death_of(last, all.outcome(later));
      }
      {
        ranks<World> all(size);
        std::vector<char> in(64 << 20);
        auto receive = all[0].recv(in, last);
        all.poll(5);
        {
          const std::vector<char> out = sample(in.size(), 2);
          auto send = all[last].send(out, 0);
          all.poll(4);
        }
        all.kill(last);
        const failure why = all.outcome(receive);
        CAPTURE(std::string(why.detail));
        CHECK((why.code == errc::peer_failed || why.code == errc::cancelled));
        CHECK(why.culprit == last);
      }
      if (size > 2) {  // a communicator without it stays good
        ranks<World> all(size);
        std::vector<colls::operation<typename ranks<World>::communicator>> splits;
        for (int rank = 0; rank < size; ++rank) {
          splits.push_back(all[rank].split(rank == last ? 1 : 0));
        }
        std::vector<typename ranks<World>::communicator> parts;
        for (auto& split : splits) parts.push_back(colls::sync_wait(all.world, split));
        parts.pop_back();
        all.kill(last);
        std::vector<colls::operation<>> barriers;
        for (auto& part : parts) barriers.push_back(part.barrier());
        for (auto& barrier : barriers) CHECK(all.outcome(barrier).code == errc{});
        auto barrier = all[0].barrier();
        expect_death_of(last, all.outcome(barrier));
      }
    }
  } else {
    MESSAGE("the ranks of this world do not die by themselves");
  }
}

template <class World>
void revoke_ends_sends_and_receives() {
  for (const int size : {2, 3, 5}) {
    for (const std::size_t length : {short_message, long_message}) {
      for (const int polls : {0, 2, 50}) {
        CAPTURE(size);
        CAPTURE(length);
        CAPTURE(polls);
        ranks<World> all(size);
        const std::vector<char> unread = sample(long_message, 1);
        std::vector<char> out = sample(length, 2);
        std::vector<char> in(length);
        std::vector<char> never(length, 'n');
        auto waiting_send = all[0].send(unread, 1, 1);
        auto waiting_receive = all[1].recv(never, 0, 2);
        auto send = all[0].send(out, 1, 3);
        auto receive = all[1].recv(in, 0, 3);
        std::vector<colls::operation<>> barriers;
        for (int rank = 2; rank < size; ++rank) barriers.push_back(all[rank].barrier());
        all.poll(polls);
        all[0].revoke("enough");
        for (auto& barrier : barriers) CHECK(all.outcome(barrier).code == errc::revoked);
        CHECK(all.outcome(waiting_send).code == errc::revoked);
        CHECK(all.outcome(waiting_receive).code == errc::revoked);
        const errc sent = all.outcome(send).code;
        const errc received = all.outcome(receive).code;
        CHECK((sent == errc{} || sent == errc::revoked));
        CHECK((received == errc{} || received == errc::revoked));
        if (received == errc{}) CHECK(in == sample(length, 2));
        // What has ended is neither read nor written any more.
        const std::vector<char> then = in;
        std::fill(out.begin(), out.end(), 'x');
        all.poll(100);
        CHECK(in == then);
        CHECK(never == std::vector<char>(length, 'n'));
        auto refused = all[1].barrier();
        CHECK(all.outcome(refused).code == errc::revoked);
        all.expect_spares_work(size);
      }
    }
  }
}

/// Makes one call on rank 0 and another one on all other ranks. All must end with `mismatch`. A
/// call that has sent what it had to send may have succeeded; the next call then ends with
/// `mismatch`.
template <class World, class First, class Others>
void expect_mismatch(int size, const First& first, const Others& others) {
  ranks<World> all(size);
  std::vector<colls::operation<>> calls;
  calls.push_back(first(all[0]));
  for (int rank = 1; rank < size; ++rank) calls.push_back(others(all[rank]));
  for (auto& call : calls) {
    failure why = all.outcome(call);
    if (why.code == errc{}) {
      auto next = all[static_cast<int>(&call - calls.data())].barrier();
      why = all.outcome(next);
    }
    CAPTURE(std::string(why.detail));
    CHECK(why.code == errc::mismatch);
  }
  all.expect_spares_work(size);
}

template <class World>
void calls_that_differ_end_on_all_ranks() {
  for (const int size : {2, 3, 5}) {
    CAPTURE(size);
    for (const std::size_t n : {std::size_t{4}, long_message}) {
      std::vector<std::vector<int>> ints(static_cast<std::size_t>(size), std::vector<int>(n + 1));
      std::vector<std::vector<float>> floats(static_cast<std::size_t>(size), std::vector<float>(n));
      const auto of = [](auto& buffers, auto& comm, std::size_t length) {
        return std::span(buffers[static_cast<std::size_t>(comm.rank())]).first(length);
      };
      const auto sum = [&](auto& comm) { return comm.all_reduce(of(ints, comm, n)); };
      expect_mismatch<World>(size, [](auto& comm) { return comm.barrier(); }, sum);
      expect_mismatch<World>(
          size, [&](auto& comm) { return comm.all_reduce(of(ints, comm, n + 1)); }, sum);
      expect_mismatch<World>(
          size, [&](auto& comm) { return comm.all_reduce(of(floats, comm, n)); }, sum);
      expect_mismatch<World>(
          size, [&](auto& comm) { return comm.broadcast(of(ints, comm, n), 0); },
          [&](auto& comm) { return comm.broadcast(of(ints, comm, n), 1); });
    }
  }
}

template <class World>
void dropped_operations_are_withdrawn_or_revoke() {
  for (const std::size_t length : {short_message, long_message}) {
    CAPTURE(length);
    ranks<World> all(3);
    const std::vector<char> first = sample(long_message, 1);
    const std::vector<char> second = sample(length, 2);
    std::vector<char> in(length);
    std::vector<char> untouched(length, 'u');
    {
      auto dropped = all[1].recv(untouched, 0);
      all.poll(3);
    }
    {
      auto dropped = all[0].send(first, 1);  // nothing receives it, so it has not met its message
      all.poll(3);
    }
    all.poll(20);  // until the receiver knows that the send was withdrawn
    auto receive = all[1].recv(in, 0);
    auto send = all[0].send(second, 1);
    CHECK(all.outcome(send).code == errc{});
    CHECK(all.outcome(receive).code == errc{});
    CHECK(in == second);
    CHECK(untouched == std::vector<char>(length, 'u'));

    std::vector<int> numbers[3];
    for (auto& each : numbers) each.resize(length, 1);
    {
      auto dropped = all[2].all_reduce(numbers[2]);
      all.poll(2);
    }
    for (int rank = 0; rank < 2; ++rank) {
      auto waits = all[rank].all_reduce(numbers[rank]);
      const failure why = all.outcome(waits);
      CAPTURE(std::string(why.detail));
      CHECK(why.code == errc::cancelled);
      CHECK(why.culprit == 2);
    }
    all.expect_spares_work(3);
  }
}

template <class World>
void a_rank_leaves_while_its_messages_are_unread() {
  for (const int size : {2, 3}) {
    CAPTURE(size);
    ranks<World> all(size);
    constexpr int messages = 10;
    std::vector<colls::operation<>> sends;
    std::vector<std::vector<char>> out;
    for (int i = 0; i < messages; ++i) out.push_back(sample(short_message, i));
    for (const auto& each : out) sends.push_back(all[1].send(each, 0));
    for (auto& send : sends) CHECK(all.outcome(send).code == errc{});
    auto closing = all[1].close();
    all.poll(20);
    std::vector<char> in(short_message);
    for (int i = 0; i < messages; ++i) {
      auto receive = all[0].recv(in, 1);
      CHECK(all.outcome(receive).code == errc{});
      CHECK(in == out[static_cast<std::size_t>(i)]);
    }
    auto more = all[0].recv(in, 1);
    CHECK(all.outcome(more).code == errc::closed);
    std::vector<colls::operation<>> others;
    for (int rank = 0; rank < size; ++rank) {
      if (rank != 1) others.push_back(all[rank].close());
    }
    for (auto& other : others) CHECK(all.outcome(other).code == errc{});
    CHECK(all.outcome(closing).code == errc{});
  }
}

template <class World>
void ten_thousand_operations() {
  ranks<World> all(3);
  constexpr int tags = 1700;  // times three ranks, a send and a receive each
  std::mt19937 random(1);
  std::vector<std::uint64_t> out(static_cast<std::size_t>(3 * tags));
  std::vector<std::uint64_t> in(out.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = 1000 + i;
  std::vector<std::size_t> order(2 * out.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  // Rank r sends its tags to the next rank, which takes every other one from any source.
  std::vector<colls::operation<>> sends;
  std::vector<colls::operation<colls::received>> receives;
  for (const std::size_t number : order) {
    const std::size_t i = number / 2;
    const int tag = static_cast<int>(i % tags);
    const int rank = static_cast<int>(i / tags);
    const int next = (rank + 1) % 3;
    if (number % 2 == 0) {
      sends.push_back(all[rank].send(std::span(&out[i], 1), next, tag));
    } else if (tag % 2 == 0) {
      receives.push_back(all[next].recv(std::span(&in[i], 1), rank, tag));
    } else {
      receives.push_back(all[next].recv(std::span(&in[i], 1), colls::any_source, tag));
    }
  }
  for (auto& send : sends) CHECK(all.outcome(send).code == errc{});
  for (auto& receive : receives) CHECK(all.outcome(receive).code == errc{});
  CHECK(in == out);
  std::vector<std::vector<int>> sums(3, std::vector<int>(1, 1));
  for (int i = 0; i < 1000; ++i) {
    std::vector<colls::operation<>> calls;
    for (int rank = 0; rank < 3; ++rank) {
      sums[static_cast<std::size_t>(rank)][0] = 1;
      calls.push_back(all[rank].all_reduce(sums[static_cast<std::size_t>(rank)]));
    }
    for (auto& call : calls) colls::sync_wait(all.world, call);
    for (const auto& sum : sums) REQUIRE(sum[0] == 3);
  }
  sends.clear();
  receives.clear();
  for (int rank = 0; rank < 3; ++rank) {
    colls::tag_matcher& matcher = all.world[rank].matching();
    CHECK_FALSE(matcher.has_unexpected());
    CHECK(matcher.posted_count() == 0);
    CHECK_FALSE(matcher.any_in_flight());
  }
}

template <class World>
void messages_of_every_length() {
  for (const int size : {1, 2, 3}) {
    CAPTURE(size);
    ranks<World> all(size);
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, colls::eager_limit,
                                     colls::eager_limit + 1, 5 * long_message + 3}) {
      CAPTURE(length);
      const auto count = static_cast<std::size_t>(size);
      std::vector<std::vector<char>> out;
      std::vector<std::vector<char>> in(count, std::vector<char>(length));
      std::vector<colls::operation<>> sends;
      std::vector<colls::operation<colls::received>> receives;
      for (int rank = 0; rank < size; ++rank) out.push_back(sample(length, rank));
      for (int rank = 0; rank < size; ++rank) {  // a rank alone sends to itself
        const auto index = static_cast<std::size_t>(rank);
        sends.push_back(all[rank].send(out[index], (rank + 1) % size));
        receives.push_back(all[rank].recv(in[index], (rank + size - 1) % size));
      }
      for (auto& send : sends) CHECK(all.outcome(send).code == errc{});
      for (auto& receive : receives) CHECK(all.outcome(receive).code == errc{});
      for (std::size_t i = 0; i < count; ++i) CHECK(in[i] == out[(i + count - 1) % count]);
      auto self_send = all[0].send(out[0], 0, 7);
      auto self_receive = all[0].recv(in[0], 0, 7);
      CHECK(all.outcome(self_send).code == errc{});
      CHECK(all.outcome(self_receive).code == errc{});
      CHECK(in[0] == out[0]);
    }
    std::vector<char> one(1);
    for (const int wrong : {-1, size, size + 1000}) {
      auto send = all[0].send(one, wrong);
      auto receive = all[0].recv(one, wrong);
      CHECK(all.outcome(send).code == errc::invalid_argument);
      CHECK(all.outcome(receive).code == errc::invalid_argument);
    }
    all.expect_spares_work(size);
  }
}

template <class World>
void receives_from_any_tag() {
  ranks<World> all(3);
  std::vector<char> in(2 * long_message);
  const auto receive = [&](colls::peer source, colls::recv_tag tag) {
    auto receiving = all[0].recv(in, source, tag);
    return colls::sync_wait(all.world, receiving);
  };
  for (const std::size_t length : {std::size_t{0}, short_message, long_message}) {
    CAPTURE(length);
    const std::vector<char> out = sample(length, 5);
    {  // the messages come first: the oldest of a source is taken
      std::vector<colls::operation<>> sends;
      for (const int tag : {7, 3, 7}) sends.push_back(all[1].send(out, 0, tag));
      sends.push_back(all[2].send(out, 0, 9));
      all.poll(50);
      CHECK(receive(1, 3).tag == 3);
      CHECK(receive(1, colls::any_tag).tag == 7);
      CHECK(receive(2, colls::any_tag).tag == 9);
      const colls::received last = receive(colls::any_source, colls::any_tag);
      CHECK(last.tag == 7);
      CHECK(last.source == 1);
      CHECK(last.count == length);
      CHECK(std::equal(out.begin(), out.end(), in.begin()));
      for (auto& send : sends) CHECK(all.outcome(send).code == errc{});
    }
    {  // the receives come first: the oldest that fits takes a message
      std::vector<std::vector<char>> buffers(4, std::vector<char>(length));
      std::vector<colls::operation<colls::received>> receives;
      receives.push_back(all[0].recv(buffers[0], 2, colls::any_tag));
      receives.push_back(all[0].recv(buffers[1], colls::any_source, colls::any_tag));
      receives.push_back(all[0].recv(buffers[2], 1, 4));
      receives.push_back(all[0].recv(buffers[3], 1, colls::any_tag));
      {
        auto dropped = all[0].recv(in, 1, colls::any_tag);
      }
      all.poll(20);
      std::vector<colls::operation<>> sends;
      for (const int tag : {4, 4, 6}) {
        sends.push_back(all[1].send(out, 0, tag));
        all.poll(50);
      }
      sends.push_back(all[2].send(out, 0, 8));
      const int tags[] = {8, 4, 4, 6};
      for (std::size_t i = 0; i < 4; ++i) {
        CAPTURE(i);
        const colls::received got = colls::sync_wait(all.world, receives[i]);
        CHECK(got.tag == tags[i]);
        CHECK(got.source == (i == 0 ? 2 : 1));
        CHECK(buffers[i] == out);
      }
      for (auto& send : sends) CHECK(all.outcome(send).code == errc{});
    }
  }
  auto waiting = all[0].recv(in, 1, colls::any_tag);
  all[0].revoke("enough");
  CHECK(all.outcome(waiting).code == errc::revoked);
  all.expect_spares_work(3);
}

template <class World>
void probes_take_messages() {
  using message = colls::probed_message<
      typename std::remove_reference_t<decltype(std::declval<ranks<World>&>()[0])>::transport_type>;
  for (const std::size_t length : {std::size_t{0}, short_message, long_message}) {
    CAPTURE(length);
    ranks<World> all(3);
    const std::vector<char> first = sample(length, 1);
    const std::vector<char> second = sample(length, 2);
    std::vector<char> in(length);
    const auto wait = [&](auto operation) { return colls::sync_wait(all.world, operation); };
    const auto code_of = [&](auto operation) { return all.outcome(operation).code; };
    for (const bool probe_is_first : {false, true}) {
      CAPTURE(probe_is_first);
      std::optional<colls::operation<message>> early;
      if (probe_is_first) early = all[0].probe(1, 5);
      all.poll(5);
      auto send = all[1].send(first, 0, 5);
      all.poll(50);
      if (!early) early = all[0].probe(colls::any_source, colls::any_tag);
      message probed = wait(std::move(*early));
      CHECK(probed.source() == 1);
      CHECK(probed.tag() == 5);
      CHECK(probed.bytes() == length);
      // It is off the list: a receive takes the next message, and out of order works.
      auto other = all[0].recv(in, 1, 6);
      auto next = all[1].send(second, 0, 6);
      CHECK(wait(std::move(other)).tag == 6);
      CHECK(in == second);
      CHECK(code_of(std::move(next)) == errc{});
      message moved = std::move(probed);
      CHECK(code_of(probed.recv(in)) == errc::cancelled);
      const colls::received got = wait(moved.recv(in));
      CHECK(got.source == 1);
      CHECK(got.tag == 5);
      CHECK(got.count == length);
      CHECK(in == first);
      CHECK(all.outcome(send).code == errc{});
      CHECK(code_of(moved.recv(in)) == errc::invalid_argument);
      CHECK(code_of(moved.template recv_vector<char>()) == errc::invalid_argument);
    }
    {  // two messages of one key, received in the other order
      auto one = all[1].send(first, 0, 5);
      auto two = all[1].send(second, 0, 5);
      message older = wait(all[0].probe(1, 5));
      if (length > colls::eager_limit || length == 0) {
        CHECK(wait(all[0].recv(in, 1, 5)).count == length);
        CHECK(in == second);
      }
      CHECK(wait(older.template recv_vector<char>()) == first);
      if (length == short_message) CHECK(wait(all[0].template recv_vector<char>(1, 5)) == second);
      CHECK(all.outcome(one).code == errc{});
      CHECK(all.outcome(two).code == errc{});
    }
    {  // messages that are discarded: only a sender that waits with its message is told
      auto send = all[1].send(first, 0, 5);
      all.poll(50);
      {
        const message dropped = wait(all[0].probe(1, 5));
      }
      const errc sent = all.outcome(send).code;
      CHECK((sent == errc::cancelled || (sent == errc{} && length <= colls::eager_limit)));
      auto unawaited = all[1].send(first, 0, 5);
      {
        auto dropped = all[0].probe(1, 5);
        all.poll(50);
      }
      const errc result = all.outcome(unawaited).code;
      CHECK((result == errc::cancelled || (result == errc{} && length <= colls::eager_limit)));
      {
        auto dropped = all[0].probe(1, 5);
      }
      // Dropped when its message may have come, and the probe has not ended yet.
      auto probing = all[0].probe(1, 5);
      all.poll(5);
      auto matched = all[1].send(first, 0, 5);
      {
        auto dropped = std::move(probing);
      }
      auto next = all[0].recv(in, 1, 5);
      all.poll(50);
      const bool is_lost = !next.done();  // the probe had matched the message
      auto another = all[1].send(second, 0, 5);
      CHECK(all.outcome(next).code == errc{});
      const errc code = all.outcome(matched).code;
      CHECK((code == errc{} || code == errc::cancelled));
      CHECK((code == errc{} || is_lost));
      if (!is_lost) CHECK(code_of(all[0].recv(in, 1, 5)) == errc{});
      CHECK(all.outcome(another).code == errc{});
      CHECK(in == second);
    }
    {  // a sender that cancels its message
      std::optional<colls::operation<>> send = all[1].send(first, 0, 5);
      all.poll(50);
      message probed = wait(all[0].probe(1, 5));
      const bool waits = !send->done();
      send.reset();
      all.poll(50);
      const errc result = code_of(probed.recv(in));
      CHECK(result == (waits ? errc::cancelled : errc{}));
    }
    {  // vectors: of the length of the message, no longer than allowed, of whole elements
      auto send = all[2].send(first, 0, 1);
      CHECK(wait(all[0].template recv_vector<char>(colls::any_source, colls::any_tag)) == first);
      CHECK(all.outcome(send).code == errc{});
      auto waiting = all[0].template recv_vector<char>(2, 1, length);
      all.poll(10);
      auto sent_later = all[2].send(first, 0, 1);
      CHECK(wait(std::move(waiting)) == first);
      CHECK(all.outcome(sent_later).code == errc{});
      if (length > 0) {
        auto too_long = all[2].send(first, 0, 1);
        const failure why = [&] {
          auto receiving = all[0].template recv_vector<char>(2, 1, length - 1);
          return all.outcome(receiving);
        }();
        CHECK(why.code == errc::truncated);
        CHECK(why.culprit == 2);
        CHECK(all.outcome(too_long).code == errc{});
        const std::vector<char> odd(length + 1);
        auto of_another_type = all[2].send(odd, 0, 1);
        CHECK(code_of(all[0].template recv_vector<int>(2, 1)) == errc::mismatch);
        CHECK(all.outcome(of_another_type).code == errc{});
        auto into_a_short_buffer = all[2].send(first, 0, 1);
        message probed = wait(all[0].probe(2, 1));
        CHECK(code_of(probed.recv(std::span(in).first(length - 1))) == errc::truncated);
        CHECK(all.outcome(into_a_short_buffer).code == errc{});
      }
    }
    CHECK(code_of(all[0].probe(3, 1)) == errc::invalid_argument);
    CHECK(code_of(all[0].probe(1, -1)) == errc::invalid_argument);
    CHECK(code_of(all[0].template recv_vector<char>(-1, 1)) == errc::invalid_argument);
    all.expect_spares_work(3);
    {  // a probe waits, and a message is held, as the communicator fails and is closed
      auto send = all[1].send(first, 0, 5);
      message probed = wait(all[0].probe(1, 5));
      auto probing = all[0].probe(1, 6);
      auto receiving = all[0].template recv_vector<char>(1, 6);
      all.poll(10);
      all[0].revoke("enough");
      CHECK(all.outcome(probing).code == errc::revoked);
      CHECK(all.outcome(receiving).code == errc::revoked);
      const errc received = code_of(probed.recv(in));
      CHECK((received == errc::revoked || received == errc::cancelled));
      const errc sent = all.outcome(send).code;
      CHECK((sent == errc::revoked || (sent == errc{} && length <= colls::eager_limit)));
      auto spare_send = all.spare(1).send(first, 0, 5);
      message held = wait(all.spare(0).probe(1, 5));
      auto closing = all.spare(0).close();
      CHECK(all.outcome(closing).code == errc{});
      CHECK(code_of(held.recv(in)) == errc::cancelled);
      const errc left = all.outcome(spare_send).code;
      CHECK((left == errc::closed || (left == errc{} && length <= colls::eager_limit)));
    }
  }
}

template <class World>
void a_message_is_withdrawn_while_it_is_probed() {
  const std::vector<char> first = sample(long_message, 1);
  const std::vector<char> second = sample(short_message, 2);
  for (int polls = 0; polls < 8; ++polls) {
    for (const bool probes : {false, true}) {
      CAPTURE(polls);
      CAPTURE(probes);
      ranks<World> all(2);
      auto receiving = all[0].template recv_vector<char>(1, 5);
      auto probing = all[0].probe(1, 6);
      {
        auto withdrawn = all[1].send(first, 0, probes ? 6 : 5);
        all.poll(polls);
      }
      auto sending = all[1].send(second, 0, probes ? 6 : 5);
      // If the first message was already on its way, dropping its send has ended the communicator.
      failure why = probes ? all.outcome(probing) : all.outcome(receiving);
      CAPTURE(std::string(why.detail));
      CHECK((why.code == errc{} || why.code == errc::cancelled));
      why = all.outcome(sending);
      CHECK((why.code == errc{} || why.code == errc::cancelled));
    }
  }
}

/// Runs everything over one kind of world.
template <class World>
void passes() {
  SUBCASE("a rank dies") { a_rank_dies<World>(); }
  SUBCASE("revoke") { revoke_ends_sends_and_receives<World>(); }
  SUBCASE("mismatch") { calls_that_differ_end_on_all_ranks<World>(); }
  SUBCASE("dropped operations") { dropped_operations_are_withdrawn_or_revoke<World>(); }
  SUBCASE("leaving") { a_rank_leaves_while_its_messages_are_unread<World>(); }
  SUBCASE("ten thousand operations") { ten_thousand_operations<World>(); }
  SUBCASE("every length") { messages_of_every_length<World>(); }
  SUBCASE("any tag") { receives_from_any_tag<World>(); }
  SUBCASE("probes") { probes_take_messages<World>(); }
  SUBCASE("withdrawn while probed") { a_message_is_withdrawn_while_it_is_probed<World>(); }
}

}  // namespace transport_suite
