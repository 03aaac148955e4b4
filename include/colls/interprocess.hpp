// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// interprocess: the transport between processes, for files that need its complete type, as
// `world.dup(executor)` does.

#include <colls/transport/interprocess/interprocess_transport.hpp>
