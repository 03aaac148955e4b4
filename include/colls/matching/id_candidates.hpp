// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// id_candidates: the ids among which the ranks choose one for a new communicator.

#include <colls/matching/tag_matcher.hpp>

#include <cstdint>
#include <memory>

namespace colls::detail {

/// The ids that a call may give to the communicators that it creates. There are several candidates.
/// Each candidate is a range of ids: a split has one id for each color, other calls have one id.
/// The first id is a hash of the parent's id, the call and the number of the candidate, so that
/// different calls rarely try the same ids. Each rank reserves those candidates that are free on
/// this rank. The ranks then choose a candidate that is free on all of them, so two communicators
/// that share a rank never have the same id.
///
/// If the call fails on this rank, the peers may still have created their communicators. Therefore
/// this rank keeps its candidates reserved, and answers messages for their ids with the reason for
/// the failure.
class id_candidates {
 public:
  static constexpr int count = 8;

  /// Reserves the ids for the call `operation` on `parent` with the number `number`.
  id_candidates(tag_matcher& matcher, const communicator_state& parent, collective operation,
                std::uint64_t number, std::uint32_t ids_per_candidate)
      : matcher_(matcher),
        parent_(parent),
        ids_per_candidate_(ids_per_candidate),
        reason_(std::make_shared<failure>(errc::cancelled,
                                          "the call that makes this communicator was cancelled")) {
    reason_->culprit = reason_->observer = matcher.rank();
    reason_->operation = operation;
    for (int i = 0; i < count; ++i) {
      first_ids_[i] = static_cast<std::uint32_t>(
          mix(mix(mix(parent.id(), static_cast<std::uint64_t>(operation)), number),
              static_cast<std::uint64_t>(i)));
      if (first_ids_[i] <= UINT32_MAX - ids_per_candidate_ &&
          matcher.hold_ids(first_ids_[i], ids_per_candidate_))
        free_ |= 1u << i;
    }
  }
  id_candidates(const id_candidates&) = delete;
  ~id_candidates() {
    if (!is_made_ && parent_.failed()) *reason_ = parent_.reason();
    for (int i = 0; i < count; ++i) {
      if ((free_ >> i & 1u) == 0) continue;
      is_made_ ? matcher_.free_ids(first_ids_[i]) : matcher_.abandon_ids(first_ids_[i], reason_);
    }
  }
  /// Called when the ranks have exchanged their requests. After the exchange, the call can fail on
  /// this rank only with `errc::not_enough_memory`. Therefore this function stores this error as
  /// the reason that the peers get if the call fails.
  void exchange_done() {
    reason_->code = errc::not_enough_memory;
    reason_->detail[0] = 0;
  }
  /// Called when the call has succeeded on this rank, which has created its communicator or needs
  /// none. The destructor will then free the ids. If `commit` is not called, the destructor treats
  /// the call as failed.
  void commit() { is_made_ = true; }

  std::uint32_t free() const { return free_; }
  /// Chooses the first candidate that is free on all ranks, and returns its first id. Bit i of
  /// `free_on_all` tells whether candidate i is free on all ranks. Throws `errc::not_enough_memory`
  /// if no candidate is free on all ranks.
  std::uint32_t choose(std::uint32_t free_on_all) const {
    for (int i = 0; i < count; ++i) {
      if ((free_on_all >> i & 1u) != 0) return first_ids_[i];
    }
    throw error(errc::not_enough_memory, "no id for a communicator is free on all ranks");
  }

 private:
  tag_matcher& matcher_;
  const communicator_state& parent_;
  std::uint32_t ids_per_candidate_;
  std::shared_ptr<failure> reason_;
  bool is_made_ = false;
  std::uint32_t first_ids_[count] = {};
  std::uint32_t free_ = 0;
};

}  // namespace colls::detail
