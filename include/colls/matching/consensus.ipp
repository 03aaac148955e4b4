// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The steps of the protocol that consensus.hpp describes.

#include <colls/base/compiler.hpp>
#include <colls/base/pattern/trees.hpp>
#include <colls/matching/consensus.hpp>

#include <utility>

namespace colls {

COLLS_ONCE void consensus::call(const recovery_request& request) {
  if (request_) {
    request_->quorum = request.quorum;
  } else {
    request_ = request;
  }
  if (decision_) return;
  tell_view_once();
  send_request();
}

COLLS_ONCE void consensus::add_proved(int peer) {
  if (peer != rank_ && view_.add_proved(peer)) view_has_grown();
}

COLLS_ONCE void consensus::exclude_self() {
  if (view_.add_proved(rank_)) view_has_grown();
}

COLLS_ONCE void consensus::add_broken(int a, int b) {
  if (a != b && view_.add_broken(a, b)) view_has_grown();
}

COLLS_ONCE void consensus::receive(int source, const recovery_message& message) {
  using enum recovery_message::kind;
  // Where losses are proved, a decision need not be known to any rank that lives on. So a rank that
  // has begun to decide without `source` must not take a decision from it any more.
  // Model step: ignore_lost
  if (is_always_proved_ && view_.is_proved(source)) return;
  const bool wants_answer = message.type == news || message.type == request ||
                            message.type == proposal || message.type == late;
  if (const recovery_decision* const known = past(message.number)) {
    if (wants_answer) answer(source, message.number, *known);
    return;
  }
  if (message.number < number_) {
    // The sender has missed so much only because it is excluded.
    if (past_.back().decision.has_lost(source)) {
      answer(source, message.number, past_.back().decision);
    }
    return;
  }
  if (has_departed_) {
    if (!wants_answer) return;
    if (decision_ && message.number == number_) return answer(source, number_, *decision_);
    recovery_message reply = make(departed);
    reply.number = message.number;
    net_.send(source, reply);
    return;
  }
  if (message.type == departed) return add_proved(source);
  // Model step: merge_view
  if (view_.merge(message.view)) view_has_grown();
  if (message.number == number_ + 1) {
    // The sender has the decision of the current agreement, which is still on its way to this rank.
    std::erase_if(early_, [&](const early_message& each) {
      return each.source == source && each.message.type == message.type;
    });
    early_.push_back({source, message});
    return;
  }
  if (message.number != number_) return;
  is_involved_ = true;
  if (message.type == decision) return finish(message.accepted->decision, source);
  if (decision_) {
    // Model step: answer_decision
    if (wants_answer) answer(source, number_, *decision_);
    return;
  }
  tell_view_once();
  if (!(message.view == view_)) {
    // The sender has not got the view of this rank yet, or takes part in a smaller one.
    // Model step: answer_view
    net_.send(source, make(news));
    return;
  }
  subtree* const from = child(source);
  switch (message.type) {
    case request:
      if (from == nullptr) return;
      from->request = message;
      from->late = -1;
      send_request();
      break;
    case proposal:
      if (source == parent_ && !has_accepted_in_view_) accept(*message.accepted);
      break;
    case acceptance:
      if (from == nullptr) return;
      from->has_accepted = true;
      send_acceptance();
      break;
    case late:
      if (source == parent_) late_by_parent_ = message.late;
      if (from != nullptr) from->late = message.late;
      break;
    default:
      break;
  }
}

// Model step: grow
COLLS_ONCE void consensus::view_has_grown() {
  rebuild_tree();
  has_sent_request_ = false;
  has_accepted_in_view_ = has_sent_acceptance_ = has_told_view_ = has_probed_ = false;
  late_by_parent_ = -1;
  if (has_departed_ || !is_active() || decision_) return;
  tell_view_once();
  send_request();
}

// Model step: rebuild_tree
COLLS_ONCE void consensus::rebuild_tree() {
  survivors_.clear();
  if (!view_.empty()) survivors_ = view_.survivors(rank_, size_);
  parent_ = -1;
  children_.clear();
  if (!is_survivor(rank_)) return;
  const int count = survivor_count();
  int index = rank_;
  if (!survivors_.empty()) {
    index = static_cast<int>(std::lower_bound(survivors_.begin(), survivors_.end(), rank_) -
                             survivors_.begin());
  }
  const pattern::knomial_tree tree(index, count, 0, 2);
  if (tree.parent >= 0) parent_ = survivor(tree.parent);
  for (int i = tree.children; i-- > 0;) children_.push_back({survivor(tree.child(i)), {}, false});
}

// Tells the ranks that need it the view of this rank. One of them may have decided in a smaller
// view, and then answers with the decision. Model step: tell_view
COLLS_ONCE void consensus::tell_view_once() {
  if (view_.empty() || std::exchange(has_told_view_, true)) return;
  const recovery_message message = make(recovery_message::kind::news);
  const bool tells_all = !view_.broken().empty() || !is_survivor(rank_);
  if (!tells_all) {
    if (parent_ >= 0) net_.send(parent_, message);
    for (const subtree& each : children_) net_.send(each.rank, message);
    return;
  }
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && !view_.is_proved(peer) && !view_.is_broken(rank_, peer)) {
      net_.send(peer, message);
    }
  }
}

// Step 1: if the requests of the whole subtree are known, passes them to the parent.
// Model step: send_request
COLLS_ONCE void consensus::send_request() {
  if (!request_ || !is_survivor(rank_) || !has_quorum() || has_accepted_in_view_) return;
  recovery_request combined = *request_;
  std::optional<accepted_decision> latest = accepted_;
  for (const subtree& each : children_) {
    if (!each.request) return;
    combined.combine(each.request->request);
    const std::optional<accepted_decision>& other = each.request->accepted;
    if (other && (!latest || other->facts > latest->facts)) latest = other;
  }
  if (parent_ < 0) return propose(latest, combined);
  recovery_message message = make(recovery_message::kind::request);
  message.request = combined;
  message.accepted = latest;
  has_sent_request_ = true;
  net_.send(parent_, message);
}

// Step 2, on the root. Model step: propose
COLLS_ONCE void consensus::propose(const std::optional<accepted_decision>& latest,
                                   const recovery_request& combined) {
  accepted_decision proposal;
  proposal.facts = view_.facts();
  if (latest) {
    proposal.decision = latest->decision;
  } else {
    proposal.decision.request = combined;
    for (int rank = 0; !survivors_.empty() && rank < size_; ++rank) {
      if (!is_survivor(rank)) proposal.decision.lost.push_back({rank, view_.is_proved(rank)});
    }
  }
  accept(proposal);
}

// Step 3. Model step: accept
COLLS_ONCE void consensus::accept(const accepted_decision& proposal) {
  accepted_ = proposal;
  has_accepted_in_view_ = true;
  if (is_always_proved_) return finish(proposal.decision, parent_);
  recovery_message message = make(recovery_message::kind::proposal);
  message.accepted = proposal;
  for (const subtree& each : children_) net_.send(each.rank, message);
  send_acceptance();
}

// Step 4: if the whole subtree has accepted the proposal, tells the parent. On the root, the
// decision is then final. Model step: send_acceptance
COLLS_ONCE void consensus::send_acceptance() {
  if (!has_accepted_in_view_ || has_sent_acceptance_) return;
  for (const subtree& each : children_) {
    if (!each.has_accepted) return;
  }
  has_sent_acceptance_ = true;
  if (parent_ < 0) return finish(accepted_->decision, -1);
  net_.send(parent_, make(recovery_message::kind::acceptance));
}

// Called when this rank has the final decision, which `source` has told it, or -1.
// Model step: finish
COLLS_ONCE void consensus::finish(const recovery_decision& decision, int source) {
  if (decision_) return;
  decision_ = decision;
  const auto tell = [&](int peer) {
    if (peer >= 0 && peer != source) answer(peer, number_, *decision_);
  };
  // The parent has the decision already, unless it comes from another rank.
  if (source != parent_ && source >= 0) tell(parent_);
  for (const subtree& each : children_) tell(each.rank);
  // A rank that takes no part in this view but can be reached gets to know the decision, too.
  for (int peer = 0; !survivors_.empty() && peer < size_; ++peer) {
    if (peer == rank_ || is_survivor(peer) || view_.is_proved(peer)) continue;
    if (!view_.is_broken(rank_, peer)) tell(peer);
  }
}

COLLS_ONCE void consensus::answer(int source, std::uint64_t number,
                                  const recovery_decision& decision) {
  recovery_message message = make(recovery_message::kind::decision);
  message.number = number;
  message.accepted = accepted_decision{0, decision};
  net_.send(source, message);
}

COLLS_ONCE void consensus::spread_late() {
  if (!request_ || decision_) return;
  // A message to a rank whose request is missing shows whether the rank can be reached.
  if (!std::exchange(has_probed_, true)) {
    for (const subtree& each : children_) {
      if (!each.request) net_.send(each.rank, make(recovery_message::kind::news));
    }
  }
  recovery_message message = make(recovery_message::kind::late);
  message.late = late_rank();
  if (message.late < 0) return;
  if (parent_ >= 0 && !has_sent_request_) net_.send(parent_, message);
  for (const subtree& each : children_) {
    if (each.request) net_.send(each.rank, message);
  }
}

COLLS_ONCE consensus::state consensus::current_state() const {
  if (decision_) return state::decided;
  if (!request_) return state::idle;
  if (view_.is_proved(rank_)) return state::excluded;
  return has_quorum() ? state::waiting : state::no_quorum;
}

COLLS_ONCE void consensus::advance() {
  constexpr std::size_t kept = 2;
  for (const lost_rank& each : decision_->lost) view_.exclude(each.rank);
  past_.push_back({number_, std::move(*decision_)});
  if (past_.size() > kept) past_.erase(past_.begin());
  ++number_;
  decision_.reset();
  request_.reset();
  accepted_.reset();
  is_involved_ = false;
  view_has_grown();
  for (const early_message& each : std::exchange(early_, {})) receive(each.source, each.message);
}

COLLS_ONCE int consensus::late_rank() const {
  if (late_by_parent_ >= 0) return late_by_parent_;
  int lowest = -1;
  for (const subtree& each : children_) {
    if (each.request) continue;
    const int missing = each.late >= 0 ? each.late : each.rank;
    if (lowest < 0 || missing < lowest) lowest = missing;
  }
  return lowest >= 0 ? lowest : parent_;
}

COLLS_ONCE bool consensus::is_survivor(int rank) const {
  return survivors_.empty() || std::binary_search(survivors_.begin(), survivors_.end(), rank);
}

// Model step: has_quorum
COLLS_ONCE bool consensus::has_quorum() const {
  if (request_ && request_->quorum == quorum::any) return true;
  const int living = size_ - static_cast<int>(view_.proved().size());
  return 2 * survivor_count() > living;
}

COLLS_ONCE recovery_message consensus::make(recovery_message::kind type) const {
  recovery_message message;
  message.type = type;
  message.number = number_;
  message.view = view_;
  return message;
}

COLLS_ONCE consensus::subtree* consensus::child(int rank) {
  for (subtree& each : children_) {
    if (each.rank == rank) return &each;
  }
  return nullptr;
}

COLLS_ONCE const recovery_decision* consensus::past(std::uint64_t number) const {
  for (const past_decision& each : past_) {
    if (each.number == number) return &each.decision;
  }
  return nullptr;
}

}  // namespace colls
