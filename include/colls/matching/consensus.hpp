// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// consensus: the protocol by which the ranks of a communicator agree on a value and on the ranks
// that are lost, although ranks stop and links break meanwhile.
//
// Without losses it is the tree of Herault et al., "Practical Scalable Consensus for
// Pseudo-Synchronous Distributed Systems" (SC 2015): requests are combined on the way up a binomial
// tree, and the root's decision goes down. What to do after losses is ordered by views instead of
// by ballots of a coordinator. The view of a rank is what it knows of losses (see `loss_view`). It
// only grows, and it determines which ranks survive, their tree and its root. A decision is made in
// one view, in which all its survivors take part:
//
// 1. Each survivor sends its parent the combined requests of its subtree, and with them the latest
//    decision that a rank of the subtree has accepted.
// 2. The root proposes the latest accepted decision, if there is one. Otherwise it decides: the AND
//    of the values of the survivors, and all other ranks are lost.
// 3. The proposal goes down the tree, and each rank accepts it.
// 4. If losses may be suspected, the acceptances go up the tree, and the root's word that the
//    decision is final goes down. If every loss is proved, an accepted proposal is final.
//
// A rank whose view grows tells its neighbours in the new tree, or all ranks if links are broken,
// and starts again at step 1. It takes part in no smaller view any more. A rank that has a final
// decision answers every message of another rank about that agreement with it.
//
// A rank that an agreement lists as lost takes part in no later one.
//
// Why no two ranks that live on decide differently: two sets of survivors have a rank in common. If
// every loss is proved, each living rank survives in every view. Otherwise a set that decides is
// more than half of the ranks that are not proved lost. The common rank takes part in both views,
// so one contains the other. If a decision is final in the smaller view, all its survivors have
// accepted it, and the common rank reports it in the larger one. docs/recovery.md names the case in
// which ranks that are proved lost later make the two sets disjoint.

#include <colls/matching/recovery_message.hpp>

#include <cstdint>
#include <optional>
#include <vector>

namespace colls {

/// The agreements of one communicator on one rank. Agreements are numbered from 1, and follow one
/// another. The ranks are those of the communicator. The object sends messages through its
/// `network`, and reads no clock.
class consensus {
 public:
  class network {
   public:
    /// Sends a message to `peer`, if it can be reached.
    virtual void send(int peer, const recovery_message& message) = 0;

   protected:
    ~network() = default;
  };
  /// The state of the current agreement on this rank.
  enum class state {
    idle,       // this rank has not called it
    waiting,    // for messages of other ranks
    no_quorum,  // too few ranks can be reached
    excluded,   // other ranks are sure that this rank has ended
    decided,
  };

  /// `is_always_proved` tells whether every loss of a rank is proved, so that none is suspected. It
  /// is equal on all ranks.
  consensus(int rank, int size, bool is_always_proved, network& net)
      : rank_(rank), size_(size), is_always_proved_(is_always_proved), net_(net) {
    rebuild_tree();
  }
  consensus(const consensus&) = delete;
  consensus& operator=(const consensus&) = delete;

  /// Takes part in the current agreement. If this rank has called it before, its value and its
  /// operation stand, and `request` only replaces the quorum.
  void call(const recovery_request& request);
  /// Called when the rank `peer` is proved to have ended.
  void add_proved(int peer);
  /// Called when another rank has said that it goes on without this one.
  void exclude_self();
  /// Called when the link between two ranks is broken.
  void add_broken(int a, int b);
  /// Handles a message that `source` has sent.
  void receive(int source, const recovery_message& message);
  /// Called when this rank closes the communicator. From then on it only answers messages.
  void depart() { has_departed_ = true; }
  bool has_departed() const { return has_departed_; }
  /// Called again and again while this rank waits. Tells other ranks which rank is late, and makes
  /// the transport find out whether late ranks can be reached.
  void spread_late();

  state current_state() const;
  /// Returns the decision of the current agreement, which has one.
  const recovery_decision& decision() const { return *decision_; }
  /// Called when the caller has got the decision. The next agreement is then the current one.
  void advance();

  const loss_view& view() const { return view_; }
  std::uint64_t number() const { return number_; }
  /// Returns the rank that has not called the current agreement yet, as far as is known, or -1.
  int late_rank() const;
  /// Returns whether this rank survives in its own view.
  bool survives() const { return is_survivor(rank_); }

 private:
  struct subtree {
    int rank;  // a child of this rank
    std::optional<recovery_message> request;
    bool has_accepted = false;
    int late = -1;
  };
  struct past_decision {
    std::uint64_t number;
    recovery_decision decision;
  };
  struct early_message {
    int source;
    recovery_message message;
  };

  bool is_active() const { return request_.has_value() || is_involved_; }
  bool is_survivor(int rank) const;
  bool has_quorum() const;
  int survivor(int index) const {
    return survivors_.empty() ? index : survivors_[static_cast<std::size_t>(index)];
  }
  int survivor_count() const {
    return survivors_.empty() ? size_ : static_cast<int>(survivors_.size());
  }
  recovery_message make(recovery_message::kind type) const;
  subtree* child(int rank);
  const recovery_decision* past(std::uint64_t number) const;

  void view_has_grown();
  void rebuild_tree();
  void tell_view_once();
  void send_request();
  void propose(const std::optional<accepted_decision>& latest, const recovery_request& combined);
  void accept(const accepted_decision& proposal);
  void send_acceptance();
  void finish(const recovery_decision& decision, int source);
  void answer(int source, std::uint64_t number, const recovery_decision& decision);

  int rank_;
  int size_;
  bool is_always_proved_;
  network& net_;
  loss_view view_;
  bool has_departed_ = false;

  // The tree of the survivors of `view_`. `survivors_` is empty as long as all ranks survive.
  std::vector<int> survivors_;
  int parent_ = -1;
  std::vector<subtree> children_;

  // The current agreement.
  std::uint64_t number_ = 1;
  bool is_involved_ = false;  // a message about it has come
  std::optional<recovery_request> request_;
  std::optional<accepted_decision> accepted_;
  // What this rank has done in its present view.
  bool has_sent_request_ = false;
  bool has_accepted_in_view_ = false;
  bool has_sent_acceptance_ = false;
  bool has_told_view_ = false;
  bool has_probed_ = false;

  std::optional<recovery_decision> decision_;
  int late_by_parent_ = -1;

  std::vector<past_decision> past_;   // of the last agreements
  std::vector<early_message> early_;  // about the next agreement
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/matching/consensus.ipp>
#endif
