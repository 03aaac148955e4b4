// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/check.hpp>

#include <doctest/doctest.h>

#include <ostream>

#include "../stand_in/cuda.hpp"

namespace cuda = colls::cuda;

namespace {

colls::failure failure_of(cuda::api::status how, const char* call) {
  try {
    cuda::check(how, call);
  } catch (const colls::error& thrown) {
    return thrown.record();
  }
  return {};
}

TEST_CASE("a CUDA error is thrown as a colls error that has the call and CUDA's message") {
  stand_in::boot({});
  CHECK(failure_of(cuda::api::success, "a call").code == colls::errc{});
  const colls::failure memory = failure_of(cuda::api::out_of_memory, "cudaMalloc");
  CHECK(memory.code == colls::errc::not_enough_memory);
  CHECK(std::string(memory.detail) == "cudaMalloc: stand-in (cudaErrorMemoryAllocation)");
  CHECK(failure_of(cuda::api::invalid_value, "a call").code == colls::errc::device_failed);
  CHECK(failure_of(cuda::api::insufficient_driver, "a call").code == colls::errc::no_device);
}

TEST_CASE("without a device every query fails with no_device") {
  stand_in::boot({.devices = 0});
  try {
    (void)cuda::devices();
    FAIL("there is no device");
  } catch (const colls::error& thrown) {
    CHECK(thrown.code() == colls::errc::no_device);
    CHECK(std::string(thrown.what()).find("no CUDA device") != std::string::npos);
  }
  CHECK_THROWS_AS(cuda::on_device(0), colls::error);
  stand_in::boot({.devices = 2});
  CHECK(cuda::devices() == 2);
}

TEST_CASE("on_device makes no context on a device that the process has not used") {
  stand_in::boot({.devices = 2});
  {
    const cuda::on_device here(1);
  }
  bool used = true;
  CHECK(cuda::api::is_in_use(used, 0) == cuda::api::success);
  CHECK_FALSE(used);
  CHECK(cuda::api::is_in_use(used, 1) == cuda::api::success);
  CHECK(used);
}

TEST_CASE("on_device restores the thread's device") {
  stand_in::boot({.devices = 3});
  (void)cuda::api::use_device(0);
  int now = -1;
  {
    const cuda::on_device outer(2);
    {
      const cuda::on_device inner(1);
      (void)cuda::api::current_device(now);
      CHECK(now == 1);
    }
    (void)cuda::api::current_device(now);
    CHECK(now == 2);
  }
  (void)cuda::api::current_device(now);
  CHECK(now == 0);
  try {
    const cuda::on_device beyond(3);
    FAIL("there are three devices");
  } catch (const colls::error& thrown) {
    CHECK(thrown.code() == colls::errc::no_device);
  }
}

}  // namespace
