// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A user of the stand-in: fills device memory on a stream of its own and calls every collective on
// what that stream will have written, as on a GPU one does.

#include <colls/cuda/attach.hpp>
#include <colls/cuda/memory.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "cuda.hpp"

namespace stand_in {

using number = std::int64_t;

/// a and b of x -> a x + b, modulo 2^64: combining them does not commute.
struct affine {
  std::uint64_t a;
  std::uint64_t b;
  friend bool operator==(const affine&, const affine&) = default;
};
struct compose {
  affine operator()(const affine& first, const affine& then) const {
    return {first.a * then.a, first.b * then.a + then.b};
  }
};

/// What element i of a rank is at first.
inline number value(int rank, std::size_t i) {
  return static_cast<number>((static_cast<std::size_t>(rank) + 2) * (i * 7919 + 17) % 100'003);
}

class user {
 public:
  explicit user(int device = 0) : device_(device), stream_(make_stream(device)) {}
  user(const user&) = delete;
  ~user() { synchronize(stream_); }

  colls::options on_stream() const {
    colls::options how;
    how.stream = {stream_};
    return how;
  }
  /// Does it on the user's stream, when that gets there.
  void later(std::function<void()> work) {
    work_.push_back(std::move(work));
    enqueue(
        stream_, [](void* one) { (*static_cast<std::function<void()>*>(one))(); }, &work_.back());
  }
  /// What comes on the user's stream after this waits until `open`.
  void hold(const bool& open) const {
    const auto guard = lock();
    const auto is_open = [&open] { return open; };
    enqueue_meeting(stream_, &open, is_open, {});
  }
  template <class T, class Make>
  colls::cuda::device_buffer<T> filled(std::size_t count, Make make) {
    const colls::cuda::on_device here(device_);
    colls::cuda::device_buffer<T> made(count);
    T* const to = made.data();
    later([to, count, make] {
      for (std::size_t i = 0; i < count; ++i) to[i] = make(i);
    });
    return made;
  }
  colls::cuda::device_buffer<number> numbers(std::size_t count, int rank) {
    return filled<number>(count, [rank](std::size_t i) { return value(rank, i); });
  }
  /// Memory that the stream still overwrites: a result may not come there before.
  colls::cuda::device_buffer<number> used(std::size_t count) {
    return filled<number>(count, [](std::size_t) { return number{-5}; });
  }

 private:
  int device_;
  void* stream_;
  std::deque<std::function<void()>> work_;
};

/// What ends `make()`, which gives something to await; none: nothing did.
template <class Make>
colls::task<colls::errc> code_of(Make make) {
  try {
    co_await make();
  } catch (const colls::error& thrown) {
    co_return static_cast<colls::errc>(thrown.code().value());
  }
  co_return colls::errc{};
}

/// Device memory as whoever awaited the call may read it now.
template <class T, class Make>
void expect(const char* what, const T* got, std::size_t count, Make want) {
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE_MESSAGE(got[i] == want(i), what << ", element " << i << " of " << count);
  }
}

/// Calls whose callers' streams wait for the end of other calls, or get work that waits for the
/// call itself: none of that holds up the call that is waited for.
template <class Communicator>
colls::task<> calls_that_streams_wait_for(Communicator& gpu, std::size_t n) {
  const auto sum = [&gpu](std::size_t i) {
    number all = 0;
    for (int r = 0; r < gpu.size(); ++r) all += value(r, i);
    return all;
  };
  for (const bool later : {true, false}) {
    bool open = false;
    user by(gpu.net().device());
    user held_up(gpu.net().device());
    auto one = by.numbers(n, gpu.rank());
    auto other = held_up.numbers(n, gpu.rank());
    held_up.hold(open);
    colls::options soon = by.on_stream();
    soon.timeout = std::chrono::seconds(5);
    std::vector<colls::operation<>> calls;
    if (!later) calls.push_back(gpu.all_reduce(other.span(), held_up.on_stream()));
    calls.push_back(gpu.all_reduce(one.span(), soon));
    if (later) calls.push_back(gpu.all_reduce(other.span(), held_up.on_stream()));
    colls::operation<>& wanted = calls[later ? 0 : 1];
    const auto waiting = [&wanted]() -> colls::task<> { co_await wanted; };
    const colls::errc code = co_await code_of(waiting);
    open = true;
    REQUIRE(code == colls::errc{});
    expect("waited for", one.data(), n, sum);
    co_await calls[later ? 1 : 0];
    expect("held up", other.data(), n, sum);
  }
  bool open = false;
  user by(gpu.net().device());
  auto one = by.numbers(n, gpu.rank());
  auto other = by.numbers(n, gpu.rank());
  colls::options soon = by.on_stream();
  soon.timeout = std::chrono::seconds(5);
  const auto first = one.span();
  const auto second = other.span();
  auto call = gpu.all_reduce(colls::group{first, second}, colls::plus(), soon);
  by.hold(open);
  const auto waiting = [&call]() -> colls::task<> { co_await call; };
  const colls::errc code = co_await code_of(waiting);
  open = true;
  REQUIRE(code == colls::errc{});
  expect("group", one.data(), n, sum);
  expect("group", other.data(), n, sum);

  bool has_come = false;
  if (gpu.rank() == 1) {
    auto message = gpu.recv(other.span(), 0, 7, soon);
    by.hold(has_come);
    co_await gpu.barrier();
    const auto arriving = [&message]() -> colls::task<> { (void)co_await message; };
    const colls::errc arrived = co_await code_of(arriving);
    has_come = true;
    REQUIRE(arrived == colls::errc{});
    expect("message", other.data(), n, sum);
  } else {
    co_await gpu.barrier();
    if (gpu.rank() == 0) co_await gpu.send(one.span(), 1, 7, by.on_stream());
  }
}

/// Every collective on `n` elements, its results read at once.
template <class Communicator>
colls::task<> every_collective(Communicator& gpu, std::size_t n) {
  const int p = gpu.size();
  const int me = gpu.rank();
  const auto ranks = static_cast<std::size_t>(p);
  const auto mine = static_cast<std::size_t>(me);
  user by(gpu.net().device());
  const colls::options how = by.on_stream();
  const auto sum = [p](std::size_t i) {
    number all = 0;
    for (int r = 0; r < p; ++r) all += value(r, i);
    return all;
  };
  {
    auto data = by.numbers(n, me);
    co_await gpu.all_reduce(data.span(), how);
    expect("all_reduce", data.data(), n, sum);
  }
  {
    auto in = by.numbers(n, me);
    auto out = by.used(n);
    co_await gpu.all_reduce(in.span(), out.span(), colls::maximum(), how);
    expect("all_reduce apart", out.data(), n, [&](std::size_t i) {
      number most = 0;
      for (int r = 0; r < p; ++r) most = std::max(most, value(r, i));
      return most;
    });
    expect("all_reduce apart, in", in.data(), n, [&](std::size_t i) { return value(me, i); });
  }
  {
    const auto one = [](int r, std::size_t i) {
      const auto x = static_cast<std::uint64_t>(value(r, i));
      return affine{2 * x + 1, x};
    };
    auto data = by.filled<affine>(n, [me, one](std::size_t i) { return one(me, i); });
    co_await gpu.all_reduce(data.span(), compose(), how);
    expect("all_reduce in order", data.data(), n, [&](std::size_t i) {
      affine all = one(0, i);
      for (int r = 1; r < p; ++r) all = compose()(all, one(r, i));
      return all;
    });
  }
  {
    auto data = by.filled<colls::bfloat16>(
        n, [me](std::size_t i) { return colls::bfloat16(static_cast<float>(value(me, i) % 256)); });
    co_await gpu.all_reduce(data.span(), colls::average(), how);
    expect("average of halves", data.data(), n, [&](std::size_t i) {
      float all = 0;
      for (int r = 0; r < p; ++r) all += static_cast<float>(value(r, i) % 256);
      return colls::bfloat16(all / static_cast<float>(p));
    });
  }
  for (const std::size_t longer : {n / 7, 5 * n}) {
    auto a = by.numbers(n, me);
    auto b = by.numbers(longer, me);
    const auto one = a.span();
    const auto other = b.span();
    co_await gpu.all_reduce(colls::group{one, other}, colls::plus(), how);
    expect("group", a.data(), n, sum);
    expect("group", b.data(), longer, sum);
  }
  for (int root = 0; root<p; root += p> 2 ? p - 1 : 1) {
    auto data = by.numbers(n, me);
    co_await gpu.reduce(data.span(), root, colls::plus(), how);
    expect("reduce", data.data(), n,
           [&](std::size_t i) { return me == root ? sum(i) : value(me, i); });
    auto sent = by.numbers(n, me);
    co_await gpu.broadcast(sent.span(), root, how);
    expect("broadcast", sent.data(), n, [&](std::size_t i) { return value(root, i); });

    auto part = by.numbers(n, me);
    auto all = by.used(me == root ? n * ranks : 0);
    co_await gpu.gather(part.span(), all.span(), root, how);
    expect("gather", all.data(), all.size(),
           [&](std::size_t i) { return value(static_cast<int>(i / n), i % n); });
    auto whole = by.numbers(me == root ? n * ranks : 0, 3);
    auto share = by.used(n);
    co_await gpu.scatter(whole.span(), share.span(), root, how);
    expect("scatter", share.data(), n, [&](std::size_t i) { return value(3, mine * n + i); });
  }
  {
    auto data = by.numbers(n, me);
    co_await gpu.scan(data.span(), colls::plus(), how);
    expect("scan", data.data(), n, [&](std::size_t i) {
      number all = 0;
      for (int r = 0; r <= me; ++r) all += value(r, i);
      return all;
    });
    auto before = by.numbers(n, me);
    co_await gpu.exscan(before.span(), colls::plus(), how);
    expect("exscan", before.data(), n, [&](std::size_t i) {
      number all = me == 0 ? value(0, i) : 0;
      for (int r = 0; r < me; ++r) all += value(r, i);
      return all;
    });
  }
  // Blocks, and counts of their own: rank r has r + n % 3.
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets{0};
  for (std::size_t r = 0; r < ranks; ++r) {
    counts.push_back(r * n / 2 + n % 3);
    offsets.push_back(offsets.back() + counts.back());
  }
  {
    auto in = by.numbers(n * ranks, me);
    auto out = by.used(n);
    co_await gpu.reduce_scatter(in.span(), out.span(), colls::plus(), how);
    expect("reduce_scatter", out.data(), n, [&](std::size_t i) { return sum(mine * n + i); });
    auto all = by.numbers(offsets.back(), me);
    auto own = by.used(counts[mine]);
    co_await gpu.reduce_scatter_v(all.span(), own.span(), counts, colls::plus(), how);
    expect("reduce_scatter_v", own.data(), counts[mine],
           [&](std::size_t i) { return sum(offsets[mine] + i); });
  }
  {
    auto in = by.numbers(n, me);
    auto out = by.used(n * ranks);
    co_await gpu.all_gather(in.span(), out.span(), how);
    expect("all_gather", out.data(), out.size(),
           [&](std::size_t i) { return value(static_cast<int>(i / n), i % n); });
    auto own = by.numbers(counts[mine], me);
    auto all = by.used(offsets.back());
    co_await gpu.all_gather_v(own.span(), all.span(), counts, how);
    for (std::size_t r = 0; r < ranks; ++r) {
      expect("all_gather_v", all.data() + offsets[r], counts[r],
             [&](std::size_t i) { return value(static_cast<int>(r), i); });
    }
  }
  {
    auto in = by.numbers(n * ranks, me);
    auto out = by.used(n * ranks);
    co_await gpu.all_to_all(in.span(), out.span(), how);
    expect("all_to_all", out.data(), out.size(),
           [&](std::size_t i) { return value(static_cast<int>(i / n), mine * n + i % n); });
    auto both = by.numbers(n * ranks, me);
    co_await gpu.all_to_all(both.span(), both.span(), how);
    expect("all_to_all in place", both.data(), both.size(),
           [&](std::size_t i) { return value(static_cast<int>(i / n), mine * n + i % n); });
    // Rank i sends to rank j what j counts.
    auto sent = by.numbers(offsets.back(), me);
    const std::vector<std::size_t> same(ranks, counts[mine]);
    auto got = by.used(counts[mine] * ranks);
    co_await gpu.all_to_all_v(sent.span(), counts, got.span(), same, how);
    expect("all_to_all_v", got.data(), got.size(), [&](std::size_t i) {
      const std::size_t share = counts[mine];
      return value(static_cast<int>(i / share), offsets[mine] + i % share);
    });
  }
  {
    const int next = (me + 1) % p;
    const int before = (me + p - 1) % p;
    auto out = by.numbers(n, me);
    auto in = by.used(n + 3);
    const colls::received got = co_await gpu.send_recv(out.span(), next, in.span(), before, 4, how);
    CHECK(got.count == n);
    expect("send_recv", in.data(), n, [&](std::size_t i) { return value(before, i); });
    if (p > 1 && me < 2) {
      auto again = by.used(n);
      if (me == 0) {
        auto fresh = by.numbers(n, 0);
        co_await gpu.send(fresh.span(), 1, 5, how);
        co_await gpu.recv(again.span(), colls::any_source, 6, how);
      } else {
        co_await gpu.recv(again.span(), 0, 5, how);
        co_await gpu.send(again.span(), 0, 6, how);
      }
      expect("send and recv", again.data(), n, [&](std::size_t i) { return value(0, i); });
    }
  }
  co_await gpu.barrier();
}

/// The same while the thread uses another device than the communicator's, of two.
template <class Communicator>
colls::task<> calls_from_another_device(Communicator& gpu) {
  const int own = gpu.net().device();
  for (const int used : {1 - own, own, 1 - own}) {
    (void)colls::cuda::api::use_device(used);
    co_await every_collective(gpu, 300);
  }
  co_await gpu.barrier();
  (void)colls::cuda::api::use_device(0);
}

}  // namespace stand_in
