// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// run: a main function for programs that a launcher starts.

#include <colls/colls.hpp>
#include <colls/rendezvous/join.hpp>

#include <cstdio>

namespace colls {

/// Joins the world of the launcher's environment (colls-run, torchrun, mpirun, srun, or alone),
/// runs `main_task(world&)`, a `task<>` or a `task<int>`, and closes the world. Returns the task's
/// number (0 for `task<>`), or 1 after an error, which is explained in one line on stderr.
template <class Main>
int run(Main main_task, config how = {.address = "env://"}) {
  boost::asio::io_context context(1);
  const std::shared_ptr<engine> on = engine::of(context.get_executor());
  int status = 0;
  bool failed = false;
  const auto explain = [&](const char* what) {
    std::fprintf(stderr, "%s\n", what);
    failed = true;
  };
  try {
    world all = sync_wait(*on, join(context.get_executor(), std::move(how)));
    try {
      auto work = main_task(all);
      if constexpr (std::is_void_v<decltype(work.result())>) {
        sync_wait(*on, std::move(work));
      } else {
        status = sync_wait(*on, std::move(work));
      }
    } catch (const std::exception& thrown) {
      explain(thrown.what());
      // The others would wait for a rank that is gone.
      if (all.failed() == nullptr) all.revoke(thrown.what());
    }
    sync_wait(*on, all.close());
  } catch (const std::exception& thrown) {
    explain(thrown.what());
  }
  return failed ? 1 : status;
}

}  // namespace colls
