// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/neighbourhood.hpp>

#include <doctest/doctest.h>

#include <cstdlib>

#include "stand_in/cuda.hpp"

// What a rank finds of another one's memory. The stand-in is no GPU.

namespace cuda = colls::cuda;
namespace api = cuda::api;

namespace {

using of_pool = cuda::detail::owned<int, stand_in::take_of_pool, api::release>;

/// Where rank 1 of `device` finds what rank 0 of device 0 lends.
std::byte* place_for(int device, colls::const_bytes data, api::status& why) {
  cuda::neighbourhood owner(0, 0, 2);
  cuda::neighbourhood other(device, 1, 2);
  const cuda::visiting_card card = owner.introduce(data, {});
  std::vector<cuda::mapped_memory::piece*> taken;
  return other.place_of(card, card.in, false, taken, why);
}

TEST_CASE("memory of a pool is for its own device, of a rank of the same process too") {
  stand_in::boot({.devices = 2});
  {
    const cuda::on_device here(0);
    const of_pool pool(100, "cudaMallocAsync");
    const cuda::device_buffer<int> usual(100);
    auto* const in_pool = reinterpret_cast<std::byte*>(pool.data());
    auto* const in_usual = reinterpret_cast<std::byte*>(usual.data());
    api::status why = api::success;
    CHECK(place_for(0, {in_pool, 400}, why) == in_pool);
    CHECK(place_for(1, {in_usual, 400}, why) == in_usual);
    CHECK(place_for(1, {in_pool, 400}, why) == nullptr);
    CHECK(why != api::success);
  }
  CHECK(stand_in::complaints().empty());
  CHECK(stand_in::allocations() == 0);
}

}  // namespace
