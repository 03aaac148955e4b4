// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The ranks as coroutines of this thread.

#include "measure.hpp"

#include <colls/inproc.hpp>

namespace bench {

inline void in_one_process(const options& how) {
  colls::inproc::run(how.ranks, [&](colls::inproc::communicator& comm) -> colls::task<> {
    co_await measure(comm, how);
  });
}

}  // namespace bench
