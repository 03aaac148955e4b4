// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// The part of colls-bench for device memory; it is linked with colls_bench.cpp.

#include "colls_bench/device.hpp"
#include "colls_bench/on_devices.hpp"

#include <colls/interprocess.hpp>

colls::task<int> bench::measure_on_devices(colls::world& world, const options& opts) {
  return on_devices(world, opts);
}
