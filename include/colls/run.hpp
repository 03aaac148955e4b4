// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// run: joins the world that the launcher describes, calls a function of the program with this
// world, and closes the world.

#include <colls/bootstrap/config.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/world.hpp>

#include <type_traits>
#include <utility>

namespace colls {

namespace detail {

/// Joins the world that `cfg` describes, calls `rank_main(state, world)`, and closes the world.
/// Returns the result of `rank_main`. After an error, prints the error on stderr and returns 1.
template <class Transport>
int run_world(config cfg, int (*rank_main)(void* state, communicator<Transport>& comm),
              void* state);

}  // namespace detail

/// Joins the world that the launcher's environment variables describe, runs `main_task(world&)`,
/// and closes the world. The launcher is colls-run, torchrun, mpirun or srun. Without a launcher,
/// the world is this process alone. `main_task` is a coroutine that returns `task<>` or
/// `task<int>`, or a plain function that returns void or int. A plain function waits for an
/// operation with a call such as `sync_wait(world, world.all_reduce(v))`.
///
/// Returns the result of `main_task`, or 0 if `main_task` returns no value. After an error, prints
/// one line on stderr and returns 1.
///
/// With a transport of the user's own (see docs/adding_a_transport.md), as in
/// `run<my::transport>(main_task)`, the world is a `communicator<my::transport>`.
template <class Transport = interprocess_transport, class Main>
int run(Main main_task, config cfg = {.address = "env://"}) {
  return detail::run_world<Transport>(
      std::move(cfg),
      [](void* state, communicator<Transport>& comm) -> int {
        Main& rank_main = *static_cast<Main*>(state);
        using result = std::invoke_result_t<Main&, communicator<Transport>&>;
        if constexpr (std::is_void_v<result>) {
          rank_main(comm);
        } else if constexpr (std::is_convertible_v<result, int>) {
          return rank_main(comm);
        } else if constexpr (std::is_void_v<decltype(std::declval<result&>().result())>) {
          sync_wait(comm, rank_main(comm));
        } else {
          return sync_wait(comm, rank_main(comm));
        }
        return 0;
      },
      &main_task);
}

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/run.ipp>
#else
extern template int colls::detail::run_world<colls::interprocess_transport>(
    colls::config, int (*)(void*, colls::world&), void*);
#endif
