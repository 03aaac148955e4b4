// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Measures ranks that are coroutines of one thread.

#include "measure.hpp"

#include <colls/inproc.hpp>

namespace bench {

inline void run_in_one_process(const options& opts) {
  colls::inproc::run(opts.ranks, [&](colls::inproc::communicator& comm) -> colls::task<> {
    const auto work = make_workload(comm, opts);
    co_await measure(*work, comm, opts);
  });
}

}  // namespace bench
