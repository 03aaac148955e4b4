// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Declares the part of colls-bench for device memory, which nvcc compiles.

#include "options.hpp"

#include <colls/task.hpp>
#include <colls/world.hpp>

namespace bench {

/// Measures on the device of this rank. Returns the exit status, 77 without a device. The address
/// is null in a program that is not linked with this part.
[[gnu::weak]] colls::task<int> measure_on_devices(colls::world& world, const options& opts);

}  // namespace bench
