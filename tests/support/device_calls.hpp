// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Makes every call on device memory and compares the results with the expected ones, on a GPU or on
// the stand-in. The tests take a user, which has
// - `on_stream()`: options with the user's stream,
// - `holding(values)`: a device buffer with these values, which the stream has still to write,
// - `expect(what, buffer, values)`: a task that compares a buffer, and reads it without following
//   the stream,
// - `capture(begins)`: begins or ends the capture of the stream into a graph.

#include <colls/cuda/attach.hpp>

#include <cstdint>
#include <vector>

namespace device_calls {

using number = std::int64_t;

/// The function x -> a x + b, modulo 2^64. Composing does not commute.
struct affine {
  std::uint64_t a;
  std::uint64_t b;
  friend bool operator==(const affine&, const affine&) = default;
};
struct compose {
  COLLS_HOST_DEVICE affine operator()(const affine& first, const affine& then) const {
    return {first.a * then.a, first.b * then.a + then.b};
  }
};

/// The initial value of a rank's element i.
inline number value(int rank, std::size_t i) {
  return static_cast<number>((static_cast<std::size_t>(rank) + 2) * (i * 7919 + 17) % 100'003);
}
inline affine line(int rank, std::size_t i) {
  const auto x = static_cast<std::uint64_t>(value(rank, i));
  return {2 * x + 1, x};
}
inline float small(int rank, std::size_t i) { return static_cast<float>(value(rank, i) % 256); }

/// Elements `at(0)` to `at(count - 1)`.
template <class T, class At>
std::vector<T> made(std::size_t count, const At& at) {
  std::vector<T> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = at(i);
  return all;
}
/// The initial values of a rank's `count` elements from element `from` on.
inline std::vector<number> numbers(int rank, std::size_t count, std::size_t from = 0) {
  return made<number>(count, [&](std::size_t i) { return value(rank, from + i); });
}
/// The sums of the initial values of ranks [0, ranks).
inline std::vector<number> sums(int ranks, std::size_t count, std::size_t from = 0) {
  return made<number>(count, [&](std::size_t i) {
    number all = 0;
    for (int r = 0; r < ranks; ++r) all += value(r, from + i);
    return all;
  });
}
/// Values that no call may leave in its output.
inline std::vector<number> stale(std::size_t count) { return std::vector<number>(count, -5); }

/// Awaits the result of `make()` and returns the code of the error that it throws, or `errc{}`.
template <class Make>
colls::task<colls::errc> code_of(Make make) {
  try {
    co_await make();
  } catch (const colls::error& thrown) {
    co_return static_cast<colls::errc>(thrown.code().value());
  }
  co_return colls::errc{};
}

template <class User, class Communicator>
colls::task<> every_reduction(User& by, Communicator& gpu, std::size_t n) {
  const int p = gpu.size();
  const int me = gpu.rank();
  const colls::options how = by.on_stream();
  const std::vector<number> mine = numbers(me, n);
  const std::vector<number> sum = sums(p, n);
  {
    auto data = by.holding(mine);
    co_await gpu.all_reduce(data.span(), how);
    co_await by.expect("all_reduce", data, sum);
  }
  {
    auto in = by.holding(mine);
    auto out = by.holding(stale(n));
    co_await gpu.all_reduce(in.span(), out.span(), how);
    co_await by.expect("all_reduce out of place", out, sum);
    co_await by.expect("all_reduce out of place, in", in, mine);
  }
  {
    auto data = by.holding(made<affine>(n, [me](std::size_t i) { return line(me, i); }));
    co_await gpu.all_reduce(data.span(), compose(), how);
    std::vector<affine> all = made<affine>(n, [](std::size_t i) { return line(0, i); });
    for (int r = 1; r < p; ++r) {
      for (std::size_t i = 0; i < n; ++i) all[i] = compose()(all[i], line(r, i));
    }
    co_await by.expect("all_reduce in order", data, all);
  }
  {
    using half = colls::bfloat16;
    auto data = by.holding(made<half>(n, [me](std::size_t i) { return half(small(me, i)); }));
    co_await gpu.all_reduce(data.span(), colls::average(), how);
    const auto mean = [p](std::size_t i) {
      float all = 0;
      for (int r = 0; r < p; ++r) all += small(r, i);
      return half(all / static_cast<float>(p));
    };
    co_await by.expect("average of halves", data, made<half>(n, mean));
  }
  for (const std::size_t longer : {n / 7, 5 * n}) {
    auto a = by.holding(mine);
    auto b = by.holding(numbers(me, longer));
    const auto one = a.span();
    const auto other = b.span();
    co_await gpu.all_reduce(colls::group{one, other}, colls::plus(), how);
    co_await by.expect("group", a, sum);
    co_await by.expect("group, longer", b, sums(p, longer));
  }
  for (int root = 0; root < p; root += p > 2 ? p - 1 : 1) {
    auto data = by.holding(mine);
    co_await gpu.reduce(data.span(), root, colls::plus(), how);
    co_await by.expect("reduce", data, me == root ? sum : mine);
  }
  auto data = by.holding(mine);
  co_await gpu.scan(data.span(), colls::plus(), how);
  co_await by.expect("scan", data, sums(me + 1, n));
  auto before = by.holding(mine);
  co_await gpu.exscan(before.span(), colls::plus(), how);
  const std::vector<number> of_those_before = me == 0 ? mine : sums(me, n);
  co_await by.expect("exscan", before, of_those_before);
}

/// Calls on blocks of `n` elements, and on blocks of r * n / 2 + n % 3 elements for rank r.
template <class User, class Communicator>
colls::task<> every_block(User& by, Communicator& gpu, std::size_t n) {
  const int p = gpu.size();
  const int me = gpu.rank();
  const auto ranks = static_cast<std::size_t>(p);
  const auto mine = static_cast<std::size_t>(me);
  const colls::options how = by.on_stream();
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets{0};
  for (std::size_t r = 0; r < ranks; ++r) {
    counts.push_back(r * n / 2 + n % 3);
    offsets.push_back(offsets.back() + counts.back());
  }
  // `count` elements of every rank in rank order, from each rank's element `from` on.
  const auto of_all = [p](std::size_t count, std::size_t from) {
    std::vector<number> all;
    for (int r = 0; r < p; ++r) {
      const std::vector<number> block = numbers(r, count, from);
      all.insert(all.end(), block.begin(), block.end());
    }
    return all;
  };
  for (int root = 0; root < p; root += p > 2 ? p - 1 : 1) {
    auto sent = by.holding(numbers(me, n));
    co_await gpu.broadcast(sent.span(), root, how);
    co_await by.expect("broadcast", sent, numbers(root, n));

    const std::size_t whole = me == root ? n * ranks : 0;
    auto part = by.holding(numbers(me, n));
    auto all = by.holding(stale(whole));
    co_await gpu.gather(part.span(), all.span(), root, how);
    const std::vector<number> joined = me == root ? of_all(n, 0) : stale(0);
    co_await by.expect("gather", all, joined);
    auto from = by.holding(numbers(3, whole));
    auto share = by.holding(stale(n));
    co_await gpu.scatter(from.span(), share.span(), root, how);
    co_await by.expect("scatter", share, numbers(3, n, mine * n));
  }
  {
    auto in = by.holding(numbers(me, n * ranks));
    auto out = by.holding(stale(n));
    co_await gpu.reduce_scatter(in.span(), out.span(), colls::plus(), how);
    co_await by.expect("reduce_scatter", out, sums(p, n, mine * n));
    auto all = by.holding(numbers(me, offsets.back()));
    auto own = by.holding(stale(counts[mine]));
    co_await gpu.reduce_scatter_v(all.span(), own.span(), counts, colls::plus(), how);
    co_await by.expect("reduce_scatter_v", own, sums(p, counts[mine], offsets[mine]));
  }
  {
    auto in = by.holding(numbers(me, n));
    auto out = by.holding(stale(n * ranks));
    co_await gpu.all_gather(in.span(), out.span(), how);
    co_await by.expect("all_gather", out, of_all(n, 0));
    auto own = by.holding(numbers(me, counts[mine]));
    auto all = by.holding(stale(offsets.back()));
    co_await gpu.all_gather_v(own.span(), all.span(), counts, how);
    std::vector<number> joined;
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::vector<number> block = numbers(static_cast<int>(r), counts[r]);
      joined.insert(joined.end(), block.begin(), block.end());
    }
    co_await by.expect("all_gather_v", all, joined);
  }
  {
    auto in = by.holding(numbers(me, n * ranks));
    auto out = by.holding(stale(n * ranks));
    co_await gpu.all_to_all(in.span(), out.span(), how);
    co_await by.expect("all_to_all", out, of_all(n, mine * n));
    auto both = by.holding(numbers(me, n * ranks));
    co_await gpu.all_to_all(both.span(), both.span(), how);
    co_await by.expect("all_to_all in place", both, of_all(n, mine * n));
    // Each rank sends `counts[j]` elements to rank j.
    auto sent = by.holding(numbers(me, offsets.back()));
    const std::vector<std::size_t> same(ranks, counts[mine]);
    auto got = by.holding(stale(counts[mine] * ranks));
    co_await gpu.all_to_all_v(sent.span(), counts, got.span(), same, how);
    co_await by.expect("all_to_all_v", got, of_all(counts[mine], offsets[mine]));
  }
}

template <class User, class Communicator>
colls::task<> every_message(User& by, Communicator& gpu, std::size_t n) {
  const int p = gpu.size();
  const int me = gpu.rank();
  const colls::options how = by.on_stream();
  const int next = (me + 1) % p;
  const int before = (me + p - 1) % p;
  auto out = by.holding(numbers(me, n));
  auto in = by.holding(stale(n + 3));
  const colls::received got = co_await gpu.send_recv(out.span(), next, in.span(), before, 4, how);
  std::vector<number> sent = numbers(before, n);
  sent.resize(n + 3, -5);
  if (got.count != n) sent.clear();
  co_await by.expect("send_recv", in, sent);
  if (p == 1 || me > 1) co_return;
  auto again = by.holding(stale(n));
  if (me == 0) {
    auto fresh = by.holding(numbers(0, n));
    co_await gpu.send(fresh.span(), 1, 5, how);
    co_await gpu.recv(again.span(), colls::any_source, 6, how);
  } else {
    co_await gpu.recv(again.span(), 0, 5, how);
    co_await gpu.send(again.span(), 0, 6, how);
  }
  co_await by.expect("send and recv", again, numbers(0, n));
}

/// Makes every call on `n` elements, and reads each result as soon as the call has ended.
template <class User, class Communicator>
colls::task<> every_call(User& by, Communicator& gpu, std::size_t n) {
  co_await every_reduction(by, gpu, n);
  co_await every_block(by, gpu, n);
  co_await every_message(by, gpu, n);
  co_await gpu.barrier();
}

}  // namespace device_calls
