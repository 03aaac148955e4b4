// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The carrier of UCX: what every transport promises, over UCX, and what is special to UCX.
#include <colls/transport/ucx.hpp>

#include <fstream>
#include <string>

#include "../../support/ucx_world.hpp"
#include "../suite.hpp"

using colls::errc;

TEST_CASE("processes over UCX") { transport_suite::passes<ucx_world>(); }
TEST_CASE("processes over UCX with checksums") { transport_suite::passes<checked_ucx_world>(); }

namespace {

std::vector<char> pattern(std::size_t size) {
  std::vector<char> data(size);
  for (std::size_t i = 0; i < size; ++i) data[i] = static_cast<char>(i * 7 + i / 251);
  return data;
}

template <class World>
using communicator = decltype(std::declval<World&>().communicator_of(0));

template <class World>
std::vector<communicator<World>> communicators(World& world) {
  std::vector<communicator<World>> all;
  for (int rank = 0; rank < world.size(); ++rank) all.push_back(world.communicator_of(rank));
  return all;
}

std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  statm >> size >> resident;
  return resident * 4096;
}

}  // namespace

TEST_CASE("messages between two ranks go through UCX, and only they") {
  ucx_world world(2);
  auto ranks = communicators(world);
  const std::vector<char> sent = pattern(5'000'000);
  std::vector<char> came(sent.size());
  for (const std::size_t size : {std::size_t{100}, sent.size()}) {
    const auto before = colls::ucx::counted_traffic();
    auto receive = ranks[1].recv(std::span(came).first(size), 0);
    auto send = ranks[0].send(std::span(sent).first(size), 1);
    colls::sync_wait(world, send);
    colls::sync_wait(world, receive);
    const auto after = colls::ucx::counted_traffic();
    CHECK(after.bytes_sent - before.bytes_sent >= size);
    CHECK(after.bytes_sent - before.bytes_sent < size + 1000);
    CHECK(after.bytes_received - before.bytes_received == after.bytes_sent - before.bytes_sent);
  }
  CHECK(came == sent);
  const auto before = colls::ucx::counted_traffic();
  auto receive = ranks[0].recv(came, 0);
  auto send = ranks[0].send(sent, 0);
  colls::sync_wait(world, send);
  colls::sync_wait(world, receive);
  CHECK(colls::ucx::counted_traffic().messages_sent == before.messages_sent);
}

// Views are packed, and folded by their receive, in pieces.
TEST_CASE("strided data of many pieces arrives, and sums of elements that pieces cut") {
  struct odd {  // 1 MiB is no multiple of its size
    std::int32_t values[7];
    bool operator==(const odd&) const = default;
  };
  ucx_world world(2);
  auto ranks = communicators(world);
  const std::size_t rows = 300'000;
  std::vector<int> sent(3 * rows);
  std::vector<int> came(3 * rows, -1);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<int>(i);
  auto receive = ranks[1].recv(colls::strided_view(came.data(), {rows, 2}, {3, 1}), 0);
  auto send = ranks[0].send(colls::strided_view(sent.data(), {rows, 2}, {3, 1}), 1);
  colls::sync_wait(world, send);
  colls::sync_wait(world, receive);
  for (std::size_t i = 0; i < came.size(); ++i) {
    REQUIRE(came[i] == (i % 3 < 2 ? static_cast<int>(i) : -1));
  }
  const auto add = [](odd a, const odd& b) {
    for (int i = 0; i < 7; ++i) a.values[i] += b.values[i];
    return a;
  };
  const std::size_t count = 200'000;
  std::vector<odd> of_rank[2] = {std::vector<odd>(count), std::vector<odd>(count)};
  for (std::size_t i = 0; i < count; ++i) {
    for (int j = 0; j < 7; ++j) {
      of_rank[0][i].values[j] = static_cast<int>(i) + j;
      of_rank[1][i].values[j] = 1000;
    }
  }
  auto first = ranks[0].all_reduce(of_rank[0], add);
  auto second = ranks[1].all_reduce(of_rank[1], add);
  colls::sync_wait(world, first);
  colls::sync_wait(world, second);
  for (std::size_t i = 0; i < count; ++i) {
    for (int j = 0; j < 7; ++j) REQUIRE(of_rank[0][i].values[j] == static_cast<int>(i) + j + 1000);
  }
  CHECK(of_rank[0] == of_rank[1]);
}

TEST_CASE("a flood of messages that nothing receives takes no more than the window") {
  ucx_world world(2);
  auto ranks = communicators(world);
  constexpr int count = 20'000;
  const std::vector<char> sent = pattern(16 * 1024);
  std::vector<colls::operation<>> sends;
  sends.reserve(count);
  for (int i = 0; i < 100; ++i) sends.push_back(ranks[0].send(sent, 1));
  for (int i = 0; i < 1000; ++i) world.poll();
  const std::size_t before = resident_bytes();
  for (int i = 100; i < count; ++i) sends.push_back(ranks[0].send(sent, 1));
  for (int i = 0; i < 10'000; ++i) world.poll();
  // All messages together have 312 MiB. What remains are the records of 20,000 operations.
  CHECK(resident_bytes() < before + (std::size_t{60} << 20));
  std::vector<char> came(sent.size());
  for (int i = 0; i < count; ++i) {
    auto receive = ranks[1].recv(came, 0);
    colls::sync_wait(world, receive);
    REQUIRE(came == sent);
  }
}

// A transfer in motion ends with the help of its peer, or after 200 ms by force.
TEST_CASE("an operation that is dropped at any moment leaves its memory alone") {
  for (const std::size_t size : {std::size_t{1000}, std::size_t{100'000}, std::size_t{3'000'000}}) {
    for (const bool drops_send : {true, false}) {
      for (int polls = 0; polls < 24; polls += polls < 6 ? 1 : 4) {
        CAPTURE(size);
        CAPTURE(drops_send);
        CAPTURE(polls);
        ucx_world world(2);
        auto ranks = communicators(world);
        auto out = std::make_unique<std::vector<char>>(pattern(size));
        auto in = std::make_unique<std::vector<char>>(size);
        std::optional send(ranks[0].send(*out, 1));
        std::optional receive(ranks[1].recv(*in, 0));
        for (int i = 0; i < polls; ++i) world.poll();
        const colls::time_point began = world.on().now();
        if (drops_send) {
          send.reset();
          std::fill(out->begin(), out->end(), 'x');
          out.reset();
        } else {
          receive.reset();
          std::fill(in->begin(), in->end(), 'x');
          const std::vector<char> unchanged = *in;
          for (int i = 0; i < 200; ++i) world.poll();
          CHECK(*in == unchanged);
          in.reset();
        }
        CHECK(world.on().now() - began < colls::seconds);
        for (int i = 0; i < 200; ++i) world.poll();
      }
    }
  }
}
