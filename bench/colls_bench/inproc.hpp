// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The ranks as coroutines of this thread.

#include "measure.hpp"

#include <colls/inproc.hpp>

namespace bench {

inline void in_one_process(const options& how) {
  colls::inproc::run(how.ranks, [&](colls::inproc::communicator& comm) -> colls::task<> {
    const auto work = make_workload(comm, how);
    co_await measure(*work, comm, how);
  });
}

}  // namespace bench
