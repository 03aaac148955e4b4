// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// state_report: what a rank tells other ranks about itself and about the ranks that it knows to be
// late.

#include <colls/base/fingerprint.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace colls {

/// The state of one rank, as reported by that rank itself or by another rank. A report contains the
/// bytes of this struct. Each report concerns one communicator: `entered`, `waits_in` and
/// `waiter_in` are sequence numbers of collectives in that communicator. The current operation of
/// the rank may belong to another communicator. In the comments on the members, `rank` is the rank
/// that the state describes.
struct rank_state {
  std::uint64_t entered = 0;       // the newest collective that `rank` has called
  std::uint64_t waits_in = 0;      // the oldest collective that `rank` has not finished, or 0
  std::uint64_t sequence = 0;      // the number or the tag of the current operation of `rank`
  std::uint64_t waiter_in = 0;     // the collective in which `waiter` waits for `rank`
  std::uint32_t communicator = 0;  // the communicator of the current operation
  std::int32_t rank = -1;          // the rank in the world that this state describes
  std::uint32_t age_ms = 0;        // the time since this state was up to date
  std::uint32_t silent_ms = 0;     // the time since a message from `rank` arrived
  collective operation = collective::none;  // the current operation, or `none`
  std::uint8_t answers = 0;                 // 1 if `rank` answered the last query
  std::uint8_t awaited = 0;                 // 1 if the sender of the report waits for `rank`
  std::uint8_t stopped = 0;                 // 1 if the system says that the process is stopped
  std::int32_t waiter = -1;                 // a third rank known to wait for `rank`, or -1
  std::uint32_t waiter_ms = 0;              // the time since `waiter` last reported this wait
  std::uint32_t reserved = 0;
};

/// The report of one rank. It contains the state of that rank and the states of up to `max_others`
/// other ranks that are late or that an earlier report has named as late.
struct state_report {
  static constexpr std::uint32_t max_others = 8;

  rank_state self;
  std::uint32_t count = 0;
  std::uint32_t reserved = 0;
  rank_state others[max_others];

  /// Returns whether the count and the operations of a received report are in range.
  bool is_plausible() const {
    const auto in_range = [](const rank_state& state) {
      return state.operation <= collective::repair;
    };
    return count <= max_others && in_range(self) && std::all_of(others, others + count, in_range);
  }
};
static_assert(sizeof(state_report) == 584 && std::is_trivially_copyable_v<state_report>);

}  // namespace colls
