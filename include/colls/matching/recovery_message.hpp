// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recovery_message: what ranks tell each other to agree on what is left of a communicator.

#include <colls/base/algorithm_names.hpp>
#include <colls/base/recovery.hpp>
#include <colls/matching/loss_view.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace colls {

/// What a rank passes to one agreement, or what several ranks pass together.
struct recovery_request {
  collective operation = collective::none;
  colls::quorum quorum = colls::quorum::majority;
  bool differs = false;  // the requests of the ranks differ in operation or quorum
  std::uint64_t value = 0;

  /// Combines the requests of two ranks.
  void combine(const recovery_request& other) {
    differs |= other.differs || operation != other.operation || quorum != other.quorum;
    value &= other.value;
  }
};

/// The result of one agreement.
struct recovery_decision {
  recovery_request request;
  std::vector<lost_rank> lost;

  bool has_lost(int rank) const {
    for (const lost_rank& each : lost) {
      if (each.rank == rank) return true;
    }
    return false;
  }
};

/// A decision that a rank has accepted. `facts` is the number of facts of the view in which it was
/// proposed: a decision with more facts is the later one.
struct accepted_decision {
  std::uint64_t facts = 0;
  recovery_decision decision;
};

/// A message of `consensus`.
struct recovery_message {
  enum class kind : std::uint8_t {
    news = 1,    // the view of the sender
    request,     // to the parent: the requests of the subtree
    proposal,    // to the children: the decision of the root
    acceptance,  // to the parent: all of the subtree has accepted the proposal
    decision,    // the final decision
    late,        // the rank for which the sender waits
    departed,    // the sender has closed the communicator
  };

  kind type = kind::news;
  std::int32_t late = -1;
  std::uint64_t number = 0;
  loss_view view;
  recovery_request request;
  std::optional<accepted_decision> accepted;  // of a request: the latest one of the subtree

  /// Returns the bytes of this message.
  std::vector<std::byte> bytes() const;
  /// Reads a message from bytes that a peer has sent. Returns `std::nullopt` if no rank of a
  /// communicator of `size` ranks sends such a message.
  static std::optional<recovery_message> parse(std::span<const std::byte> bytes, int size);
};

/// The length of the longest recovery message that a rank reads.
inline constexpr std::size_t max_recovery_bytes = std::size_t{1} << 22;

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/matching/recovery_message.ipp>
#endif
