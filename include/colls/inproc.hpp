// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// inproc: ranks that run as coroutines on one thread. `join` makes the communicator of one rank,
// and `run` runs a main function on every rank.

#include <colls/call/revoke_on_exception.hpp>
#include <colls/transport/inproc/inproc_transport.hpp>

#ifdef COLLS_SEPARATE_COMPILATION
COLLS_COMMUNICATOR(extern, colls::inproc_transport)
#endif

namespace colls::inproc {

using communicator = colls::communicator<inproc_transport>;

/// Creates the world communicator of the rank `rank`. The program must call `join` once for each
/// rank of `ranks`. `ranks` must outlive the communicators.
inline communicator join(inproc_world& ranks, int rank) {
  const std::shared_ptr<inproc_transport> net(std::shared_ptr<void>(), &ranks[rank]);
  return communicator(std::make_unique<colls::detail::core<inproc_transport>>(
      net, 0, rank, ranks.size(), nullptr, true));
}

namespace detail {

/// Runs the main function of one rank and then closes the rank's communicator. If the main function
/// throws, revokes the communicator, so that no other rank waits for this rank, and stores the
/// exception in `first_error` unless one is stored there already.
inline task<> run_rank(communicator& comm, task<> rank_main, std::exception_ptr& first_error) {
  try {
    co_await rank_main;
  } catch (...) {
    if (!first_error) first_error = std::current_exception();
    colls::detail::revoke_on_exception(comm);
  }
  if (comm) co_await comm.close();
}

}  // namespace detail

/// Runs `rank_main(communicator&) -> task<>` once for each of `size` ranks, as coroutines on this
/// thread, and closes the communicator of each rank. Returns when all coroutines have ended. If any
/// coroutine has thrown, rethrows the first exception.
template <class Main>
void run(int size, Main rank_main) {
  inproc_world ranks(size);
  std::vector<communicator> communicators;
  for (int rank = 0; rank < size; ++rank) communicators.push_back(join(ranks, rank));
  std::exception_ptr first_error;
  std::vector<task<>> mains;
  for (communicator& comm : communicators)
    mains.push_back(detail::run_rank(comm, rank_main(comm), first_error));
  sync_wait(ranks, when_all(std::move(mains)));
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace colls::inproc
