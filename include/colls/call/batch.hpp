// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// batch: several sends and receives as one operation.

#include <colls/call/communicator_core.hpp>
#include <colls/call/transfer.hpp>
#include <colls/call/view_request.hpp>
#include <colls/channel/operations.hpp>

#include <span>
#include <vector>

namespace colls::detail {

struct started_transfers {
  std::vector<operation<>> sends;
  std::vector<operation<received>> receives;
};

/// Waits until all transfers have ended, and then throws the first error, if there is one.
inline task<std::vector<received>> await_transfers(started_transfers started,
                                                   std::vector<bool> sends) {
  for (auto& each : started.sends) co_await end_of<operation<>>{&each};
  for (auto& each : started.receives) co_await end_of<operation<received>>{&each};
  for (auto& each : started.sends) each.result();
  std::vector<received> results;
  auto next = started.receives.begin();
  for (const bool is_send : sends) results.push_back(is_send ? received() : (next++)->result());
  co_return results;
}

template <class Transport>
operation<std::vector<received>> core<Transport>::batch(std::span<const transfer> transfers,
                                                        const options& opts) {
  auto* const new_call = make<call<std::vector<received>>>(collective::send_recv);
  checks check(collective::send_recv);
  for (const transfer& each : transfers) {
    const char* const problem = each.usage_error(this);
    if (problem != nullptr) check.require(false, "%s", problem);
    if (each.is_send()) {
      send_key(check, each.peer().rank(), each.tag().value());
      check_readable(check, each.data());
    } else {
      receive_key(check, each.peer(), each.tag());
      check_writable(check, each.data());
    }
  }
  if (check.failed()) return refuse(new_call, check.reason());
  // Each transfer is a call of its own, with its own deadline. If the batch is dropped, they decide
  // whether they can be withdrawn.
  new_call->can_withdraw = [](const call_base&) { return true; };
  new_call->last_progress = never;  // the transfers have inactivity timeouts of their own
  return begin_point_to_point(new_call, 0, {}, [&](call_base&) {
    started_transfers started;
    std::vector<bool> sends;
    for (const transfer& each : transfers) {
      sends.push_back(each.is_send());
      const any_view& data = each.data();
      const peer other = each.peer();
      const recv_tag tag = each.tag();
      if (each.is_send()) {
        started.sends.push_back(send_view(data, other.rank(), tag.value(), opts));
      } else {
        started.receives.push_back(recv_view(data, other, tag, opts));
      }
    }
    return await_transfers(std::move(started), std::move(sends));
  });
}

}  // namespace colls::detail
