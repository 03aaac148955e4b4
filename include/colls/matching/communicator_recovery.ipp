// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of communicator_recovery.

#include <colls/base/compiler.hpp>
#include <colls/matching/communicator_recovery.hpp>

#include <utility>

namespace colls {

COLLS_ONCE failure excluded_failure(int peer, std::uint32_t communicator) {
  failure reason(errc::excluded);
  reason.culprit = reason.observer = peer;
  reason.communicator = communicator;
  reason.set_detail("the other ranks go on without rank %d", peer);
  return reason;
}

COLLS_ONCE communicator_recovery::communicator_recovery(recovery_owner& owner,
                                                        const communicator_state& communicator,
                                                        bool is_always_proved)
    : owner_(owner),
      members_(communicator.id(), communicator.rank(), communicator.size(), communicator.members()),
      consensus_(communicator.rank(), communicator.size(), is_always_proved,
                 static_cast<consensus::network&>(*this)) {}

// ---- calls

COLLS_ONCE bool communicator_recovery::waiter::start(completion& done) {
  done_ = &done;
  recovery_->add(*this);
  if (is_queued_) return false;
  done.withdraw();  // the caller goes on at once
  return true;
}

COLLS_ONCE recovery_decision communicator_recovery::waiter::result() {
  if (reason_.code != errc{}) throw error(reason_);
  return std::move(decision_);
}

COLLS_ONCE void communicator_recovery::add(waiter& call) {
  waiters_.push_back(&call);
  call.is_queued_ = true;
  if (waiters_.size() == 1) begin_front();
  complete_front();
}

COLLS_ONCE void communicator_recovery::remove(waiter& call) {
  const bool is_front = waiters_.front() == &call;
  std::erase(waiters_, &call);
  call.is_queued_ = false;
  try {
    if (is_front) begin_front();
    complete_front();
  } catch (const std::bad_alloc&) {
    // The next message or call goes on with the calls that wait.
  }
}

// Makes the first waiting call, if there is one.
COLLS_ONCE void communicator_recovery::begin_front() {
  if (!is_waiting()) return;
  no_quorum_since_ = never;
  next_sweep_ = 0;
  waiter& front = *waiters_.front();
  front.request_.value = front.value_(consensus_.number());
  run([&] { consensus_.call(front.request_); });
}

COLLS_ONCE void communicator_recovery::complete_front() {
  if (is_running_ || std::exchange(is_completing_, true)) return;
  const flag_guard completing(is_completing_);
  while (is_waiting() && complete_one()) {
  }
}

// Ends the first waiting call if its agreement has come to an end. Returns false if it has not.
COLLS_ONCE bool communicator_recovery::complete_one() {
  const consensus::state now = consensus_.current_state();
  const bool is_decided = now == consensus::state::decided;
  if (now == consensus::state::excluded ||
      (is_decided && consensus_.decision().has_lost(members_.rank()))) {
    owner_.excluded(members_);
    end_front(excluded_failure(members_.world_rank(members_.rank()), id()));
    return true;
  }
  if (!is_decided) return false;
  const recovery_decision decision = consensus_.decision();
  // The communicator fails before the call ends, also if the call then ends with an error.
  if (!decision.lost.empty()) owner_.losses_agreed(members_, decision.lost);
  const collective called = waiters_.front()->request_.operation;
  failure reason;
  if (decision.request.differs) {
    reason = make_failure(errc::mismatch);
    reason.set_detail("the ranks made different calls, or passed different options");
  } else if (decision.request.operation != called) {
    reason = make_failure(errc::mismatch);
    reason.set_detail("the other ranks called %s: call it on this rank, too",
                      name(decision.request.operation));
    end_front(reason);
    return true;
  }
  waiters_.front()->decision_ = decision;
  run([&] { consensus_.advance(); });
  end_front(reason);
  return true;
}

COLLS_ONCE void communicator_recovery::end_front(const failure& reason) {
  waiter& front = *waiters_.front();
  waiters_.pop_front();
  front.is_queued_ = false;
  front.reason_ = reason;
  front.done_->post();
  begin_front();
}

COLLS_ONCE failure communicator_recovery::make_failure(errc code, int culprit) const {
  failure reason(code);
  reason.observer = members_.world_rank(members_.rank());
  reason.culprit = culprit;
  reason.communicator = id();
  return reason;
}

COLLS_ONCE failure communicator_recovery::timeout_failure() const {
  const int late = consensus_.late_rank();
  failure reason = make_failure(errc::timeout, late < 0 ? -1 : members_.world_rank(late));
  if (late >= 0) reason.set_detail("rank %d has not made the call yet", reason.culprit);
  return reason;
}

// ---- events

COLLS_ONCE void communicator_recovery::peer_lost(int peer, bool proved) {
  const int rank = members_.rank_of(peer);
  if (rank < 0) return;
  run([&] { proved ? consensus_.add_proved(rank) : consensus_.add_broken(members_.rank(), rank); });
  complete_front();
}

COLLS_ONCE void communicator_recovery::excluded_by(int peer) {
  if (members_.rank_of(peer) < 0) return;
  run([&] { consensus_.exclude_self(); });
  complete_front();
}

COLLS_ONCE bool communicator_recovery::receive(int peer, std::span<const std::byte> message) {
  const int source = members_.rank_of(peer);
  if (source < 0 || source == members_.rank()) return false;
  const auto parsed = recovery_message::parse(message, members_.size());
  if (!parsed) return false;
  run([&] { consensus_.receive(source, *parsed); });
  complete_front();
  return true;
}

COLLS_ONCE void communicator_recovery::sweep(time_point now) {
  // A rank that is suspected may soon be proved lost.
  constexpr time_point settling = 2 * seconds;
  if (!is_waiting() || now < next_sweep_) return;
  const bool is_first = next_sweep_ == 0;
  next_sweep_ = now + 100 * milliseconds;
  if (consensus_.current_state() == consensus::state::no_quorum) {
    if (no_quorum_since_ == never) no_quorum_since_ = now;
    ask_lost_peers();
    if (now - no_quorum_since_ < settling) return;
    failure reason = make_failure(errc::no_quorum);
    reason.set_detail("no more than half of the %d ranks can be reached", members_.size());
    end_front(reason);
  } else {
    no_quorum_since_ = never;
    if (!is_first) run([&] { consensus_.spread_late(); });
  }
  complete_front();
}

COLLS_ONCE void communicator_recovery::ask_lost_peers() {
  const int own = members_.rank();
  for (const broken_link& link : consensus_.view().broken()) {
    if (link.low != own && link.high != own) continue;
    owner_.ask_lost_peer(members_.world_rank(link.low == own ? link.high : link.low));
  }
}

// ---- messages

COLLS_ONCE void communicator_recovery::send(int peer, const recovery_message& message) {
  unsent_.push_back({peer, message});
}

template <class Step>
void communicator_recovery::run(const Step& step) {
  step();
  flush();
}

// A message may be delivered before `recover` returns, and may be answered at once. So messages are
// sent one by one by the outermost call of this function.
COLLS_ONCE void communicator_recovery::flush() {
  if (std::exchange(is_running_, true)) return;
  const flag_guard running(is_running_);
  for (std::size_t i = 0; i < unsent_.size(); ++i) {
    const outgoing_message next = std::move(unsent_[i]);
    const int peer = members_.world_rank(next.peer);
    if (!owner_.send_recovery(peer, id(), next.message.bytes())) {
      consensus_.add_proved(next.peer);
    }
  }
  unsent_.clear();
}

}  // namespace colls
