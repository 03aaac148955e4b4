// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Memory of devices: what needs nvcc is compiled apart from the rest.

#include "options.hpp"

#include <colls/task.hpp>
#include <colls/world.hpp>

namespace bench {

/// One rank's run on its device; 77 where there is none. Null where the program has no such part.
[[gnu::weak]] colls::task<int> measure_on_devices(colls::world& world, const options& how);

}  // namespace bench
