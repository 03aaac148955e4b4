// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Ranks in this process: the communicators of an inproc world, and a main function for each rank.

#include <colls/communicator.hpp>
#include <colls/transport/inproc.hpp>

namespace colls::inproc {

using communicator = colls::communicator<inproc_transport>;

/// The world as rank `rank` of `ranks` sees it; once per rank.
inline communicator join(inproc_world& ranks, int rank) {
  const std::shared_ptr<inproc_transport> net(std::shared_ptr<void>(), &ranks[rank]);
  return communicator(std::make_unique<detail::core<inproc_transport>>(net, 0, rank, ranks.size(),
                                                                       nullptr, true));
}

/// Runs `rank_main(communicator&) -> task<>` once for each of `size` ranks, as coroutines on this
/// thread, to their end; then rethrows the first error, if any.
template <class Main>
void run(int size, Main rank_main) {
  inproc_world ranks(size);
  std::vector<communicator> communicators;
  for (int rank = 0; rank < size; ++rank) communicators.push_back(join(ranks, rank));
  std::vector<task<>> mains;
  for (communicator& mine : communicators) mains.push_back(rank_main(mine));
  sync_wait(ranks, when_all(std::move(mains)));
}

}  // namespace colls::inproc
