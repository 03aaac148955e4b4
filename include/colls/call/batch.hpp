// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// batch: several sends and receives as one operation.

#include <colls/call/communicator_core.hpp>
#include <colls/call/view_calls.hpp>
#include <colls/call/view_request.hpp>
#include <colls/channel/operations.hpp>

#include <span>
#include <vector>

namespace colls {

/// A send or a receive of a batch (see `communicator::batch`). It does not own its data, which may be
/// a strided view or a tensor.
class transfer {
 public:
  /// Describes a send of `data` to the rank `dest`.
  template <detail::data_argument Data>
  static transfer send(Data&& data, int dest, int tag = 0) {
    return transfer(std::forward<Data>(data), dest, tag, true);
  }
  /// Describes a receive of a message from the rank `source` into `data`.
  template <detail::data_argument Data>
  static transfer recv(Data&& data, peer source, recv_tag tag = 0) {
    return transfer(detail::written(std::forward<Data>(data)), source, tag, false);
  }

  const any_view& data() const { return data_; }
  /// Returns the reason why a call on `communicator` cannot use the data, or null if it can.
  const char* usage_error(const void* communicator) const {
    return problem_ == nullptr && owner_ != nullptr && owner_ != communicator
               ? detail::registered_elsewhere
               : problem_;
  }
  colls::peer peer() const { return peer_; }
  recv_tag tag() const { return tag_; }
  bool is_send() const { return is_send_; }

 private:
  template <class Data>
  transfer(Data&& data, colls::peer other, recv_tag tag, bool is_send)
      : peer_(other), tag_(tag), is_send_(is_send) {
    if constexpr (viewable<Data>) {
      detail::check_lasting_view<Data>();
      const erased_view erased = view_access<std::remove_cvref_t<Data>>::erase(data);
      data_ = erased.view;
      problem_ = erased.problem;
    } else {
      if constexpr (detail::is_registered<std::remove_cvref_t<Data>>) {
        owner_ = data.owner();
        problem_ = data.usage_error(owner_);
      }
      data_ = detail::to_any_buffer<host_memory>(std::forward<Data>(data));
    }
  }

  any_view data_;
  const void* owner_ = nullptr;  // of registered memory
  const char* problem_ = nullptr;
  colls::peer peer_;
  recv_tag tag_;
  bool is_send_;
};

namespace detail {

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

}  // namespace detail

}  // namespace colls
