// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>
#include <colls/stop_when.hpp>

#include "../support/communicators.hpp"

#include <numeric>
#include <optional>

// Collectives that are prepared once and started many times.

namespace {

using colls::errc;
using colls::strided_view;
using colls::inproc::communicator;

TEST_CASE("a prepared call is started again and again") {
  colls::inproc::run(3, [](colls::inproc::communicator& comm) -> colls::task<> {
    std::vector<double> v(4);
    auto step = comm.prepare_all_reduce(v);
    for (int i = 0; i < 100; ++i) {
      v.assign(4, i);
      co_await step.start();
      CHECK(v == std::vector<double>(4, 3 * i));
    }
  });
}

/// Starts the call that `prepare` prepares on each rank twice, with other contents of the buffers.
template <class Prepare, class Reset, class Check>
void twice(int size, const Prepare& prepare, const Reset& reset, const Check& check) {
  communicators all(size);
  std::vector<decltype(prepare(all[0]))> calls;
  for (int rank = 0; rank < size; ++rank) calls.push_back(prepare(all[rank]));
  for (int round = 1; round <= 2; ++round) {
    reset(round);
    std::vector<colls::operation<>> started;
    for (auto& each : calls) started.push_back(each.start());
    for (auto& each : started) all.wait(each);
    check(round);
  }
}

void every_collective() {
  constexpr int size = 3;
  std::vector<std::vector<int>> in(size), out(size), wide(size);
  const auto reset = [&](int round) {
    for (std::size_t rank = 0; rank < size; ++rank) {
      in[rank].assign(2, round * 10 + static_cast<int>(rank));
      out[rank].assign(2, -1);
      wide[rank].assign(6, round * 10 + static_cast<int>(rank));
    }
  };
  reset(0);
  const auto at = [](auto& lists, communicator& comm) -> std::vector<int>& {
    return lists[static_cast<std::size_t>(comm.rank())];
  };
  const auto sum = [](int round) { return 30 * round + 3; };
  const int root = 1;
  const std::vector<int> all_of_round[] = {{}, {10, 10, 11, 11, 12, 12}, {20, 20, 21, 21, 22, 22}};
  const auto all = [&](int round) { return all_of_round[round]; };

  twice(
      size, [&](communicator& comm) { return comm.prepare_all_reduce(at(in, comm)); }, reset,
      [&](int round) { CHECK(in[2] == std::vector<int>(2, sum(round))); });
  twice(
      size,
      [&](communicator& comm) { return comm.prepare_all_reduce(at(in, comm), colls::maximum{}); },
      reset, [&](int round) { CHECK(in[0] == std::vector<int>(2, 10 * round + 2)); });
  twice(
      size,
      [&](communicator& comm) { return comm.prepare_all_reduce(at(in, comm), at(out, comm)); },
      reset, [&](int round) { CHECK(out[0] == std::vector<int>(2, sum(round))); });
  twice(
      size,
      [&](communicator& comm) {
        return comm.prepare_all_reduce(std::span(at(in, comm)), at(out, comm), colls::minimum{},
                                       {.algorithm = colls::algorithm::linear});
      },
      reset, [&](int round) { CHECK(out[1] == std::vector<int>(2, 10 * round)); });
  twice(
      size, [&](communicator& comm) { return comm.prepare_reduce(at(in, comm), root); }, reset,
      [&](int round) { CHECK(in[1] == std::vector<int>(2, sum(round))); });
  twice(
      size,
      [&](communicator& comm) {
        return comm.prepare_reduce(at(in, comm), at(out, comm), root, colls::plus{});
      },
      reset, [&](int round) { CHECK(out[1] == std::vector<int>(2, sum(round))); });
  twice(
      size,
      [&](communicator& comm) {
        return comm.prepare_reduce_scatter(at(wide, comm), at(out, comm));
      },
      reset, [&](int round) { CHECK(out[2] == std::vector<int>(2, sum(round))); });
  twice(
      size, [&](communicator& comm) { return comm.prepare_scan(at(in, comm)); }, reset,
      [&](int round) { CHECK(in[1] == std::vector<int>(2, 20 * round + 1)); });
  twice(
      size, [&](communicator& comm) { return comm.prepare_exscan(at(in, comm), colls::plus{}); },
      reset, [&](int round) { CHECK(in[2] == std::vector<int>(2, 20 * round + 1)); });
  twice(
      size, [&](communicator& comm) { return comm.prepare_broadcast(at(in, comm), root); }, reset,
      [&](int round) { CHECK(in[2] == std::vector<int>(2, 10 * round + 1)); });
  twice(size, [&](communicator& comm) { return comm.prepare_barrier(); }, reset, [](int) {});
  twice(
      size,
      [&](communicator& comm) { return comm.prepare_all_gather(at(in, comm), at(wide, comm)); },
      reset, [&](int round) { CHECK(wide[0] == all(round)); });
  twice(
      size,
      [&](communicator& comm) { return comm.prepare_gather(at(in, comm), at(wide, comm), root); },
      reset, [&](int round) { CHECK(wide[1] == all(round)); });
  twice(
      size,
      [&](communicator& comm) { return comm.prepare_scatter(at(wide, comm), at(out, comm), root); },
      reset, [&](int round) { CHECK(out[2] == std::vector<int>(2, 10 * round + 1)); });
  std::vector<std::vector<int>> exchanged(size, std::vector<int>(6));
  twice(
      size,
      [&](communicator& comm) {
        return comm.prepare_all_to_all(at(wide, comm), at(exchanged, comm));
      },
      reset, [&](int round) { CHECK(exchanged[2] == all(round)); });
  twice(  // every second element
      size,
      [&](communicator& comm) {
        return comm.prepare_all_reduce(strided_view(at(wide, comm).data(), {3}, {2}));
      },
      reset,
      [&](int round) {
        CHECK(wide[1] == std::vector<int>{sum(round), 10 * round + 1, sum(round), 10 * round + 1,
                                          sum(round), 10 * round + 1});
      });
}

TEST_CASE("every collective can be prepared") { every_collective(); }

TEST_CASE("a prepared call is numbered when it is started, and mixes with plain calls") {
  communicators all(2);
  std::vector<int> first(1), second(1), third(1);
  std::vector<int> plain[3] = {{10}, {20}, {30}};
  auto prepared = all[0].prepare_all_reduce(second);  // the second call that is made
  auto later = all[0].prepare_all_reduce(third);
  auto calls = std::vector<colls::operation<>>();
  calls.push_back(all[0].all_reduce(first));
  calls.push_back(prepared.start());
  calls.push_back(later.start());
  for (auto& each : plain) calls.push_back(all[1].all_reduce(each));
  for (auto& each : calls) all.wait(each);
  CHECK(first[0] == 10);
  CHECK(second[0] == 20);
  CHECK(third[0] == 30);
}

TEST_CASE("a prepared call that is in flight is not started again") {
  communicators all(2);
  std::vector<int> data[2] = {{1}, {2}};
  auto step = all[0].prepare_all_reduce(data[0]);
  auto running = step.start();
  auto refused = step.start();
  REQUIRE(refused.done());
  const colls::failure why = failure_of(all, refused);
  CHECK(why.code == errc::invalid_argument);
  CHECK(says(why, "was not awaited"));
  auto peer = all[1].all_reduce(data[1]);
  all.wait(peer);
  all.wait(running);
  CHECK(data[0][0] == 3);
  auto again = step.start();
  auto peer_again = all[1].all_reduce(data[1]);
  all.wait(peer_again);
  all.wait(again);
  CHECK(data[0][0] == 6);
  auto moved = std::move(step);
  auto of_moved = step.start();  // NOLINT
  CHECK(says(failure_of(all, of_moved), "was moved"));
  auto third = moved.start();
  auto peer_third = all[1].all_reduce(data[1]);
  all.wait(peer_third);
  all.wait(third);
  CHECK(data[0][0] == 12);
  all.check_good();
}

TEST_CASE(
    "a prepared call whose operation has ended is started again when that was awaited or dropped") {
  communicators all(1);  // operations end at once
  std::vector<int> data{1};
  auto step = all[0].prepare_all_reduce(data);
  std::optional<colls::operation<>> first(step.start());
  CHECK(first->done());
  auto refused = step.start();
  CHECK(says(failure_of(all, refused), "was not awaited"));
  all.wait(*first);
  std::optional<colls::operation<>> second(step.start());
  auto moved = std::move(step);
  auto refused_again = moved.start();
  CHECK(says(failure_of(all, refused_again), "was not awaited"));
  first.reset();  // an older operation
  auto still_refused = moved.start();
  CHECK(says(failure_of(all, still_refused), "was not awaited"));
  second.reset();
  auto third = moved.start();
  all.wait(third);
}

TEST_CASE("a prepared call may be destroyed while its operation is in flight") {
  communicators all(2);
  std::vector<int> data[2] = {{1}, {2}};
  std::optional<colls::operation<>> running;
  {
    auto step = all[0].prepare_all_reduce(data[0]);
    running.emplace(step.start());
  }
  auto peer = all[1].all_reduce(data[1]);
  all.wait(peer);
  all.wait(*running);
  CHECK(data[0][0] == 3);
  auto step = all[0].prepare_all_reduce(data[0]);
  {
    auto dropped = step.start();  // ends the communicator, and the call in it
  }
  auto late = step.start();
  CHECK(failure_of(all, late).code == errc::cancelled);
}

TEST_CASE("a prepared call fails as a plain one does") {
  communicators all(2);
  std::vector<int> data(1);
  auto wrong = all[0].prepare_broadcast(data, 2);
  auto refused = wrong.start();
  CHECK(failure_of(all, refused).code == errc::invalid_argument);
  all.check_good();
  auto step = all[0].prepare_all_reduce(data);
  auto running = step.start();
  all[1].revoke("enough");
  CHECK(failure_of(all, running).code == errc::revoked);
  auto late = step.start();
  CHECK(failure_of(all, late).code == errc::revoked);
  auto empty = communicator();
  auto nowhere = empty.prepare_barrier();
  CHECK_THROWS_AS((void)nowhere.start(), colls::error);
}

TEST_CASE("the operation of a prepared call can be stopped") {
  communicators all(2);
  std::vector<int> data(1);
  auto step = all[0].prepare_all_reduce(data);
  std::stop_source source;
  auto stopped = colls::stop_when(source.get_token(), step.start());
  source.request_stop();
  CHECK(failure_of(all, stopped).code == errc::cancelled);
  auto late = step.start();
  CHECK(failure_of(all, late).code == errc::cancelled);
}

}  // namespace
