// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recovery_calls: agree, the call by which the ranks of a communicator agree although some of them
// have failed.

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

inline task<agreement> agree_body(communicator_recovery& recovery, recovery_request request) {
  communicator_recovery::waiter decided(recovery, request);
  co_await end_of<communicator_recovery::waiter>{&decided};
  recovery_decision decision = decided.result();
  co_return agreement{decision.request.value, std::move(decision.lost)};
}

template <class Transport>
operation<agreement> core<Transport>::agree(std::uint64_t value, const recovery_options& opts) {
  auto* const new_call = make<call<agreement>>(collective::agree);
  checks check(collective::agree);
  check.require(opts.quorum <= quorum::any, "the quorum is none of the enumeration");
  check.require(opts.timeout.count() >= 0, "the timeout is negative");
  if (check.failed()) return refuse(new_call, check.reason());
  if (!matching().can_recover()) {
    failure reason(errc::not_applicable, "this transport sends no recovery messages");
    reason.operation = collective::agree;
    return refuse(new_call, reason);
  }
  return begin_recovery(new_call, opts.timeout, &expire_recovery, [&](call_base&) {
    return agree_body(matching().recovery_of(state()),
                      {collective::agree, opts.quorum, false, value});
  });
}

}  // namespace colls::detail
