// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Ranks in this process: the communicators of an inproc world, and a main function for each rank.

#include <colls/call/revoke_on_exception.hpp>
#include <colls/transport/inproc/inproc_transport.hpp>

#ifdef COLLS_SEPARATE_COMPILATION
COLLS_COMMUNICATOR(extern, colls::inproc_transport)
#endif

namespace colls::inproc {

using communicator = colls::communicator<inproc_transport>;

/// The world as rank `rank` of `ranks` sees it; once per rank.
inline communicator join(inproc_world& ranks, int rank) {
  const std::shared_ptr<inproc_transport> net(std::shared_ptr<void>(), &ranks[rank]);
  return communicator(std::make_unique<colls::detail::core<inproc_transport>>(
      net, 0, rank, ranks.size(), nullptr, true));
}

namespace detail {

/// One rank from its main to its end: an error gives its communicator up, so that no other rank
/// waits for it.
inline task<> live(communicator& mine, task<> rank_main, std::exception_ptr& first) {
  try {
    co_await rank_main;
  } catch (...) {
    if (!first) first = std::current_exception();
    colls::detail::give_up(mine);
  }
  if (mine) co_await mine.close();
}

}  // namespace detail

/// Runs `rank_main(communicator&) -> task<>` once for each of `size` ranks, as coroutines on this
/// thread, to their end, and closes their communicators; then rethrows the error that came first,
/// if any.
template <class Main>
void run(int size, Main rank_main) {
  inproc_world ranks(size);
  std::vector<communicator> communicators;
  for (int rank = 0; rank < size; ++rank) communicators.push_back(join(ranks, rank));
  std::exception_ptr first;
  std::vector<task<>> mains;
  for (communicator& mine : communicators)
    mains.push_back(detail::live(mine, rank_main(mine), first));
  sync_wait(ranks, when_all(std::move(mains)));
  if (first) std::rethrow_exception(first);
}

}  // namespace colls::inproc
