// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>

#include "../support/communicators.hpp"

#include <vector>

// Several sends and receives as one operation.

namespace {

using colls::errc;
using colls::received;
using colls::transfer;
using colls::inproc::communicator;

TEST_CASE("all ranks exchange messages with all others by one operation each") {
  for (const std::size_t length : {std::size_t{1}, std::size_t{100'000}}) {
    CAPTURE(length);
    colls::inproc::run(4, [&](communicator& comm) -> colls::task<> {
      const auto ranks = static_cast<std::size_t>(comm.size());
      const std::vector<int> out(length, comm.rank());
      std::vector<std::vector<int>> in(ranks, std::vector<int>(length));
      std::vector<transfer> transfers;
      for (int rank = 0; rank < comm.size(); ++rank) {
        transfers.push_back(transfer::recv(in[static_cast<std::size_t>(rank)], rank, 7));
        transfers.push_back(transfer::send(out, rank, 7));
      }
      const std::vector<received> results = co_await comm.batch(transfers);
      REQUIRE(results.size() == 2 * ranks);
      for (std::size_t i = 0; i < ranks; ++i) {
        CHECK(results[2 * i].source == static_cast<int>(i));
        CHECK(results[2 * i].count == length);
        CHECK(results[2 * i].tag == 7);
        CHECK(in[i] == std::vector<int>(length, static_cast<int>(i)));
      }
      co_await comm.batch({});
    });
  }
}

TEST_CASE("a batch with a wrong argument starts nothing") {
  communicators all(2);
  std::vector<int> data(3);
  const transfer good[] = {transfer::recv(data, colls::any_source, colls::any_tag)};
  for (const transfer& bad :
       {transfer::send(data, 2), transfer::send(data, 0, -1), transfer::recv(data, -1)}) {
    const transfer both[] = {transfer::send(data, 1), bad};
    auto refused = all[0].batch(both);
    const colls::failure why = failure_of(all, refused);
    CHECK(why.code == errc::invalid_argument);
    CHECK(says(why, "transfer 2 of 2"));
  }
  auto waits = all[1].batch(good);
  all.settle();
  CHECK_FALSE(waits.done());
  {
    auto dropped = std::move(waits);
  }  // withdraws the receive
  all.check_good();
}

TEST_CASE("a batch takes strided views and memory of its communicator") {
  communicators all(2);
  std::vector<int> out{1, 0, 2, 0, 3};
  std::vector<int> in(9, -1);
  const transfer sends[] = {transfer::send(colls::strided_view(out.data(), {3}, {2}), 1)};
  const transfer receives[] = {transfer::recv(colls::strided_view(in.data() + 8, {3}, {-4}), 0)};
  auto sent = all[0].batch(sends);
  auto received = all[1].batch(receives);
  all.wait(sent);
  CHECK(all.wait(received)[0].count == 3);
  CHECK(in == std::vector<int>{3, -1, -1, -1, 2, -1, -1, -1, 1});

  auto memory = all[0].allocate<int>(4);
  const auto part = all[0].register_buffer(memory, 1, 2);
  const transfer own[] = {transfer::send(part, 1)};
  auto accepted = all[0].batch(own);
  auto taken = all[1].recv(in, 0);
  all.wait(taken);
  all.wait(accepted);
  auto refused = all[1].batch(own);
  CHECK(failure_of(all, refused).code == errc::invalid_argument);
  memory = {};
  auto late = all[0].batch(std::vector{transfer::send(part, 1)});
  CHECK(failure_of(all, late).code == errc::invalid_argument);
  const transfer overlapping[] = {transfer::recv(colls::strided_view(in.data(), {3}, {0}), 0)};
  auto shared = all[1].batch(overlapping);
  CHECK(says(failure_of(all, shared), "share memory"));
  all.check_good();
}

TEST_CASE("a batch ends when all of it has ended, and fails if a part has failed") {
  communicators all(2);
  std::vector<int> out(5, 9);
  std::vector<int> small(3);
  std::vector<int> in(5);
  const transfer receives[] = {transfer::recv(small, 1, 1), transfer::recv(in, 1, 2)};
  auto batch = all[0].batch(receives);
  auto first = all[1].send(out, 0, 1);
  all.settle();
  CHECK_FALSE(batch.done());
  auto second = all[1].send(out, 0, 2);
  const colls::failure why = failure_of(all, batch);
  CHECK(why.code == errc::truncated);
  CHECK(says(why, "transfer 1 of 2"));
  CHECK(in == out);
  all.wait(first);
  all.wait(second);
  auto revoked = all[0].batch(receives);
  all[1].revoke("enough");
  CHECK(failure_of(all, revoked).code == errc::revoked);
  auto late = all[0].batch(receives, {.timeout = colls::time_span::from_nanoseconds(1000000)});
  CHECK(failure_of(all, late).code == errc::revoked);
}

TEST_CASE("a part of a batch that makes no progress is named, not the batch") {
  communicators all(2);
  all[0].underlying_core().state().inactivity = 50 * colls::milliseconds;
  std::vector<int> in(5);
  const transfer receives[] = {transfer::recv(in, 1, 7)};
  auto late = all[0].batch(receives);
  const colls::failure why = failure_of(all, late);
  CHECK(why.code == errc::timeout);
  CHECK(why.culprit == 1);
  CHECK(says(why, "tag 7"));
}

TEST_CASE("a batch has a deadline") {
  communicators all(2);
  std::vector<int> in(5);
  const transfer receives[] = {transfer::recv(in, 1, 1)};
  auto late = all[0].batch(receives, {.timeout = colls::time_span::from_nanoseconds(20000000)});
  CHECK(failure_of(all, late).code == errc::timeout);
  all.check_good();
}

}  // namespace
