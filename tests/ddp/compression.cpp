// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/ddp/compression.hpp>

#include <colls/inproc.hpp>
#include <colls/transport.hpp>
#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "../conformance/harness.hpp"

namespace {

using colls::bfloat16;
using colls::float16;
using colls::task;
using colls::ddp::compression;
using communicator = colls::inproc::communicator;

/// A different value for each element of each rank, with more digits than 16 bits hold.
template <class T>
T value(int rank, std::size_t i) {
  return static_cast<T>(static_cast<float>(std::sin(static_cast<double>(i) + 0.7 * rank) * 3));
}

/// Every rank's bucket after the hook.
template <class T>
std::vector<std::vector<T>> summed(compression format, int ranks, std::size_t n) {
  std::vector<std::vector<T>> data(static_cast<std::size_t>(ranks));
  colls::inproc::run(ranks, [&](communicator& comm) -> task<> {
    std::vector<T>& mine = data[static_cast<std::size_t>(comm.rank())];
    for (std::size_t i = 0; i < n; ++i) mine.push_back(value<T>(comm.rank(), i));
    const auto hook = colls::ddp::make_hook<T, communicator>(format);
    task<> work = hook(comm, std::span<T>(mine));
    co_await work;
  });
  return data;
}

// Checks that each input and the sum are rounded once, and nothing in between.
template <class T, class Half>
void check_rounded_once(compression format) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const std::size_t n : {0u, 1u, 2u, 7u, 8u, 9u, 1023u, 5000u, 20'011u}) {
      CAPTURE(ranks);
      CAPTURE(n);
      std::vector<T> expected;
      for (std::size_t i = 0; i < n; ++i) {
        float sum = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const float rounded = Half(static_cast<float>(value<T>(rank, i)));
          sum += rounded;
        }
        expected.push_back(static_cast<T>(static_cast<float>(Half(sum))));
      }
      for (const std::vector<T>& got : summed<T>(format, ranks, n)) CHECK(got == expected);
    }
  }
}

TEST_CASE("compressed, each gradient is rounded once, summed in float, and rounded once") {
  check_rounded_once<float, bfloat16>(compression::bfloat16);
  check_rounded_once<float, float16>(compression::float16);
  check_rounded_once<double, bfloat16>(compression::bfloat16);
  check_rounded_once<float16, bfloat16>(compression::bfloat16);
}

TEST_CASE("without compression the sum is the plain all_reduce") {
  for (const auto& got : summed<double>(compression::none, 3, 1000)) {
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i] ==
            doctest::Approx(value<double>(0, i) + value<double>(1, i) + value<double>(2, i)));
    }
  }
}

// Rules out the direct algorithms, which would send nothing.
struct counted_messages : conformance::counted<colls::inproc_transport> {
  using counted::counted;
  void arrive() = delete;
};

TEST_CASE("compressed buckets send half the bytes") {
  using transport = counted_messages;
  using counting = colls::communicator<transport>;
  const auto sent_by = [](compression format) {
    colls::inproc_world world(2);
    conformance::traffic sent;
    std::vector<counting> comms;
    for (int rank = 0; rank < 2; ++rank) {
      comms.emplace_back(std::make_unique<colls::detail::core<transport>>(
          std::make_shared<transport>(world[rank], sent), 0, rank, 2, nullptr, true));
    }
    const auto hook = colls::ddp::make_hook<float, counting>(format);
    std::vector<float> data[2] = {std::vector<float>(100'000), std::vector<float>(100'000)};
    std::vector<task<>> work;
    for (std::size_t rank = 0; rank < 2; ++rank) work.push_back(hook(comms[rank], data[rank]));
    colls::sync_wait(world, colls::when_all(std::move(work)));
    return sent.bytes;
  };
  CHECK(sent_by(compression::none) == 800'000);
  CHECK(sent_by(compression::bfloat16) == 400'000);
  CHECK(sent_by(compression::float16) == 400'000);
}

template <class T>
void check_scale() {
  std::vector<T> data;
  for (std::size_t i = 0; i < 1000; ++i) data.push_back(value<T>(0, i));
  const std::vector<T> before = data;
  colls::ddp::detail::scale(std::span<T>(data), 1);
  CHECK(data == before);
  colls::ddp::detail::scale(std::span<T>(data), 0.3);
  for (std::size_t i = 0; i < data.size(); ++i) {
    using compute = std::conditional_t<std::is_same_v<T, double>, double, float>;
    CHECK(data[i] == static_cast<T>(static_cast<compute>(before[i]) * static_cast<compute>(0.3)));
  }
  data[7] = std::numeric_limits<T>::quiet_NaN();
  data[8] = std::numeric_limits<T>::infinity();
  colls::ddp::detail::scale(std::span<T>(data), 0);
  CHECK(data == std::vector<T>(1000, T(0.0f)));
}

TEST_CASE("scaling rounds once, and a factor of 0 leaves nothing, not even a NaN") {
  check_scale<float>();
  check_scale<double>();
  check_scale<float16>();
  check_scale<bfloat16>();
}

}  // namespace
