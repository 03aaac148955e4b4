// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// simulated: ranks on a simulated network. `join` makes the communicator of one rank.

#include <colls/call/communicator.ipp>
#include <colls/transport/simulated/simulated_transport.hpp>

namespace colls::simulated {

using communicator = colls::communicator<simulated_transport>;

/// Makes the world communicator of `rank`. Must be called once per rank. `ranks` must outlive the
/// communicator.
inline communicator join(simulated_world& ranks, int rank) {
  const std::shared_ptr<simulated_transport> net(std::shared_ptr<void>(), &ranks[rank]);
  return communicator(std::make_unique<colls::detail::core<simulated_transport>>(
      net, 0, rank, ranks.size(), nullptr, true));
}

}  // namespace colls::simulated
