// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// run: a main function for programs that a launcher starts.

#include <colls/colls.hpp>
#include <colls/rendezvous/join.hpp>

#include <cstdio>

namespace colls {

/// Joins the world of the launcher's environment (colls-run, torchrun, mpirun, srun, or alone),
/// runs `main_task(world&)`, and closes the world. The main is a `task<>` or a `task<int>`, or a
/// plain function of void or int, which waits by `sync_wait(world, world.all_reduce(v))`. Returns
/// the main's number (0 if it has none), or 1 after an error, which is explained in one line on
/// stderr.
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
      using result = std::invoke_result_t<Main&, world&>;
      if constexpr (std::is_void_v<result>) {
        main_task(all);
      } else if constexpr (std::is_convertible_v<result, int>) {
        status = main_task(all);
      } else if constexpr (std::is_void_v<decltype(std::declval<result&>().result())>) {
        sync_wait(*on, main_task(all));
      } else {
        status = sync_wait(*on, main_task(all));
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
