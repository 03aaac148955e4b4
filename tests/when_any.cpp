// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/when_any.hpp>

#include <colls/simulated.hpp>

#include "support/communicators.hpp"
#include "support/tcp_ranks.hpp"

#include <algorithm>
#include <chrono>
#include <random>
#include <span>
#include <vector>

// Waiting for whichever operation ends first.

namespace {

using colls::errc;
using colls::operation;
using colls::received;

template <class World, class Wait>
errc code_of(World& world, Wait&& waiting) {
  try {
    (void)colls::sync_wait(world, waiting);
  } catch (const colls::error& thrown) {
    return thrown.record().code;
  }
  return {};
}

TEST_CASE("when_any gives the operation that has ended, which keeps its result") {
  communicators all(2);
  int in[3] = {};
  int out[3] = {10, 11, 12};
  auto first = all[0].recv(std::span(&in[0], 1), 1, 0);
  auto second = all[0].recv(std::span(&in[1], 1), 1, 1);
  auto sending = all[1].send(std::span(&out[1], 1), 0, 1);
  CHECK(all.wait(colls::when_any(first, second)) == 1);
  CHECK(all.wait(colls::when_any(first, second)) == 1);  // it was not consumed
  CHECK(in[1] == 11);
  CHECK(all.wait(second).count == 1);
  all.wait(sending);
  auto other = all[1].send(std::span(&out[0], 1), 0, 0);
  CHECK(all.wait(colls::when_any(first, second)) == 0);  // the second was awaited
  CHECK(all.wait(first).count == 1);
  all.wait(other);
  CHECK(code_of(all.world(), colls::when_any(first, second)) == errc::invalid_argument);
  auto moved = all[1].barrier();
  auto kept = std::move(moved);
  auto barrier = all[0].barrier();
  all.settle();
  CHECK(all.wait(colls::when_any(moved, kept, barrier)) == 1);
  CHECK(code_of(all.world(), colls::when_any(moved)) == errc::invalid_argument);
  all.wait(kept);
  all.wait(barrier);
}

TEST_CASE("of several operations that have ended when_any gives the first, wait_some all") {
  communicators all(2);
  std::vector<int> in(5);
  const std::vector<int> out{1, 2, 3, 4, 5};
  std::vector<operation<received>> receives;
  for (int i = 0; i < 5; ++i) {
    receives.push_back(all[0].recv(std::span(&in[static_cast<std::size_t>(i)], 1), 1, i));
  }
  std::vector<operation<>> sends;
  for (const int i : {4, 1, 3}) {
    sends.push_back(all[1].send(std::span(&out[static_cast<std::size_t>(i)], 1), 0, i));
  }
  all.settle();
  const std::span pending(receives);
  CHECK(all.wait(colls::wait_some(pending)) == std::vector<std::size_t>{1, 3, 4});
  CHECK(all.wait(colls::when_any(receives[0], receives[3], receives[4])) == 1);
  all.wait(receives[3]);
  CHECK(all.wait(colls::wait_some(pending)) == std::vector<std::size_t>{1, 4});
  CHECK(all.wait(colls::wait_some(pending.first(0))).empty());
  all.wait(receives[1]);
  all.wait(receives[4]);
  for (const int i : {0, 2}) {
    sends.push_back(all[1].send(std::span(&out[static_cast<std::size_t>(i)], 1), 0, i));
  }
  all.settle();
  CHECK(all.wait(colls::wait_some(pending)) == std::vector<std::size_t>{0, 2});
  for (const std::size_t i : {0U, 2U}) all.wait(receives[i]);
  CHECK(all.wait(colls::wait_some(pending)).empty());
  CHECK(in == out);
}

TEST_CASE("an operation that fails has ended, and its error comes when it is awaited") {
  communicators all(3);
  int in[2] = {};
  auto first = all[0].recv(std::span(&in[0], 1), 1);
  auto second = all[0].recv(std::span(&in[1], 1), 2, 0, {.timeout = std::chrono::milliseconds(50)});
  CHECK(all.wait(colls::when_any(first, second)) == 1);
  CHECK(code_of(all.world(), second) == errc::timeout);
  all[1].revoke("enough");
  CHECK(all.wait(colls::when_any(first, second)) == 0);
  CHECK(code_of(all.world(), first) == errc::revoked);
}

TEST_CASE("dropping the wait cancels nothing, and an operation has one waiter at a time") {
  communicators all(2);
  int in[2] = {};
  const int out[2] = {7, 8};
  auto first = all[0].recv(std::span(&in[0], 1), 1, 0);
  auto second = all[0].recv(std::span(&in[1], 1), 1, 1);
  {
    const auto wait = [](auto& one, auto& other) -> colls::task<> {
      (void)co_await colls::when_any(one, other);
    };
    colls::completion done([](colls::completion&) noexcept {}, &all.world().queue());
    colls::task<> dropped = wait(first, second);
    REQUIRE_FALSE(dropped.start(done));
    CHECK(code_of(all.world(), colls::when_any(second, first)) == errc::invalid_argument);
    CHECK(code_of(all.world(), second) == errc::invalid_argument);
  }
  auto one = all[1].send(std::span(&out[0], 1), 0, 0);
  auto other = all[1].send(std::span(&out[1], 1), 0, 1);
  all.settle();
  all.wait(first);
  all.wait(second);
  all.wait(one);
  all.wait(other);
  CHECK(in[0] == 7);
  CHECK(in[1] == 8);
  all.check_good();
}

/// Takes `count` messages in the order in which they come.
template <class Comm>
colls::task<> take_all(Comm& comm, std::size_t count, std::vector<int>& in) {
  std::vector<operation<received>> receives;
  for (std::size_t i = 0; i < count; ++i) {
    receives.push_back(comm.recv(std::span(&in[i], 1), 1, static_cast<int>(i)));
  }
  for (std::size_t taken = 0; taken < count;) {
    const std::vector<std::size_t> ended = co_await colls::wait_some(std::span(receives));
    for (const std::size_t i : ended) co_await receives[i];
    taken += ended.size();
  }
}
template <class Comm>
colls::task<> send_all(Comm& comm, std::size_t count, const std::vector<int>& out) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937(1));
  for (const std::size_t i : order) {
    co_await comm.send(std::span(&out[i], 1), 0, static_cast<int>(i));
  }
}

template <class World, class Comms>
void check_random_order(World& world, Comms& comms) {
  constexpr std::size_t count = 200;
  std::vector<int> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<int>(i * i);
  std::vector<int> in(count, -1);
  std::vector<colls::task<>> mains;
  mains.push_back(take_all(comms[0], count, in));
  mains.push_back(send_all(comms[1], count, out));
  colls::sync_wait(world, colls::when_all(std::move(mains)));
  CHECK(in == out);
}

TEST_CASE(
    "messages are taken in any order, on one thread, a simulated network and between processes") {
  {
    communicators all(2);
    check_random_order(all.world(), all);
  }
  {
    colls::simulated_world world(2);
    std::vector<colls::simulated::communicator> comms;
    for (int rank = 0; rank < 2; ++rank) comms.push_back(colls::simulated::join(world, rank));
    check_random_order(world, comms);
  }
  {
    ranks<tcp_world> all(2);
    check_random_order(all.world, all.all);
  }
  {
    ranks<shm_world> all(2);
    check_random_order(all.world, all.all);
  }
}

}  // namespace
