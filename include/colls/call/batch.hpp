// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// batch: several sends and receives as one operation.

#include <colls/call/communicator_core.hpp>
#include <colls/call/transfer.hpp>
#include <colls/call/view_request.hpp>
#include <colls/channel/operations.hpp>

#include <span>
#include <variant>
#include <vector>

namespace colls::detail {

/// A transfer of a batch that has started: a send or a receive.
using started_transfer = std::variant<operation<>, operation<received>>;

/// Returns `reason` with a text that says which of the `count` transfers of a batch it belongs to.
inline failure in_transfer(failure reason, std::size_t index, std::size_t count) {
  const failure original = reason;
  return reason.set_detail("transfer %zu of %zu: %.280s", index + 1, count, original.detail);
}

/// Waits until all transfers have ended, and then throws the first error, if there is one.
inline task<std::vector<received>> await_transfers(std::vector<started_transfer> started) {
  for (started_transfer& each : started) {
    if (auto* const send = std::get_if<operation<>>(&each)) {
      co_await end_of<operation<>>{send};
    } else {
      co_await end_of<operation<received>>{std::get_if<operation<received>>(&each)};
    }
  }
  std::vector<received> results;
  for (std::size_t i = 0; i < started.size(); ++i) {
    try {
      if (auto* const send = std::get_if<operation<>>(&started[i])) {
        send->result();
        results.emplace_back();
      } else {
        results.push_back(std::get<operation<received>>(started[i]).result());
      }
    } catch (const error& thrown) {
      throw error(in_transfer(thrown.record(), i, started.size()));
    }
  }
  co_return results;
}

template <class Transport>
operation<std::vector<received>> core<Transport>::batch(std::span<const transfer> transfers,
                                                        const options& opts) {
  auto* const new_call = make<call<std::vector<received>>>(collective::send_recv);
  checks check(collective::send_recv);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    const transfer& each = transfers[i];
    const char* const problem = each.usage_error(this);
    if (problem != nullptr) check.require(false, "%s", problem);
    if (each.is_send()) {
      send_key(check, each.peer().rank(), each.tag().value());
      check_readable(check, each.data());
    } else {
      receive_key(check, each.peer(), each.tag());
      check_writable(check, each.data());
    }
    if (check.failed()) return refuse(new_call, in_transfer(check.reason(), i, transfers.size()));
  }
  // Each transfer is a call of its own, with its own deadline. If the batch is dropped, they decide
  // whether they can be withdrawn.
  new_call->can_withdraw = [](const call_base&) { return true; };
  new_call->last_progress = never;  // the transfers have inactivity timeouts of their own
  return begin_point_to_point(new_call, 0, {}, [&](call_base&) {
    std::vector<started_transfer> started;
    for (const transfer& each : transfers) {
      if (each.is_send()) {
        started.emplace_back(send_view(each.data(), each.peer().rank(), each.tag().value(), opts));
      } else {
        started.emplace_back(recv_view(each.data(), each.peer(), each.tag(), opts));
      }
    }
    return await_transfers(std::move(started));
  });
}

}  // namespace colls::detail
