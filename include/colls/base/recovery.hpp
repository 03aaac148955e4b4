// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recovery: the options and results of the calls that go on after ranks were lost.

#include <colls/base/clock.hpp>

#include <cstdint>
#include <type_traits>
#include <vector>

namespace colls {

/// Which ranks may decide without those that are suspected of having stopped. A rank is suspected
/// if it cannot be reached and no process knows that it has ended, so it may live on.
enum class quorum : std::uint8_t {
  majority,  // more than half of the ranks that are not proved lost
  any,       // any ranks that reach each other: after a partition, each part decides for itself
};

/// The options of `communicator::agree`, `shrink` and `repair`. They must be equal on all ranks.
struct recovery_options {
  colls::quorum quorum = colls::quorum::majority;
  /// For `repair` alone: the number of ranks with which the job may go on if fewer replacements
  /// have come within `wait`. 0 stands for as many ranks as the job had at the start.
  int at_least = 0;
  /// For `repair` alone: how long to wait for replacements. 0 stands for COLLS_TIMEOUT.
  time_span wait{};
  /// How long the call may take, apart from `wait`. 0 stands for COLLS_TIMEOUT.
  time_span timeout{};
};
static_assert(std::is_trivially_destructible_v<recovery_options>);

/// A rank that has failed. `rank` is its rank in the communicator on which the call was made.
/// `proved` is false if the rank is only suspected.
struct lost_rank {
  int rank = -1;
  bool proved = false;

  friend bool operator==(const lost_rank&, const lost_rank&) = default;
};

/// The result of `communicator::agree`, equal on all ranks that get one.
struct agreement {
  std::uint64_t value = 0;      // the AND of the values of all ranks that are not in `lost`
  std::vector<lost_rank> lost;  // in ascending order
};

}  // namespace colls
