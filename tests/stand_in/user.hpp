// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A user of the stand-in. It fills device memory on its own stream and calls every collective on
// what that stream has still to write, as programs for a GPU do.

#include <doctest/doctest.h>

#include <chrono>
#include <deque>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "../support/device_refusals.hpp"
#include "cuda.hpp"

namespace stand_in {

using device_calls::affine;
using device_calls::code_of;
using device_calls::compose;
using device_calls::number;
using device_calls::value;

/// Compares device memory, which may be read once the call has been awaited.
template <class T, class Make>
void expect(const char* what, const T* got, std::size_t count, Make want) {
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE_MESSAGE(got[i] == want(i), what << ", element " << i << " of " << count);
  }
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
  /// Does this on the user's stream, after the work that the stream has.
  void later(std::function<void()> work) {
    work_.push_back(std::move(work));
    enqueue(
        stream_, [](void* one) { (*static_cast<std::function<void()>*>(one))(); }, &work_.back());
  }
  /// Later work of the user's stream waits until `open` is true.
  void hold(const bool& open) const {
    const auto guard = lock();
    const auto is_open = [&open] { return open; };
    enqueue_barrier(stream_, &open, is_open, {});
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
  /// Memory that the stream has still to overwrite: no result may be written there before.
  colls::cuda::device_buffer<number> used(std::size_t count) {
    return filled<number>(count, [](std::size_t) { return number{-5}; });
  }
  template <class T>
  colls::cuda::device_buffer<T> holding(std::vector<T> all) {
    const std::size_t count = all.size();
    return filled<T>(count, [from = std::move(all)](std::size_t i) { return from[i]; });
  }
  template <class T>
  colls::task<> expect(const char* what, const colls::cuda::device_buffer<T>& got,
                       const std::vector<T>& want) const {
    REQUIRE(got.size() == want.size());
    stand_in::expect(what, got.data(), want.size(), [&want](std::size_t i) { return want[i]; });
    co_return;
  }
  void capture(bool begins) const { stand_in::capture(stream_, begins); }

 private:
  int device_;
  void* stream_;
  std::deque<std::function<void()>> work_;
};

/// Calls whose callers' streams wait for the end of other calls, or get work that waits for the
/// call itself. None of that delays the call that is awaited.
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

/// Makes every call on `n` elements, and reads each result as soon as the call has ended.
template <class Communicator>
colls::task<> every_collective(Communicator& gpu, std::size_t n) {
  user by(gpu.net().device());
  co_await device_calls::every_call(by, gpu, n);
}
/// Makes calls that must be refused.
template <class Communicator>
colls::task<> every_refusal(Communicator& gpu) {
  user by(gpu.net().device());
  const std::vector<device_calls::refusal> good = co_await device_calls::refusals(by, gpu);
  for (const auto& each : good)
    FAIL_CHECK(each.what << ": " << make_error_code(each.code).message());
  co_await gpu.barrier();
}

/// Makes every call while the thread uses the other one of two devices, and the communicator's own.
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
