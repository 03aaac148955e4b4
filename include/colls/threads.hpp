// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// threads: ranks that run as threads of one process. `join` makes the communicator of one rank, and
// `run` runs a main function on every rank.

#include <colls/call/revoke_on_exception.hpp>
#include <colls/transport/threads/thread_transport.hpp>

#include <mutex>
#include <thread>

#ifdef COLLS_SEPARATE_COMPILATION
COLLS_COMMUNICATOR(extern, colls::thread_transport)
#endif

namespace colls::threads {

using communicator = colls::communicator<thread_transport>;

/// Creates the communicator that connects `rank` with all ranks of the world `ranks`. Each rank
/// must call this function once, on its own thread. `ranks` must outlive the communicator.
inline communicator join(thread_world& ranks, int rank) {
  const std::shared_ptr<thread_transport> net(std::shared_ptr<void>(), &ranks[rank]);
  return communicator(
      std::make_unique<detail::core<thread_transport>>(net, 0, rank, ranks.size(), nullptr, true));
}

/// Runs `rank_main(communicator&) -> task<>` once for each of `size` ranks, each on its own thread,
/// and closes the communicator of each rank. If a rank throws, revokes the world communicator, so
/// that no other rank waits for this rank. Returns when all threads have ended. If any rank has
/// thrown, rethrows the first exception.
template <class Main>
void run(int size, Main rank_main) {
  thread_world ranks(size);
  std::mutex guard;
  std::exception_ptr first_error;
  const auto store_error = [&] {
    const std::lock_guard lock(guard);
    if (!first_error) first_error = std::current_exception();
  };
  const auto run_rank = [&](int rank) {
    try {
      communicator comm = join(ranks, rank);
      try {
        sync_wait(comm, rank_main(comm));
      } catch (...) {
        store_error();
        detail::revoke_on_exception(comm);
      }
      sync_wait(comm, comm.close());
    } catch (...) {
      store_error();
    }
    ranks[rank].depart();
  };
  std::vector<std::thread> threads;
  try {
    threads.reserve(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) threads.emplace_back(run_rank, rank);
  } catch (...) {
    store_error();
    for (int rank = static_cast<int>(threads.size()); rank < size; ++rank) ranks[rank].depart();
  }
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace colls::threads
