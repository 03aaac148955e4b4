// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// run: a main function for programs that a launcher starts.

#include <colls/bootstrap/config.hpp>
#include <colls/colls.hpp>
#include <colls/world.hpp>

namespace colls {

namespace detail {

/// Joins, lives `rank_main(state, world)`, closes; an error is explained on stderr and makes it 1.
int run_world(config how, int (*rank_main)(void* state, world& all), void* state);

}  // namespace detail

/// Joins the world of the launcher's environment (colls-run, torchrun, mpirun, srun, or alone),
/// runs `main_task(world&)`, and closes the world. The main is a `task<>` or a `task<int>`, or a
/// plain function of void or int, which waits by `sync_wait(world, world.all_reduce(v))`. Returns
/// the main's number (0 if it has none), or 1 after an error, which is explained in one line on
/// stderr.
template <class Main>
int run(Main main_task, config how = {.address = "env://"}) {
  return detail::run_world(
      std::move(how),
      [](void* state, world& all) -> int {
        Main& rank_main = *static_cast<Main*>(state);
        using result = std::invoke_result_t<Main&, world&>;
        if constexpr (std::is_void_v<result>) {
          rank_main(all);
        } else if constexpr (std::is_convertible_v<result, int>) {
          return rank_main(all);
        } else if constexpr (std::is_void_v<decltype(std::declval<result&>().result())>) {
          sync_wait(all, rank_main(all));
        } else {
          return sync_wait(all, rank_main(all));
        }
        return 0;
      },
      &main_task);
}

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/run.ipp>
#endif
