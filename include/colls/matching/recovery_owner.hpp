// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recovery_owner: what the agreements of a communicator need from the rank that takes part in them.

#include <colls/base/recovery.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace colls {

class communicator_state;

/// The interface through which a `communicator_recovery` sends messages and reports losses.
class recovery_owner {
 public:
  /// Sends the bytes of a recovery message to the world rank `peer`. Returns false if `peer` has
  /// left the world.
  virtual bool send_recovery(int peer, std::uint32_t communicator,
                             std::span<const std::byte> message) = 0;
  /// Asks the world rank `peer`, to which the link of this rank is broken, whether it goes on
  /// without this rank. If it does and can be reached again, this rank is told so.
  virtual void ask_lost_peer(int peer) = 0;
  /// Called when the ranks of a communicator have agreed that some of them are lost. Revokes the
  /// communicator, unless it has failed. `lost` contains ranks of the communicator.
  virtual void losses_agreed(const communicator_state& communicator,
                             const std::vector<lost_rank>& lost) = 0;

  /// Called when the other ranks of a communicator go on without this rank.
  virtual void excluded(const communicator_state& communicator) = 0;

 protected:
  ~recovery_owner() = default;
};

}  // namespace colls
