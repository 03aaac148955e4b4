// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/call/communicator.hpp>

#include "../support/communicators.hpp"

#include <complex>

// Checks the results of every call, element by element.

namespace {

using colls::task;
using communicator = colls::inproc::communicator;

struct matrix {
  std::uint32_t a, b, c, d;
  friend bool operator==(const matrix&, const matrix&) = default;
};
/// Associative, but not commutative.
struct product {
  matrix operator()(const matrix& x, const matrix& y) const {
    return {x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c,
            x.c * y.b + x.d * y.d};
  }
};

// Small integers, whose sums are exact in every type.
template <class T>
T element(int rank, std::size_t i) {
  if constexpr (std::is_same_v<T, matrix>) {
    const auto number = static_cast<std::uint32_t>(rank + 1);
    return {number, static_cast<std::uint32_t>(i) + 2, 3, number * 5};
  } else {
    return T(static_cast<float>((static_cast<std::size_t>(rank) * 3 + i * 5) % 7));
  }
}

template <class T>
std::vector<T> filled(int rank, std::size_t offset, std::size_t count) {
  std::vector<T> made;
  for (std::size_t i = 0; i < count; ++i) made.push_back(element<T>(rank, offset + i));
  return made;
}

/// The reduction, in rank order, of `count` elements from `offset` on of ranks first to last - 1.
template <class T, class Op>
std::vector<T> folded(int first, int last, std::size_t offset, std::size_t count, Op op) {
  std::vector<T> sum = filled<T>(first, offset, count);
  for (int rank = first + 1; rank < last; ++rank) {
    for (std::size_t i = 0; i < count; ++i) sum[i] = op(sum[i], element<T>(rank, offset + i));
  }
  return sum;
}

template <class T>
bool same(const std::vector<T>& got, const std::vector<T>& wanted) {
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!(got[i] == wanted[i])) return false;
  }
  return got.size() == wanted.size();
}

template <class T>
void append(std::vector<T>& dest, const std::vector<T>& more) {
  dest.insert(dest.end(), more.begin(), more.end());
}

/// The length of a rank's share in calls that take a list of counts. Some shares are empty.
std::size_t share(int rank, std::size_t n) {
  return rank % 3 == 1 ? 0 : n + 2 * static_cast<std::size_t>(rank);
}

template <class T>
std::vector<T> part(const std::vector<T>& all, std::size_t offset, std::size_t count) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(offset);
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

template <class T, class Op>
task<> every_reduction(communicator& comm, std::size_t n, Op op) {
  const int p = comm.size();
  const int me = comm.rank();
  const auto ranks = static_cast<std::size_t>(p);
  const std::vector<T> in = filled<T>(me, 0, n);
  const std::vector<T> everything = folded<T>(0, p, 0, n, op);
  const std::vector<T> blank(n, element<T>(99, 1));

  std::vector<T> data = in;
  co_await comm.all_reduce(data, op);
  CHECK(same(data, everything));
  std::vector<T> out = blank;
  co_await comm.all_reduce(in, out, op, {.segment = 64});
  CHECK(same(out, everything));
  CHECK(same(in, filled<T>(me, 0, n)));

  for (const int root : {0, p - 1}) {
    data = in;
    co_await comm.reduce(data, root, op);
    CHECK(same(data, me == root ? everything : in));
    out = blank;
    if (me == root) {
      co_await comm.reduce(in, out, root, op);
      CHECK(same(out, everything));
    } else {
      co_await comm.reduce(in, colls::none, root, op);
    }
  }

  const std::vector<T> blocks = filled<T>(me, 0, n * ranks);
  out = blank;
  co_await comm.reduce_scatter(blocks, out, op);
  CHECK(same(out, folded<T>(0, p, static_cast<std::size_t>(me) * n, n, op)));
  std::vector<T> own = blocks;
  co_await comm.reduce_scatter(own, std::span(own).subspan(static_cast<std::size_t>(me) * n, n),
                               op);
  CHECK(same(part(own, static_cast<std::size_t>(me) * n, n), out));

  std::vector<std::size_t> counts;
  std::size_t total = 0;
  std::size_t before = 0;
  for (int rank = 0; rank < p; ++rank) {
    if (rank == me) before = total;
    counts.push_back(share(rank, n));
    total += counts.back();
  }
  const std::vector<T> uneven = filled<T>(me, 0, total);
  out.assign(share(me, n), element<T>(99, 1));
  co_await comm.reduce_scatter_v(uneven, out, counts, op);
  CHECK(same(out, folded<T>(0, p, before, share(me, n), op)));

  data = in;
  co_await comm.scan(data, op);
  CHECK(same(data, folded<T>(0, me + 1, 0, n, op)));
  data = in;
  co_await comm.exscan(data, op);
  CHECK(same(data, me == 0 ? in : folded<T>(0, me, 0, n, op)));

  std::vector<T> a = filled<T>(me, 0, n);
  std::vector<T> b = filled<T>(me, n, 1);
  std::vector<T> c;
  std::vector<T> large = filled<T>(me, 7, 20000);
  co_await comm.all_reduce(colls::group{a, b, c}, op);
  CHECK(same(a, everything));
  CHECK(same(b, folded<T>(0, p, n, 1, op)));
  a = in;
  b = filled<T>(me, n, 1);
  co_await comm.all_reduce(colls::group{std::span(large), a, c, std::span(b)}, op);
  CHECK(same(large, folded<T>(0, p, 7, 20000, op)));
  CHECK(same(a, everything));
  CHECK(same(b, folded<T>(0, p, n, 1, op)));
}

template <class T>
task<> every_data_movement(communicator& comm, std::size_t n) {
  const int p = comm.size();
  const int me = comm.rank();
  const auto ranks = static_cast<std::size_t>(p);
  const std::vector<T> in = filled<T>(me, 0, n);
  std::vector<T> joined;
  std::vector<T> joined_uneven;
  std::vector<int> counts;
  for (int rank = 0; rank < p; ++rank) {
    append(joined, filled<T>(rank, 0, n));
    append(joined_uneven, filled<T>(rank, 0, share(rank, n)));
    counts.push_back(static_cast<int>(share(rank, n)));
  }
  const T blank = element<T>(99, 1);
  const std::vector<T> uneven = filled<T>(me, 0, share(me, n));
  const auto first = static_cast<std::size_t>(me) * n;

  for (const int root : {0, p - 1}) {
    std::vector<T> data = in;
    co_await comm.broadcast(data, root);
    CHECK(same(data, filled<T>(root, 0, n)));
  }
  co_await comm.barrier();

  std::vector<T> out(n * ranks, blank);
  co_await comm.all_gather(in, out);
  CHECK(same(out, joined));
  std::vector<T> placed(n * ranks, blank);
  for (std::size_t i = 0; i < n; ++i) placed[first + i] = in[i];
  co_await comm.all_gather(std::span(placed).subspan(first, n), placed);
  CHECK(same(placed, joined));
  out.assign(joined_uneven.size(), blank);
  co_await comm.all_gather_v(uneven, out, counts);
  CHECK(same(out, joined_uneven));

  for (const int root : {0, p - 1}) {
    out.assign(me == root ? n * ranks : 0, blank);
    co_await comm.gather(in, out, root);
    if (me == root) CHECK(same(out, joined));
    out.assign(me == root ? joined_uneven.size() : 0, blank);
    if (me == root) {
      co_await comm.gather_v(uneven, out, counts, root);
      CHECK(same(out, joined_uneven));
    } else {
      co_await comm.gather_v(uneven, colls::none, counts, root);
    }
    std::vector<T> mine(n, blank);
    std::vector<T> mine_uneven(share(me, n), blank);
    if (me == root) {
      co_await comm.scatter(joined, mine, root);
      co_await comm.scatter_v(joined_uneven, counts, mine_uneven, root);
    } else {
      co_await comm.scatter(colls::none, mine, root);
      co_await comm.scatter_v(colls::none, counts, mine_uneven, root);
    }
    CHECK(same(mine, in));
    CHECK(same(mine_uneven, uneven));
    if (me == root) {
      std::vector<T> all(n * ranks, blank);
      for (std::size_t i = 0; i < n; ++i) all[first + i] = in[i];
      co_await comm.gather(std::span(all).subspan(first, n), all, root);
      CHECK(same(all, joined));
      co_await comm.scatter(all, std::span(all).subspan(first, n), root);
      CHECK(same(all, joined));
    } else {
      co_await comm.gather(in, colls::none, root);
      co_await comm.scatter(colls::none, mine, root);
      CHECK(same(mine, in));
    }
  }

  // Block j of rank i begins at element 10 j of rank i.
  const auto block = [&](int source, int dest, std::size_t count) {
    return filled<T>(source, static_cast<std::size_t>(dest) * 10, count);
  };
  std::vector<T> outgoing;
  std::vector<T> wanted;
  std::vector<T> outgoing_uneven;
  std::vector<T> wanted_uneven;
  std::vector<std::size_t> sends;
  std::vector<std::uint32_t> receives;
  for (int rank = 0; rank < p; ++rank) {
    append(outgoing, block(me, rank, n));
    append(wanted, block(rank, me, n));
    sends.push_back(share(me + 2 * rank, n));
    receives.push_back(static_cast<std::uint32_t>(share(rank + 2 * me, n)));
    append(outgoing_uneven, block(me, rank, sends.back()));
    append(wanted_uneven, block(rank, me, receives.back()));
  }
  out.assign(n * ranks, blank);
  co_await comm.all_to_all(outgoing, out);
  CHECK(same(out, wanted));
  out.assign(wanted_uneven.size(), blank);
  co_await comm.all_to_all_v(outgoing_uneven, sends, out, receives);
  CHECK(same(out, wanted_uneven));
  co_await comm.all_to_all(outgoing, outgoing);
  CHECK(same(outgoing, wanted));

  std::vector<T> got(n + 3, blank);
  const int next = (me + 1) % p;
  const int prev = (me + p - 1) % p;
  const colls::received one = co_await comm.send_recv(in, next, got, prev, 4);
  CHECK(one.source == prev);
  CHECK(one.count == n);
  CHECK(same(part(got, 0, n), filled<T>(prev, 0, n)));
  got.assign(n, blank);
  auto sent = comm.send(in, next);
  const colls::received other = co_await comm.recv(got, colls::any_source);
  co_await sent;
  CHECK(other.source == prev);
  CHECK(same(got, filled<T>(prev, 0, n)));
}

template <class T, class Op>
void every_call(Op op) {
  for (const int p : {1, 2, 3, 4, 5, 7, 8}) {
    CAPTURE(p);
    const auto ranks = static_cast<std::size_t>(p);
    for (const std::size_t n :
         {std::size_t{0}, std::size_t{1}, ranks - 1, ranks + 1, std::size_t{9000}}) {
      if (n == 9000 && p > 4) continue;
      CAPTURE(n);
      colls::inproc::run(p, [=](communicator& comm) -> task<> {
        co_await every_reduction<T>(comm, n, op);
        co_await every_data_movement<T>(comm, n);
      });
    }
  }
}

TEST_CASE("every call, of integers") { every_call<std::int32_t>(colls::plus{}); }
TEST_CASE("every call, of floats") { every_call<float>(colls::plus{}); }
TEST_CASE("every call, of bfloat16") { every_call<colls::bfloat16>(colls::plus{}); }
TEST_CASE("every call, of a struct with an operation that does not commute") {
  every_call<matrix>(product{});
}

TEST_CASE("averages divide by the ranks that took part") {
  colls::inproc::run(4, [](communicator& comm) -> task<> {
    const int me = comm.rank();
    std::vector<int> full{me, 10 * me, -me};
    co_await comm.all_reduce(full, colls::average{});
    CHECK(full == std::vector<int>{1, 15, -1});  // 6/4, 60/4, -6/4, toward zero
    std::vector<float> real{static_cast<float>(me)};
    co_await comm.all_reduce(real, colls::average{});
    CHECK(real[0] == 1.5f);
    real = {static_cast<float>(me)};
    co_await comm.scan(real, colls::average{});
    CHECK(real[0] == static_cast<float>(me) / 2);
    real = {static_cast<float>(me)};
    co_await comm.exscan(real, colls::average{});
    CHECK(real[0] == (me == 0 ? 0.0f : static_cast<float>(me - 1) / 2));
    std::vector<double> blocks{1.0 * me, 2.0 * me, 3.0 * me, 4.0 * me};
    std::vector<double> mine(1);
    co_await comm.reduce_scatter(blocks, mine, colls::average{});
    CHECK(mine[0] == 1.5 * (me + 1));
    std::vector<colls::bfloat16> half(300, colls::bfloat16(static_cast<float>(me)));
    co_await comm.reduce(half, 2, colls::average{});
    CHECK(static_cast<float>(half[299]) == (me == 2 ? 1.5f : static_cast<float>(me)));
    std::vector<float> first(3, static_cast<float>(me));
    std::vector<float> second(30000, static_cast<float>(2 * me));
    co_await comm.all_reduce(colls::group{first, second}, colls::average{});
    CHECK(first[2] == 1.5f);
    CHECK(second[29999] == 3.0f);
  });
}

TEST_CASE("each rank multiplies by its own factor before the sum") {
  colls::inproc::run(3, [](communicator& comm) -> task<> {
    const int me = comm.rank();
    const std::vector<float> in(100, 2.0f);
    std::vector<float> out(100);
    co_await comm.all_reduce(in, out, colls::pre_multiplied_sum(static_cast<float>(me + 1)));
    CHECK(out[99] == 12.0f);
    CHECK(in[99] == 2.0f);
    std::vector<colls::float16> half(5, colls::float16(1.0f));
    co_await comm.reduce(half, 1, colls::pre_multiplied_sum(0.5f));
    CHECK(static_cast<float>(half[4]) == (me == 1 ? 1.5f : 1.0f));
    std::vector<int> numbers{1, 2};
    co_await comm.scan(numbers, colls::pre_multiplied_sum(10));
    CHECK(numbers == std::vector<int>{10 * (me + 1), 20 * (me + 1)});
  });
}

TEST_CASE("minimum and maximum, with their locations") {
  colls::inproc::run(5, [](communicator& comm) -> task<> {
    const int me = comm.rank();
    using entry = colls::value_index<float>;
    const auto value = static_cast<float>((me * 3) % 5);  // 0 3 1 4 2
    std::vector<entry> low{{value, me}, {7.0f, 10 - me}};
    std::vector<entry> high = low;
    co_await comm.all_reduce(low, colls::min_loc{});
    co_await comm.all_reduce(high, colls::max_loc{});
    CHECK(low == std::vector<entry>{{0.0f, 0}, {7.0f, 6}});
    CHECK(high == std::vector<entry>{{4.0f, 3}, {7.0f, 6}});
  });
}

TEST_CASE("operations of the user: lambdas, functions, complex numbers") {
  colls::inproc::run(3, [](communicator& comm) -> task<> {
    const int me = comm.rank();
    std::vector<int> data{me + 1};
    // Neither associative nor commutative.
    const auto digits = [](int a, int b) { return 10 * a + b; };
    co_await comm.scan(data, digits, {.order = colls::order::rank});
    CHECK(data[0] == (me == 0 ? 1 : me == 1 ? 12 : 123));
    data = {me};
    int base = 5;
    const auto larger = colls::commutative([base](int a, int b) { return a + b > base ? a : b; });
    co_await comm.all_reduce(data, larger);
    data = {me + 1};
    int (*const times)(int, int) = [](int a, int b) { return a * b; };
    co_await comm.all_reduce(data, times);
    CHECK(data[0] == 6);
    std::vector<std::complex<float>> waves(2000, {1.0f, static_cast<float>(me)});
    co_await comm.all_reduce(waves, colls::multiplies{});
    CHECK(waves[1999] ==
          std::complex<float>(1, 0) * std::complex<float>(1, 1) * std::complex<float>(1, 2));
    bool flags[] = {me == 1, me != 1, true};
    co_await comm.all_reduce(flags, colls::logical_and{});
    CHECK((!flags[0] && !flags[1] && flags[2]));
    const int given[] = {me, 1};
    int summed[2];
    co_await comm.all_reduce(given, summed);
    CHECK((summed[0] == 3 && summed[1] == 3));
    std::array<std::uint8_t, 3> bits{static_cast<std::uint8_t>(1 << me), 0, 255};
    co_await comm.all_reduce(bits, colls::bit_xor{});
    CHECK((bits[0] == 7 && bits[1] == 0 && bits[2] == 255));
  });
}

/// Neither associative nor commutative: only the fold in rank order gives the right result.
struct halving {
  static constexpr bool associative = false;
  static constexpr const char* name = "halving";
  double operator()(double a, double b) const { return a / 2 + b; }
};

TEST_CASE("an operation that is not associative is folded in rank order") {
  for (const int p : {2, 3, 5, 8}) {
    colls::inproc::run(p, [](communicator& comm) -> task<> {
      const int me = comm.rank();
      const auto fold = [](int ranks) {
        double sum = 1;
        for (int rank = 1; rank < ranks; ++rank) sum = sum / 2 + (rank + 1);
        return sum;
      };
      for (const std::size_t n : {std::size_t{1}, std::size_t{100'000}}) {
        std::vector<double> data(n, me + 1);
        co_await comm.all_reduce(data, halving{});
        CHECK(data[n - 1] == fold(comm.size()));
        data.assign(n, me + 1);
        co_await comm.scan(data, halving{});
        CHECK(data[n - 1] == fold(me + 1));
        data.assign(n, me + 1);
        co_await comm.reduce(data, 1, halving{});
        if (me == 1) CHECK(data[n - 1] == fold(comm.size()));
      }
    });
  }
}

TEST_CASE("the rank, host and local rank of a rank") {
  colls::inproc::run(3, [](communicator& comm) -> task<> {
    CHECK(comm.size() == 3);
    CHECK(comm.nodes() == 1);
    CHECK(comm.node() == 0);
    CHECK(comm.local_rank() == comm.rank());
    CHECK(comm.local_size() == 3);
    CHECK(comm.world_rank(2) == 2);
    CHECK(comm.failed() == nullptr);
    co_return;
  });
}

}  // namespace
