// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Ranks as threads of this process: the communicators of a thread_world, and a main for each rank.

#include <colls/call/revoke_on_exception.hpp>
#include <colls/transport/threads/thread_transport.hpp>

#include <mutex>
#include <thread>

#ifdef COLLS_SEPARATE_COMPILATION
COLLS_COMMUNICATOR(extern, colls::thread_transport)
#endif

namespace colls::threads {

using communicator = colls::communicator<thread_transport>;

/// The world as rank `rank` of `ranks` sees it; once per rank, on the thread of that rank.
inline communicator join(thread_world& ranks, int rank) {
  const std::shared_ptr<thread_transport> net(std::shared_ptr<void>(), &ranks[rank]);
  return communicator(
      std::make_unique<detail::core<thread_transport>>(net, 0, rank, ranks.size(), nullptr, true));
}

/// Runs `rank_main(communicator&) -> task<>` once for each of `size` ranks, each on a thread of its
/// own, to their end; then rethrows the error that came first, if any. A rank that ends by an error
/// revokes the world, so that nobody waits for it.
template <class Main>
void run(int size, Main rank_main) {
  thread_world ranks(size);
  std::mutex guard;
  std::exception_ptr first;
  const auto failed = [&] {
    const std::lock_guard lock(guard);
    if (!first) first = std::current_exception();
  };
  const auto live = [&](int rank) {
    try {
      communicator mine = join(ranks, rank);
      try {
        sync_wait(mine, rank_main(mine));
      } catch (...) {
        failed();
        detail::give_up(mine);
      }
      sync_wait(mine, mine.close());
    } catch (...) {
      failed();
    }
    ranks[rank].depart();
  };
  std::vector<std::thread> started;
  try {
    started.reserve(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) started.emplace_back(live, rank);
  } catch (...) {
    failed();
    for (int rank = static_cast<int>(started.size()); rank < size; ++rank) ranks[rank].depart();
  }
  for (std::thread& rank : started) rank.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace colls::threads
