// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/call/start_call.hpp>

#include "../support/communicators.hpp"
#include "../support/tcp_ranks.hpp"

#include <span>
#include <vector>

// One all_reduce of a list of buffers.

namespace {

using colls::errc;
using colls::task;

template <class T>
T as(int number) {
  return static_cast<T>(static_cast<float>(number));
}

/// Reduces buffers of these lengths, and checks every element.
template <class T, class Communicator>
task<> check_list(Communicator& comm, std::vector<std::size_t> lengths, colls::options opts = {}) {
  std::vector<std::vector<T>> data;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    data.emplace_back(lengths[i], as<T>(comm.rank() + static_cast<int>(i % 50)));
    if (lengths[i] > 1) data.back().back() = as<T>(1);
  }
  const std::vector<std::span<T>> spans(data.begin(), data.end());
  co_await comm.all_reduce(std::span<const std::span<T>>(spans), opts);
  const int ranks = comm.size();
  bool is_right = true;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const int sum = ranks * (ranks - 1) / 2 + ranks * static_cast<int>(i % 50);
    for (std::size_t k = 0; k < lengths[i]; ++k) {
      const bool is_last = lengths[i] > 1 && k + 1 == lengths[i];
      is_right &= data[i][k] == as<T>(is_last ? ranks : sum);
    }
  }
  CHECK(is_right);
}

template <class Communicator>
task<> check_lists(Communicator& comm) {
  const std::vector<std::vector<std::size_t>> cases{
      {},
      {0},
      {0, 3, 0, 1},
      {100'000, 3, 0, 200'000, 5, 7, 300'000},
      {0, 20'000, 0, 1, 16'384, 16'385, 1},
      std::vector<std::size_t>(10'000, 3),
      std::vector<std::size_t>(300, 8193),
      std::vector<std::size_t>(100, 20'000),
  };
  for (const std::vector<std::size_t>& lengths : cases) {
    co_await check_list<float>(comm, lengths);
    co_await check_list<colls::float16>(comm, lengths);
  }
  colls::options opts;
  opts.algorithm = colls::algorithm::ring;
  opts.segment = 4096;
  co_await check_list<double>(comm, cases[3], opts);
}

TEST_CASE("lists of all lengths") {
  for (const int ranks : {1, 2, 5}) {
    colls::inproc::run(ranks, [](colls::inproc::communicator& comm) { return check_lists(comm); });
  }
  ranks<tcp_world> sockets(3);
  sockets.run([](communicator& comm) { return check_lists(comm); });
  ranks<shm_world> shared(3);
  shared.run([](communicator& comm) { return check_lists(comm); });
}

TEST_CASE("a list of vectors, with an operation and with options") {
  colls::inproc::run(3, [](colls::inproc::communicator& comm) -> task<> {
    std::vector<std::vector<int>> data{{comm.rank()}, {1, 2}};
    co_await comm.all_reduce(data, colls::maximum());
    CHECK(data == std::vector<std::vector<int>>{{2}, {1, 2}});
    co_await comm.all_reduce<colls::algorithm::ring>(data);
    CHECK(data == std::vector<std::vector<int>>{{6}, {3, 6}});
  });
}

TEST_CASE("lists that differ are a mismatch on all ranks") {
  std::vector<std::vector<int>> three(3, std::vector<int>(2));
  std::vector<std::vector<int>> with_empty{{1, 1}, {1, 1}, {1, 1}, {}};
  std::vector<std::vector<int>> other{{1, 1, 1}, {1, 1}, {1}};
  for (auto* const second : {&with_empty, &other}) {
    communicators all(2);
    auto first = all[0].all_reduce(three);
    auto differs = all[1].all_reduce(*second);
    CHECK(failure_of(all, first).code == errc::mismatch);
    CHECK(failure_of(all, differs).code == errc::mismatch);
  }
}

TEST_CASE("buffers that overlap are refused, and those that touch are not") {
  communicators all(2);
  std::vector<int> data(100);
  std::vector<int> more(100);
  const auto part = [](std::vector<int>& of, std::size_t first, std::size_t count) {
    return std::span(of).subspan(first, count);
  };
  const std::vector<std::vector<std::span<int>>> bad{
      {part(data, 0, 10), part(data, 9, 10)},
      {part(data, 5, 5), part(data, 0, 6)},
      {part(data, 0, 50), part(data, 10, 1)},
      {part(data, 0, 1), part(data, 0, 1)},
      {part(data, 40, 1), part(data, 0, 50)},
      {part(data, 0, 9), part(more, 0, 9), part(data, 3, 1)},
  };
  for (const auto& list : bad) {
    auto refused = all[0].all_reduce(list);
    CHECK(failure_of(all, refused).code == errc::invalid_argument);
    CHECK(says(refused.reason(), "two buffers of the group overlap"));
  }
  const std::vector<std::span<int>> good{part(data, 10, 10), part(data, 0, 10), part(data, 5, 0),
                                         part(data, 20, 80)};
  all.all([&](auto& comm) { return comm.all_reduce(good); });
}

}  // namespace
