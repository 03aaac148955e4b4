// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/attach.hpp>

#include <colls/cuda/memory.hpp>

#include <doctest/doctest.h>

#include "../stand_in/cuda.hpp"

// The checks of the buffers and streams of calls on device memory. The stand-in is not a GPU.

namespace cuda = colls::cuda;

namespace {

TEST_CASE("a buffer must lie in one allocation of the device") {
  stand_in::boot({.devices = 2});
  {
    std::vector<cuda::device_buffer<int>> of;
    for (const int device : {0, 1}) {
      const cuda::on_device here(device);
      of.emplace_back(100);
    }
    const int first = of[0].data() < of[1].data() ? 0 : 1;
    int* const begin = of[static_cast<std::size_t>(first)].data();
    int* const other = of[static_cast<std::size_t>(1 - first)].data();
    const auto until = [begin](const int* end) {
      return colls::any_buffer(begin, static_cast<std::size_t>(end - begin), sizeof(int));
    };
    CHECK(cuda::usage_error(until(begin + 100), first) == nullptr);
    CHECK(cuda::usage_error(until(begin + 101), first) == colls::detail::beyond_its_memory);
    CHECK(cuda::usage_error(until(other + 10), first) == colls::detail::beyond_its_memory);
    CHECK(cuda::usage_error(until(begin + 100), 1 - first) == colls::detail::other_devices_memory);
  }
  CHECK(stand_in::allocations() == 0);
}

TEST_CASE("the stream of a call must be of its device and not captured") {
  stand_in::boot({.devices = 2});
  void* const callers = stand_in::make_stream(1);
  (void)cuda::api::use_device(0);
  CHECK(cuda::usage_error(colls::stream_ref{callers}, 1) == nullptr);
  CHECK(cuda::usage_error(colls::stream_ref{callers}, 0) == colls::detail::other_devices_stream);
  stand_in::capture(callers, true);
  CHECK(cuda::usage_error(colls::stream_ref{callers}, 1) == colls::detail::captured_stream);
  CHECK(cuda::usage_error(colls::stream_ref{}, 1) == nullptr);
  int now = -1;
  (void)cuda::api::current_device(now);
  CHECK(now == 0);
  CHECK(stand_in::complaints().empty());
}

}  // namespace
