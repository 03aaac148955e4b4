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

#include <numeric>

// Calls on strided views.

namespace {

using colls::errc;
using colls::strided_view;

template <class T, class World>
void what_moves(int size, std::size_t count, int kind, const colls::options& opts = {}) {
  CAPTURE(size);
  CAPTURE(count);
  CAPTURE(kind);
  view_ranks<World> all(size);
  const int root = size / 2;
  const auto ranks = static_cast<std::size_t>(size);
  std::vector<T> everything;
  for (int rank = 0; rank < size; ++rank) append(everything, values<T>(rank, count));

  fields<T> data(size, count, kind);
  all.run([&](auto& comm) { return comm.broadcast(data.of(comm), root, opts); });
  for (int rank = 0; rank < size; ++rank) all.expect(data, rank, values<T>(root, count));

  fields<T> own(size, count, kind);
  fields<T> gathered(size, count * ranks, kind + 1);
  all.run([&](auto& comm) { return comm.all_gather(own.of(comm), gathered.of(comm), opts); });
  for (int rank = 0; rank < size; ++rank) all.expect(gathered, rank, everything);

  fields<T> at_root(size, count * ranks, kind + 2);
  all.run([&](auto& comm) {
    return comm.rank() == root ? comm.gather(own.of(comm), at_root.of(comm), root, opts)
                               : comm.gather(own.of(comm), colls::none, root, opts);
  });
  all.expect(at_root, root, everything);

  fields<T> parts(size, count, kind + 3);
  all.run([&](auto& comm) {
    return comm.rank() == root ? comm.scatter(at_root.of(comm), parts.of(comm), root, opts)
                               : comm.scatter(colls::none, parts.of(comm), root, opts);
  });
  for (int rank = 0; rank < size; ++rank) all.expect(parts, rank, values<T>(rank, count));

  fields<T> outgoing(size, count * ranks, kind);
  fields<T> incoming(size, count * ranks, kind + 1);
  const auto blocks_for = [&](int rank) {
    std::vector<T> blocks;
    for (int from = 0; from < size; ++from) {
      append(blocks, values<T>(from, count, index(rank) * count));
    }
    return blocks;
  };
  all.run([&](auto& comm) { return comm.all_to_all(outgoing.of(comm), incoming.of(comm), opts); });
  for (int rank = 0; rank < size; ++rank) all.expect(incoming, rank, blocks_for(rank));
  all.run([&](auto& comm) {  // in place
    return comm.all_to_all(outgoing.of(comm), outgoing.of(comm), opts);
  });
  for (int rank = 0; rank < size; ++rank) all.expect(outgoing, rank, blocks_for(rank));
}

/// Blocks whose lengths differ.
template <class T, class World>
void what_moves_in_parts(int size, std::size_t unit, int kind, const colls::options& opts = {}) {
  CAPTURE(size);
  CAPTURE(unit);
  view_ranks<World> all(size);
  const int root = size - 1;
  std::vector<std::size_t> counts;
  std::vector<T> everything;
  fields<T> own(0, 0, 0);
  fields<T> parts(0, 0, 0);
  for (int rank = 0; rank < size; ++rank) {
    counts.push_back(unit * ((index(rank) * 2 + 1) % 4));
    append(everything, values<T>(rank, counts.back()));
    own.emplace_back(counts.back(), kind + rank, rank);
    parts.emplace_back(counts.back(), kind + rank + 1);
  }
  fields<T> gathered(size, everything.size(), kind + 1);
  all.run(
      [&](auto& comm) { return comm.all_gather_v(own.of(comm), gathered.of(comm), counts, opts); });
  for (int rank = 0; rank < size; ++rank) all.expect(gathered, rank, everything);
  fields<T> at_root(size, everything.size(), kind + 2);
  all.run([&](auto& comm) {
    return comm.gather_v(own.of(comm), at_root.of(comm), counts, root, opts);
  });
  all.expect(at_root, root, everything);
  all.run([&](auto& comm) {
    return comm.scatter_v(at_root.of(comm), counts, parts.of(comm), root, opts);
  });
  for (int rank = 0; rank < size; ++rank)
    all.expect(parts, rank, values<T>(rank, counts[index(rank)]));

  const auto length = [&](int from, int to) {
    return unit * static_cast<std::size_t>((from * 3 + to + 1) % 4);
  };
  fields<T> outgoing(0, 0, 0);
  fields<T> incoming(0, 0, 0);
  std::vector<std::vector<std::size_t>> sends(index(size)), receives(index(size));
  for (int rank = 0; rank < size; ++rank) {
    std::size_t sent = 0;
    std::size_t received = 0;
    for (int peer = 0; peer < size; ++peer) {
      sends[index(rank)].push_back(length(rank, peer));
      receives[index(rank)].push_back(length(peer, rank));
      sent += length(rank, peer);
      received += length(peer, rank);
    }
    outgoing.emplace_back(sent, kind + rank, rank);
    incoming.emplace_back(received, kind + rank + 1);
  }
  all.run([&](auto& comm) {
    return comm.all_to_all_v(outgoing.of(comm), sends[index(comm.rank())], incoming.of(comm),
                             receives[index(comm.rank())], opts);
  });
  for (int rank = 0; rank < size; ++rank) {
    std::vector<T> expected;
    for (int from = 0; from < size; ++from) {
      std::size_t first = 0;
      for (int to = 0; to < rank; ++to) first += length(from, to);
      append(expected, values<T>(from, length(from, rank), first));
    }
    all.expect(incoming, rank, expected);
  }
}

TEST_CASE("calls that move views give what calls of contiguous buffers give") {
  const colls::options in_pieces{.segment = 64};
  for (const int size : {1, 2, 3, 5, 8}) {
    for (int kind = 0; kind < field<int>::kinds; ++kind) {
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{300}}) {
        what_moves<int, inproc_ranks>(size, count, kind);
        what_moves<point, inproc_ranks>(size, count, kind, in_pieces);
      }
      what_moves_in_parts<int, inproc_ranks>(size, 5, kind);
      what_moves_in_parts<int, inproc_ranks>(size, 50, kind, in_pieces);
    }
  }
  for (const int size : {2, 3}) {
    what_moves<int, tcp_world>(size, 200'000, 1);
    what_moves<int, shm_world>(size, 200'000, 2);
    what_moves<int, driven_threads>(size, 100'000, 3);
    what_moves<int, tcp_world>(size, 50, 1, in_pieces);
    what_moves_in_parts<int, tcp_world>(size, 60'000, 1);
  }
}

TEST_CASE("a column and a transposed matrix are data of a call") {
  colls::inproc::run(2, [](colls::inproc::communicator& comm) -> colls::task<> {
    constexpr std::size_t rows = 3;
    constexpr std::size_t columns = 4;
    int matrix[rows][columns] = {};
    for (auto& row : matrix) row[1] = comm.rank() + 1;

    const colls::strided_view all(&matrix[0][0], {rows, columns}, {columns, 1});
    const auto column = all.slice(1, 1, 1);  // of dimension 1, one index from 1 on
    co_await comm.broadcast(column, 0);
    std::vector<int> sums(rows * columns);
    co_await comm.all_reduce(all.transposed(), sums);

    CHECK(matrix[2][1] == 1);
    CHECK(matrix[2][2] == 0);
    std::vector<int> expected(rows * columns);
    for (std::size_t row = 0; row < rows; ++row) expected[rows + row] = 2;
    CHECK(sums == expected);
  });
}

TEST_CASE("an algorithm can be pinned for what moves views") {
  for (const auto pinned : {colls::algorithm::ring, colls::algorithm::linear}) {
    fields<int> own(3, 1000, 1);
    fields<int> gathered(3, 3000, 2);
    view_ranks<tcp_world> all(3);
    all.run([&](auto& comm) {
      return comm.all_gather(own.of(comm), gathered.of(comm),
                             {.algorithm = pinned, .segment = 512});
    });
    std::vector<int> everything;
    for (int rank = 0; rank < 3; ++rank) append(everything, values<int>(rank, 1000));
    for (int rank = 0; rank < 3; ++rank) all.expect(gathered, rank, everything);
  }
}

/// The results of views have the bits of those of contiguous buffers.
template <class T, class World, class Op = colls::plus>
void what_reduces(int size, std::size_t block, int kind, Op op = {},
                  const colls::options& opts = {}) {
  CAPTURE(size);
  CAPTURE(block);
  CAPTURE(kind);
  view_ranks<World> all(size);
  const int root = size / 2;
  const std::size_t count = block * index(size);
  std::vector<std::vector<T>> plain;
  const auto start_again = [&] {
    plain.clear();
    for (int rank = 0; rank < size; ++rank) plain.push_back(values<T>(rank, count));
    return fields<T>(size, count, kind);
  };
  const auto expect_plain = [&](const fields<T>& got) {
    for (int rank = 0; rank < size; ++rank) all.expect(got, rank, plain[index(rank)]);
  };
  const auto plain_of = [&](auto& comm) -> std::vector<T>& { return plain[index(comm.rank())]; };

  fields<T> data = start_again();
  all.run([&](auto& comm) { return comm.all_reduce(plain_of(comm), op, opts); });
  all.run([&](auto& comm) { return comm.all_reduce(data.of(comm), op, opts); });
  expect_plain(data);
  fields<T> in = start_again();
  all.run([&](auto& comm) { return comm.all_reduce(in.of(comm), data.of(comm), op, opts); });
  all.run([&](auto& comm) { return comm.all_reduce(plain_of(comm), op, opts); });
  expect_plain(data);
  // Reductions of views and of contiguous buffers are one call.
  data = start_again();
  all.run([&](auto& comm) {
    return comm.rank() % 2 == 0 ? comm.all_reduce(data.of(comm), op, opts)
                                : comm.all_reduce(plain_of(comm), op, opts);
  });
  if (size > 1) CHECK(data[0].elements() == plain[1]);

  data = start_again();
  all.run([&](auto& comm) { return comm.scan(data.of(comm), op, opts); });
  all.run([&](auto& comm) { return comm.scan(plain_of(comm), op, opts); });
  expect_plain(data);
  data = start_again();
  all.run([&](auto& comm) { return comm.exscan(data.of(comm), op, opts); });
  all.run([&](auto& comm) { return comm.exscan(plain_of(comm), op, opts); });
  expect_plain(data);

  data = start_again();
  all.run([&](auto& comm) { return comm.reduce(data.of(comm), root, op, opts); });
  all.run([&](auto& comm) { return comm.reduce(plain_of(comm), root, op, opts); });
  expect_plain(data);
  data = start_again();
  fields<T> out(size, count, kind + 1);
  all.run([&](auto& comm) {
    return comm.rank() == root ? comm.reduce(data.of(comm), out.of(comm), root, op, opts)
                               : comm.reduce(data.of(comm), colls::none, root, op, opts);
  });
  all.run([&](auto& comm) { return comm.reduce(plain_of(comm), root, op, opts); });
  all.expect(out, root, plain[index(root)]);

  data = start_again();
  fields<T> share(size, block, kind + 1);
  std::vector<std::vector<T>> plain_share(index(size), std::vector<T>(block));
  all.run([&](auto& comm) { return comm.reduce_scatter(data.of(comm), share.of(comm), op, opts); });
  all.run([&](auto& comm) {
    return comm.reduce_scatter(plain_of(comm), plain_share[index(comm.rank())], op, opts);
  });
  for (int rank = 0; rank < size; ++rank) all.expect(share, rank, plain_share[index(rank)]);
  const std::vector<std::size_t> counts(index(size), block);
  all.run([&](auto& comm) {
    return comm.reduce_scatter_v(data.of(comm), share.of(comm), counts, op, opts);
  });
  for (int rank = 0; rank < size; ++rank) all.expect(share, rank, plain_share[index(rank)]);
}

struct affine {  // associative, does not commute
  int factor, offset;
  static affine make(int rank, int number) { return {1 + (rank + number) % 3, number % 7}; }
  friend bool operator==(const affine&, const affine&) = default;
};
struct compose {
  static constexpr const char* name = "compose";
  affine operator()(affine a, affine b) const {
    return {a.factor * b.factor % 1009, (a.offset * b.factor + b.offset) % 1009};
  }
};

TEST_CASE("reductions of views have the bits of those of contiguous buffers") {
  for (const int size : {1, 2, 3, 5, 8}) {
    for (int kind = 0; kind < field<int>::kinds; ++kind) {
      for (const std::size_t block : {std::size_t{0}, std::size_t{1}, std::size_t{30}}) {
        what_reduces<int, inproc_ranks>(size, block, kind);
      }
      what_reduces<float, inproc_ranks>(size, 99, kind, colls::average{});
      what_reduces<colls::bfloat16, inproc_ranks>(size, 3000, kind);
      what_reduces<colls::bfloat16, inproc_ranks>(size, 3000, kind, colls::plus{},
                                                  {.wire = colls::wire::storage});
      what_reduces<affine, inproc_ranks>(size, 9, kind, compose{});
    }
  }
  what_reduces<int, tcp_world>(3, 100'000, 1);
}

TEST_CASE("views that no call can use are refused on their rank") {
  communicators all(2);
  std::vector<int> data(40);
  std::vector<int> out(80);
  const strided_view good(data.data(), {10}, {2});
  const strided_view wide(out.data(), {20}, {2});
  const strided_view overlapping(data.data(), {10, 2}, {1, 1});
  const strided_view endless(data.data(), {SIZE_MAX}, {1});
  const strided_view too_deep(data.data(), {1, 1, 1, 1, 1, 1, 1, 1, 1},
                              {1, 1, 1, 1, 1, 1, 1, 1, 1});
  const auto refused = [&](colls::operation<> call, const char* words) {
    REQUIRE(call.done());
    const colls::failure why = failure_of(all, call);
    CHECK(why.code == errc::invalid_argument);
    CAPTURE(std::string(why.detail));
    CHECK(says(why, words));
  };
  auto& comm = all[0];
  refused(comm.all_reduce(overlapping), "share memory");
  refused(comm.broadcast(overlapping, 1), "share memory");
  refused(comm.all_gather(good, overlapping), "share memory");
  refused(comm.all_to_all(wide, overlapping), "share memory");
  refused(comm.all_reduce(endless), "than memory can hold");
  const double x = 0;
  const strided_view<const double> repeated(&x, {std::size_t{1} << 61}, {0});
  refused(comm.send(repeated, 1), "than memory can hold");
  refused(comm.gather(repeated, colls::none, 1), "than memory can hold");
  const strided_view<const char> long_block(reinterpret_cast<const char*>(&x), {PTRDIFF_MAX}, {0});
  refused(comm.gather(long_block, colls::none, 1), "");
  refused(comm.all_reduce(strided_view<int>(nullptr, {4}, {2})), "no memory");
  refused(comm.send(strided_view<int>(nullptr, {4}, {2}), 1), "no memory");
  refused(comm.broadcast(strided_view<int>(nullptr, {4}, {1}), 1), "no memory");
  const strided_view shifted(out.data() + 2, {20}, {2});
  refused(comm.all_reduce(wide, shifted), "overlap in part");
  refused(comm.all_to_all(wide, shifted), "overlap in part");
  refused(comm.all_gather(shifted.slice(0, 0, 10), wide), "overlap in part");
  refused(comm.reduce_scatter(wide, wide.slice(0, 3, 10)), "overlap in part");
  refused(comm.send(endless, 1), "than memory can hold");
  refused(comm.broadcast(too_deep, 0), "8 dimensions");
  refused(comm.broadcast(good.slice(0, 9, 2), 0), "8 dimensions");
  refused(comm.broadcast(good, 2), "root 2");
  refused(comm.broadcast(good, -1), "root -1");
  refused(comm.reduce(good, 5), "root 5");
  refused(comm.all_gather(good, good), "20");
  refused(comm.gather(good, good, 0), "20");
  refused(comm.scatter(good, good, 0), "20");
  refused(comm.reduce_scatter(good, good), "20");
  refused(comm.all_reduce(good, wide), "20");
  refused(comm.all_to_all(good, wide), "20");
  refused(comm.all_gather_v(good, wide, std::vector{10, -1}), "negative");
  refused(comm.all_gather_v(good, wide, std::vector{10, 10, 10}), "3 counts");
  refused(comm.all_to_all_v(good, std::vector{5, 4}, wide, std::vector{10, 10}), "9");
  refused(comm.all_to_all(wide, wide, {.algorithm = colls::algorithm::pairwise}), "no algorithm");
  refused(comm.send(good, 2), "rank 2");
  refused(comm.send(good, 1, -1), "tag -1");
  all.check_good();
  // Two columns of one matrix do not overlap, and a block may be its own place in the result.
  const strided_view next(out.data() + 1, {20}, {2});
  all.all([&](auto& each) { return each.all_reduce(wide, next); });
  all.all([&](auto& each) {
    return each.all_gather(wide.slice(0, each.rank() == 0 ? 0 : 10, 10), wide);
  });
  // A view that is only read may have elements that share memory.
  std::vector<int> sums[2] = {std::vector<int>(20), std::vector<int>(20)};
  all.all([&](auto& each) {
    return each.all_reduce(overlapping, sums[static_cast<std::size_t>(each.rank())]);
  });
}

template <class First, class Others>
void expect_mismatch(const First& first, const Others& others, const char* text = "") {
  view_ranks<tcp_world> all(3);
  auto of_first = first(all[0]);
  std::vector<decltype(others(all[1]))> of_others;
  for (int rank = 1; rank < 3; ++rank) of_others.push_back(others(all[rank]));
  const colls::failure why = all.outcome(of_first);
  CHECK(why.code == errc::mismatch);
  CHECK(std::string_view(why.detail).find(text) != std::string_view::npos);
  for (auto& call : of_others) CHECK(all.outcome(call).code == errc::mismatch);
  all.expect_spares_work(3);
}

TEST_CASE("another count or type, or a contiguous buffer where views move, is a mismatch") {
  std::vector<int> memory(100);
  std::vector<float> floats(100);
  const strided_view ten(memory.data(), {10}, {3});
  const strided_view nine(memory.data(), {9}, {3});
  const strided_view<float> ten_floats(floats.data(), {10}, {3});
  const std::span<int> plain(memory.data(), 10);
  const auto broadcast_ten = [&](auto& comm) { return comm.broadcast(ten, 0); };
  expect_mismatch([&](auto& comm) { return comm.broadcast(nine, 0); }, broadcast_ten);
  expect_mismatch([&](auto& comm) { return comm.broadcast(ten, 1); }, broadcast_ten);
  expect_mismatch([&](auto& comm) { return comm.broadcast(ten_floats, 0); }, broadcast_ten);
  expect_mismatch([&](auto& comm) { return comm.broadcast(plain, 0); }, broadcast_ten,
                  "strided and other data");
  expect_mismatch([&](auto& comm) { return comm.all_reduce(ten); },
                  [&](auto& comm) { return comm.all_reduce(nine); });
}

TEST_CASE("a dropped call of views ends the calls of all ranks, and touches no memory afterwards") {
  for (const bool is_long : {false, true}) {
    view_ranks<tcp_world> all(3);
    const std::size_t count = is_long ? 300'000 : 10;
    fields<int> data(3, count, 1);
    {
      auto dropped = all[2].broadcast(data.of(2), 0);
      all.poll(3);
    }
    data[2] = field<int>(0, 0);
    for (int rank = 0; rank < 2; ++rank) {
      auto waits = all[rank].broadcast(data.of(rank), 0);
      const errc code = all.outcome(waits).code;
      CHECK((code == errc::cancelled || (rank == 0 && !is_long && code == errc{})));
    }
    all.expect_spares_work(3);
  }
}

#if !defined(SANITIZED)
TEST_CASE("what moves 64 MiB takes a few pieces of memory") {
  const std::size_t count = std::size_t{64} << 20;
  const int size = 2;
  view_ranks<inproc_ranks> all(size);
  // All columns of bytes that are 2 apart, so that nothing is contiguous.
  std::vector<std::vector<char>> memory(index(size), std::vector<char>(2 * count));
  std::vector<std::vector<char>> second(index(size), std::vector<char>(2 * count));
  for (int rank = 0; rank < size; ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      memory[index(rank)][2 * i] = static_cast<char>(i % 119 + index(rank));
    }
  }
  const auto part = [&](auto& lists, auto& comm, std::size_t n) {
    return strided_view<char>(lists[index(comm.rank())].data(), {n}, {2});
  };
  // For each rank: 4 lanes of 256 KiB for each of its 2 peers, as input and output, and as much
  // again for the algorithm.
  const std::size_t allowed = index(size) * 2 * 2 * 2 * 4 * 256 * 1024;
  const auto is_bounded = [&](const auto& start) {
    const std::size_t extra = extra_memory([&] { all.run(start); });
    CAPTURE(extra);
    CHECK(extra <= allowed);
    CHECK(extra > 0);
  };
  is_bounded([&](auto& comm) { return comm.broadcast(part(memory, comm, count), 1); });
  CHECK(memory[0] == memory[1]);
  const std::size_t half = count / 2;
  is_bounded([&](auto& comm) {
    return comm.all_gather(part(memory, comm, half), part(second, comm, count));
  });
  is_bounded([&](auto& comm) {
    return comm.gather(part(memory, comm, half), part(second, comm, count), 0);
  });
  is_bounded([&](auto& comm) {
    return comm.scatter(part(second, comm, count), part(memory, comm, half), 0);
  });
  is_bounded([&](auto& comm) {
    return comm.all_to_all(part(memory, comm, count), part(second, comm, count));
  });
  is_bounded([&](auto& comm) {
    return comm.all_to_all(part(memory, comm, count), part(memory, comm, count));
  });
  // A reduction takes one working buffer a rank.
  const std::size_t extra = extra_memory([&] {
    all.run(
        [&](auto& comm) { return comm.all_reduce(part(memory, comm, count), colls::maximum{}); });
  });
  CHECK(extra >= index(size) * count);
  CHECK(extra <= index(size) * count + allowed);
}

TEST_CASE("a rank without memory for a call of views ends it on all ranks") {
  fields<int> data(3, 1000, 1);
  expect_end_without_memory(
      [&](auto& comm) { return comm.broadcast(data.of(comm), 0, {.segment = 256}); });
}
#endif

}  // namespace
