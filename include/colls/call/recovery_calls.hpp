// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recovery_calls: agree and shrink, the calls by which the ranks of a communicator go on although
// some of them have failed. repair_calls.hpp has repair, which begins as shrink does.

#include <colls/call/arguments.hpp>
#include <colls/call/communicator_core.hpp>
#include <colls/channel/operations.hpp>
#include <colls/matching/communicator_recovery.hpp>

namespace colls::detail {

/// Ends a call whose agreement has not come in time.
inline void expire_recovery(operation_record& record, const failure& general) {
  auto& late_call = static_cast<call_base&>(record);
  if (late_call.try_complete()) return;
  failure reason = late_call.matcher()->recovery_of(*record.communicator).timeout_failure();
  reason.elapsed_ns = general.elapsed_ns;
  late_call.cancel(reason);
}

inline task<agreement> agree_body(communicator_recovery& recovery, quorum needed,
                                  std::uint64_t value) {
  const auto own_value = [=](std::uint64_t) { return value; };
  communicator_recovery::waiter decided(recovery, collective::agree, needed, own_value);
  co_await end_of<communicator_recovery::waiter>{&decided};
  recovery_decision decision = decided.result();
  co_return agreement{decision.request.value, std::move(decision.lost)};
}

template <class Transport>
template <class Value, class Body>
operation<Value> core<Transport>::start_recovery(collective coll, const recovery_options& opts,
                                                 const Body& body) {
  auto* const new_call = make<call<Value>>(coll);
  checks check(coll);
  check.require(opts.quorum <= quorum::any, "the quorum is none of the enumeration");
  check.require(opts.timeout.count() >= 0, "the timeout is negative");
  if (coll == collective::repair) {
    check.require(opts.wait.count() >= 0, "the time to wait for replacements is negative");
    check.require(opts.at_least >= 0, "at_least %d is negative", opts.at_least);
  } else {
    check.require(opts.at_least == 0 && opts.wait.count() == 0,
                  "at_least and wait are options of repair alone");
  }
  if (check.failed()) return refuse(new_call, check.reason());
  const failure obstacle = recovery_obstacle(coll);
  if (obstacle.code != errc{}) return refuse(new_call, obstacle);
  return begin_recovery(new_call, opts.timeout, &expire_recovery, body);
}

template <class Transport>
failure core<Transport>::recovery_obstacle(collective coll) {
  failure reason(errc::not_applicable);
  reason.operation = coll;
  if (!matching().can_recover())
    return reason.set_detail("this transport sends no recovery messages");
  if (coll == collective::shrink && shrink_obstacle() != nullptr)
    return reason.set_detail("%s", shrink_obstacle());
  if (coll == collective::repair && !stands_for_world())
    return reason.set_detail(
        "only the world is repaired, and what shrink and repair have made of it");
  if (coll == collective::repair && !has_replacing_launcher()) {
    reason.code = errc::no_replacement;
    return reason.set_detail("no launcher starts replacements for the ranks of this job");
  }
  return failure();
}

template <class Transport>
operation<agreement> core<Transport>::agree(std::uint64_t value, const recovery_options& opts) {
  return start_recovery<agreement>(collective::agree, opts, [&](call_base&) {
    return agree_body(matching().recovery_of(state()), opts.quorum, value);
  });
}

// ---- shrink

// The first value of a rank stands in an agreement, so the ids stay reserved until that agreement
// has ended, however often this rank calls shrink.
template <class Transport>
std::shared_ptr<typename core<Transport>::reserved_ids> core<Transport>::reserve_shrink_ids(
    std::uint64_t number) noexcept {
  if (shrink_ids_ != nullptr && shrink_ids_->number == number) return shrink_ids_;
  try {
    shrink_ids_ = std::make_shared<reserved_ids>(*this, number);
  } catch (const std::bad_alloc&) {
    shrink_ids_ = nullptr;
  }
  return shrink_ids_;
}

template <class Transport>
task<communicator<Transport>> core<Transport>::shrink_body(call_base& owner, quorum needed,
                                                           collective coll) {
  std::shared_ptr<reserved_ids> reserved;
  const auto free_ids = [&](std::uint64_t number) {
    reserved = reserve_shrink_ids(number);
    return std::uint64_t{reserved != nullptr ? reserved->ids.free() : 0};
  };
  communicator_recovery::waiter decided(matching().recovery_of(state()), coll, needed, free_ids);
  co_await end_of<communicator_recovery::waiter>{&decided};
  const recovery_decision decision = decided.result();
  // The others go on with the result, so this call must not expire any more.
  owner.deadline = never;
  if (shrink_ids_ == reserved) shrink_ids_ = nullptr;
  if (reserved == nullptr) throw error(errc::not_enough_memory);
  // If this call ends with an error now, the destructor abandons the ids.
  reserved->ids.exchange_done();

  failure reason(errc::revoked);
  reason.set_detail("the ranks go on with what %s has made of it", name(coll));
  reason.culprit = matching().rank();
  matching().revoke(state(), reason);
  for (const lost_rank& each : decision.lost) {
    // A rank that has closed this communicator may live on in others, and is no stranger there.
    if (!each.proved) matching().exclude(state().world_rank(each.rank));
  }
  // Peers may work in the memory of an operation until it has ended.
  drain ended(*this);
  co_await end_of<drain>{&ended};

  std::vector<int> previous;
  std::vector<int> members;
  int rank = 0;
  for (int each = 0; each < state().size(); ++each) {
    if (decision.has_lost(each)) continue;
    if (each == state().rank()) rank = static_cast<int>(previous.size());
    previous.push_back(each);
    members.push_back(state().world_rank(each));
    matching().confirm(members.back());
  }
  const auto free_on_all = static_cast<std::uint32_t>(decision.request.value);
  const std::uint32_t id = reserved->ids.choose(free_on_all & reserved->ids.free());
  const int size = static_cast<int>(previous.size());
  auto left = std::make_unique<core>(
      net_, id, rank, size, std::make_shared<const std::vector<int>>(std::move(members)), false);
  left->state().inactivity = state().inactivity;
  left->set_costs(tuning().costs());
  left->succeed(*this, std::move(previous));
  reserved->ids.commit();
  co_return communicator<Transport>(std::move(left));
}

template <class Transport>
operation<communicator<Transport>> core<Transport>::shrink(const recovery_options& opts) {
  return start_recovery<communicator<Transport>>(collective::shrink, opts, [&](call_base& call) {
    return shrink_body(call, opts.quorum, collective::shrink);
  });
}

}  // namespace colls::detail
