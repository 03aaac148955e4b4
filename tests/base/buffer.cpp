// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/buffer.hpp>

#include <doctest/doctest.h>

#include <colls/base/partition.hpp>

namespace {

using colls::any_buffer;
using colls::device_span;

static_assert(colls::buffer<std::span<int>> && colls::buffer<std::span<const double>>);
static_assert(colls::buffer<any_buffer> && colls::buffer<device_span<float>>);
static_assert(!colls::buffer<int> && !colls::buffer<int*>);
static_assert(std::is_same_v<colls::memory_space_t<std::span<int>>, colls::host_memory>);
static_assert(std::is_same_v<colls::memory_space_t<any_buffer>, colls::host_memory>);
static_assert(std::is_same_v<colls::memory_space_t<device_span<int>>, colls::device_memory>);
static_assert(std::is_trivially_copyable_v<any_buffer> &&
              std::is_trivially_copyable_v<device_span<int>>);

TEST_CASE("an erased buffer is cut by elements of its size") {
  double data[10] = {};
  const any_buffer all(data, 10, sizeof(double));
  const any_buffer piece = all.subspan(3, 4);
  CHECK(piece.data() == data + 3);
  CHECK(piece.size() == 4);
  CHECK(colls::element_size(piece) == sizeof(double));
  CHECK(bytes(piece).size == 32);
  CHECK(static_cast<void*>(bytes(piece).data) == data + 3);
  CHECK(any_buffer().subspan(0, 0).data() == nullptr);
  CHECK(any_buffer(nullptr, 0, 8).subspan(0, 0).element_size() == 8);
}

TEST_CASE("typed buffers have the same bytes") {
  int data[6] = {};
  const std::span<int> all(data);
  CHECK(colls::bytes(all).size == 24);
  CHECK(colls::element_size(all) == 4);
  const device_span<int> there(data, 6);
  CHECK(there.subspan(2, 3).data() == data + 2);
  CHECK(bytes(there.subspan(2, 3)).size == 12);
}

TEST_CASE("chunks are the shares of a partition") {
  int data[10] = {};
  const colls::chunks chunk(std::span<int>(data), colls::partition(10, 3));
  CHECK(chunk[0].data() == data);
  CHECK(chunk[0].size() == 4);
  CHECK(chunk[2].data() == data + 7);
  CHECK(chunk[2].size() == 3);
}

}  // namespace
