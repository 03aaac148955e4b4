// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// transfer: one of the sends and receives that a batch consists of.

#include <colls/base/shared_buffer.hpp>
#include <colls/base/strided_view.hpp>
#include <colls/call/arguments.hpp>
#include <colls/call/view_calls.hpp>

#include <utility>

namespace colls {

/// A send or a receive of a batch (see `communicator::batch`). It does not own its data, which may
/// be a strided view or a tensor.
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

}  // namespace colls
