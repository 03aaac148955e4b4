// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>
#include <colls/simulated.hpp>
#include <colls/world.hpp>

#include "../support/communicators.hpp"
#include "../support/driven_threads.hpp"
#include "../support/inproc_ranks.hpp"
#include "../support/lack_of_memory.hpp"
#include "../support/tcp_world.hpp"
#include "../support/view_ranks.hpp"

// Strided views in groups, in lists, and in calls of unknown lengths.

namespace {

using colls::errc;
using colls::gathered;
using colls::group;
using colls::strided_view;

/// The parts of one rank, and the same elements as contiguous buffers.
template <class T>
struct parts {
  parts(const std::vector<std::size_t>& lengths, int kind, int rank) {
    for (const std::size_t length : lengths) {
      strided.emplace_back(length, kind++, rank);
      plain.push_back(values<T>(rank, length));
    }
    for (field<T>& each : strided) views.push_back(each.view());
  }

  std::vector<field<T>> strided;
  std::vector<std::vector<T>> plain;
  std::vector<strided_view<T>> views;
};

/// Reduces lists of views on all ranks, on all ranks but one, and on none. The results are equal.
template <class T, class World, class Op = colls::plus>
void lists_reduce(int size, const std::vector<std::size_t>& lengths, Op op = {},
                  const colls::options& opts = {}) {
  CAPTURE(size);
  CAPTURE(lengths.size());
  view_ranks<World> all(size);
  std::vector<parts<T>> of_ranks, mixed, expected;
  for (int rank = 0; rank < size; ++rank) {
    for (auto* const each : {&of_ranks, &mixed, &expected}) {
      each->emplace_back(lengths, rank + 1, rank);
    }
  }
  const auto of = [](auto& lists, auto& comm) -> auto& { return lists[index(comm.rank())]; };
  all.run([&](auto& comm) { return comm.all_reduce(of(expected, comm).plain, op, opts); });
  all.run([&](auto& comm) { return comm.all_reduce(of(of_ranks, comm).views, op, opts); });
  all.run([&](auto& comm) {
    return comm.rank() == 0 ? comm.all_reduce(of(mixed, comm).plain, op, opts)
                            : comm.all_reduce(of(mixed, comm).views, op, opts);
  });
  for (int rank = 0; rank < size; ++rank) {
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const std::vector<T>& right = expected[index(rank)].plain[i];
      CHECK(of_ranks[index(rank)].strided[i].elements() == right);
      CHECK(of_ranks[index(rank)].strided[i].gaps_are_untouched());
      if (rank == 0) continue;
      CHECK(mixed[index(rank)].strided[i].elements() == right);
      CHECK(mixed[index(rank)].strided[i].gaps_are_untouched());
    }
    if (rank == 0) CHECK(mixed[0].plain == expected[0].plain);
  }
}

TEST_CASE("lists of views are reduced as lists of buffers are, with which they mix") {
  const std::vector<std::vector<std::size_t>> cases{
      {}, {0}, {5}, {3, 0, 99}, {30'000}, {30'000, 2, 0, 5, 40'000, 7}};
  for (const int size : {1, 2, 3, 5}) {
    for (const std::vector<std::size_t>& lengths : cases) {
      lists_reduce<float, inproc_ranks>(size, lengths);
      lists_reduce<colls::bfloat16, inproc_ranks>(size, lengths);
      lists_reduce<int, inproc_ranks>(size, lengths, colls::maximum{},
                                      {.algorithm = colls::algorithm::ring, .segment = 4096});
    }
  }
  lists_reduce<float, inproc_ranks>(3, {20'000, 6}, colls::average{});
  for (const int size : {2, 3}) {
    lists_reduce<int, driven_threads>(size, cases.back());
    lists_reduce<double, tcp_world>(size, cases.back());
    lists_reduce<double, shm_world>(size, cases.back());
  }
}

TEST_CASE("a group may have views and buffers") {
  for (const std::size_t count : {std::size_t{3}, std::size_t{50'000}}) {
    view_ranks<inproc_ranks> all(3);
    fields<int> first(3, count, 1);
    fields<int> last(3, 9, 1);
    std::vector<std::vector<int>> middle;
    for (int rank = 0; rank < 3; ++rank) middle.push_back(values<int>(rank, count));
    const auto is_sum = [&](const std::vector<int>& got, std::size_t n, int times) {
      std::vector<int> sum(n);
      for (int rank = 0; rank < 3; ++rank) {
        for (std::size_t i = 0; i < n; ++i) sum[i] += times * value<int>(rank, i);
      }
      CHECK(got == sum);
    };
    all.run([&](auto& comm) {
      return comm.all_reduce(group{first.of(comm), middle[index(comm.rank())], last.of(comm)});
    });
    for (int rank = 0; rank < 3; ++rank) {
      is_sum(first[index(rank)].elements(), count, 1);
      is_sum(middle[index(rank)], count, 1);
      is_sum(last[index(rank)].elements(), 9, 1);
    }
    const auto smaller = [](int a, int b) { return std::min(a, b); };
    all.run([&](auto& comm) {
      return comm.all_reduce(group{middle[index(comm.rank())], last.of(comm)}, smaller, {});
    });
    for (int rank = 0; rank < 3; ++rank) is_sum(middle[index(rank)], count, 1);
    all.run([&](auto& comm) {
      return comm.all_reduce(group{last.of(comm)}, {.algorithm = colls::algorithm::ring});
    });
    for (int rank = 0; rank < 3; ++rank) is_sum(last[index(rank)].elements(), 9, 3);
  }
}

TEST_CASE("lists and groups of views that no call can use are refused") {
  communicators all(2);
  std::vector<int> data(60);
  const strided_view<int> even(data.data(), {20}, {2});
  const strided_view<int> odd(data.data() + 1, {20}, {2});
  const strided_view<int> shifted(data.data() + 2, {20}, {2});
  const strided_view<int> backwards(data.data() + 58, {2}, {-2});
  const strided_view<int> overlapping(data.data(), {10, 2}, {1, 1});
  const strided_view<int> nothing(nullptr, {4}, {2});
  const auto refused = [&](colls::operation<> call, const char* words) {
    REQUIRE(call.done());
    const colls::failure why = failure_of(all, call);
    CAPTURE(std::string(why.detail));
    CHECK(why.code == errc::invalid_argument);
    CHECK(says(why, words));
  };
  const auto list = [](auto... views) { return std::vector<strided_view<int>>{views...}; };
  auto& comm = all[0];
  refused(comm.all_reduce(list(even, shifted)), "two buffers of the group overlap");
  refused(comm.all_reduce(list(odd, shifted, even)), "two buffers of the group overlap");
  refused(comm.all_reduce(list(even, even)), "two buffers of the group overlap");
  refused(comm.all_reduce(group{even, odd, shifted}), "two buffers of the group overlap");
  refused(comm.all_reduce(list(even, even.slice(0, 3, 1))), "two buffers of the group overlap");
  refused(comm.all_reduce(group{data, even}), "two buffers of the group overlap");
  refused(comm.all_reduce(list(overlapping)), "share memory");
  refused(comm.all_reduce(group{overlapping}), "share memory");
  refused(comm.all_reduce(list(even, nothing)), "no memory");
  refused(comm.all_reduce(list(even.slice(0, 19, 2))), "8 dimensions");
  all.check_good();
  all.all([&](auto& each) { return each.all_reduce(list(even, odd, backwards)); });
  all.all([&](auto& each) { return each.all_reduce(list(even), colls::options{}); });
}

TEST_CASE("lists of views with other lengths are a mismatch") {
  communicators all(2);
  std::vector<int> data(60);
  auto first = all[0].all_reduce(
      group{strided_view(data.data(), {4}, {2}), strided_view(data.data() + 20, {4}, {2})});
  auto second = all[1].all_reduce(
      group{strided_view(data.data(), {5}, {2}), strided_view(data.data() + 20, {3}, {2})});
  CHECK(failure_of(all, first).code == errc::mismatch);
  CHECK(failure_of(all, second).code == errc::mismatch);
}

// ---- calls of unknown lengths

std::size_t length_of(std::size_t unit, int from, int to) {
  return unit * static_cast<std::size_t>((from * 3 + to * 2 + 1) % 4);
}

/// Runs the calls of unknown lengths, where the ranks that `is_strided(rank)` selects pass views.
template <class T, class World, class Strided>
void unknown_lengths(int size, std::size_t unit, const Strided& is_strided,
                     const colls::options& opts = {}) {
  CAPTURE(size);
  CAPTURE(unit);
  view_ranks<World> all(size);
  const int root = size / 2;
  std::vector<parts<T>> lists;
  for (int from = 0; from < size; ++from) {
    std::vector<std::size_t> lengths;
    for (int to = 0; to < size; ++to) lengths.push_back(length_of(unit, from, to));
    lists.emplace_back(lengths, from + 1, from);
  }
  const auto own = [&](auto& comm) -> parts<T>& { return lists[index(comm.rank())]; };
  const auto expect = [&](const gathered<T>& got, std::size_t block) {
    REQUIRE(got.offsets.size() == index(size) + 1);
    CHECK(got.offsets.front() == 0);
    CHECK(got.offsets.back() == got.values.size());
    for (int rank = 0; rank < size; ++rank) {
      const std::vector<T>& right = lists[index(rank)].plain[block];
      CHECK(std::ranges::equal(got.block(rank), right));
    }
  };
  for (auto& call : all.start_all([&](auto& comm) {
         return is_strided(comm.rank()) ? comm.all_gather_v(own(comm).views[0], opts)
                                        : comm.all_gather_v(own(comm).plain[0], opts);
       })) {
    expect(colls::sync_wait(all.world, call), 0);
  }
  int rank = 0;
  for (auto& call : all.start_all([&](auto& comm) {
         return is_strided(comm.rank()) ? comm.gather_v(own(comm).views[0], root, opts)
                                        : comm.gather_v(own(comm).plain[0], root, opts);
       })) {
    const gathered<T> got = colls::sync_wait(all.world, call);
    if (rank++ == root) {
      expect(got, 0);
    } else {
      CHECK(got.values.empty());
      CHECK(got.offsets == std::vector<std::size_t>(index(size) + 1));
    }
  }
  rank = 0;
  for (auto& call : all.start_all([&](auto& comm) {
         if (comm.rank() != root) return comm.template scatter_v<T>(colls::none, root, opts);
         return is_strided(root) ? comm.scatter_v(own(comm).views, root, opts)
                                 : comm.scatter_v(own(comm).plain, root, opts);
       })) {
    CHECK(colls::sync_wait(all.world, call) == lists[index(root)].plain[index(rank++)]);
  }
  rank = 0;
  for (auto& call : all.start_all([&](auto& comm) {
         return is_strided(comm.rank()) ? comm.all_to_all_v(own(comm).views, opts)
                                        : comm.all_to_all_v(own(comm).plain, opts);
       })) {
    expect(colls::sync_wait(all.world, call), index(rank++));
  }
}

TEST_CASE("views of unknown lengths give what buffers give, with which they mix") {
  const auto every = [](int) { return true; };
  const auto odd = [](int rank) { return rank % 2 == 1; };
  const auto even = [](int rank) { return rank % 2 == 0; };
  for (const int size : {1, 2, 3, 5, 8}) {
    for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{30}}) {
      unknown_lengths<point, inproc_ranks>(size, unit, every);
      unknown_lengths<int, inproc_ranks>(size, unit, odd);
      unknown_lengths<int, inproc_ranks>(size, unit, even, {.segment = 64});
    }
  }
  unknown_lengths<int, inproc_ranks>(3, 300'000, odd);
  for (const std::size_t unit : {std::size_t{1}, std::size_t{100'000}}) {
    unknown_lengths<short, driven_threads>(3, unit, every);
    unknown_lengths<double, tcp_world>(3, unit, even);
    unknown_lengths<char, shm_world>(3, unit, odd);
  }
}

TEST_CASE("views of unknown lengths that no call can use are refused on their rank") {
  communicators all(2);
  std::vector<int> data(40);
  const strided_view good(data.data(), {10}, {2});
  const strided_view<int> endless(data.data(), {SIZE_MAX}, {1});
  const strided_view<int> nothing(nullptr, {4}, {2});
  const auto refused = [&](auto call, const char* words) {
    REQUIRE(call.done());
    const colls::failure why = failure_of(all, call);
    CAPTURE(std::string(why.detail));
    CHECK(why.code == errc::invalid_argument);
    CHECK(says(why, words));
  };
  auto& comm = all[0];
  const std::vector list{good, good};
  refused(comm.all_gather_v(endless), "than memory can hold");
  refused(comm.gather_v(nothing, 0), "no memory");
  refused(comm.gather_v(good, 2), "root 2");
  refused(comm.scatter_v(std::vector{good}, 0), "1 blocks for 2 ranks");
  refused(comm.all_to_all_v(std::vector{good, endless}), "than memory can hold");
  const colls::options ring{.algorithm = colls::algorithm::pairwise};
  refused(comm.all_to_all_v(list, ring), "no algorithm to choose");
  all.check_good();
  // A view that is only read may have elements that share memory.
  const strided_view repeated(data.data(), {10, 2}, {1, 1});
  view_ranks<inproc_ranks> good_ranks(2);
  for (auto& call : good_ranks.start_all([&](auto& each) { return each.all_gather_v(repeated); })) {
    CHECK(colls::sync_wait(good_ranks.world, call).values.size() == 40);
  }
}

TEST_CASE("a dropped call of views of unknown lengths ends the calls of all ranks") {
  view_ranks<shm_world> all(3);
  std::vector<int> data(400'000);
  const strided_view<int> half(data.data(), {200'000}, {2});
  const std::vector lists(3, half);
  auto first = all[0].all_to_all_v(lists);
  auto second = all[1].all_to_all_v(lists);
  {
    auto dropped = all[2].all_to_all_v(lists);
  }
  CHECK(all.outcome(first).code == errc::cancelled);
  CHECK(all.outcome(second).code == errc::cancelled);
  all.expect_spares_work(3);
}

#if !defined(SANITIZED)
TEST_CASE("views of unknown lengths take their result and a few pieces of memory") {
  const std::size_t count = std::size_t{64} << 20;
  view_ranks<inproc_ranks> all(2);
  std::vector<char> memory(2 * count);
  for (std::size_t i = 0; i < count; ++i) memory[2 * i] = static_cast<char>(i % 119);
  const strided_view<char> whole(memory.data(), {count}, {2});
  const std::vector halves{whole.slice(0, 0, count / 2), whole.slice(0, count / 2, count / 2)};
  const std::size_t allowed = 2 * 2 * 2 * 2 * 4 * 256 * 1024;
  const auto is_bounded = [&](std::size_t results, const auto& start) {
    const std::size_t extra = extra_memory([&] {
      for (auto& call : all.start_all(start)) (void)colls::sync_wait(all.world, call);
    });
    CAPTURE(extra);
    CHECK(extra >= results);
    CHECK(extra <= results + allowed);
  };
  is_bounded(2 * count, [&](auto& comm) { return comm.all_gather_v(halves[0]); });
  is_bounded(count, [&](auto& comm) { return comm.gather_v(halves[0], 1); });
  is_bounded(count, [&](auto& comm) {
    return comm.rank() == 0 ? comm.scatter_v(halves, 0)
                            : comm.template scatter_v<char>(colls::none, 0);
  });
  is_bounded(2 * count, [&](auto& comm) { return comm.all_to_all_v(halves); });
}

TEST_CASE("a rank without memory for views of unknown lengths ends the call on all ranks") {
  const std::vector<char> data(100'000);
  const strided_view<const char> half(data.data(), {50'000}, {2});
  expect_end_without_memory([&](auto& comm) { return comm.gather_v(half, 0); });
}
#endif

}  // namespace
