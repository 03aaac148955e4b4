// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Ranks as processes: for programs that look at the transport itself, as `world.dup(executor)`
// does.

#include <colls/transport/interprocess/interprocess_transport.hpp>
