// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// view_message: the messages that are sent from strided views and received into them.

#include <colls/base/strided_view.hpp>
#include <colls/call/call.hpp>
#include <colls/call/point_to_point_body.hpp>
#include <colls/channel/recv_reduce.hpp>
#include <colls/channel/scratch.hpp>

#include <algorithm>

namespace colls::detail {

/// The length in bytes of the pieces in which the elements of views move, unless a call pins the
/// segment size.
inline constexpr std::size_t view_piece_bytes = 256 * 1024;
static_assert(view_piece_bytes >= eager_limit, "longer messages must not be eager");

/// Returns memory for the packed elements of a message. If there is none, revokes the communicator,
/// since the peer waits for the message, and throws.
template <class Transport>
scratch view_scratch(Transport& net, call_base& owner, std::size_t size) {
  try {
    return scratch(net.matching(), size, is_phantom(net));
  } catch (const error&) {
    detail::revoke(net, owner, failure(errc::not_enough_memory));
    throw;
  }
}

/// A message that is sent from a view. Elements that are not contiguous are packed: all of them
/// before the message is sent, or, if the message is long, a piece at a time while it is sent.
template <class Transport>
class outgoing_view {
 public:
  /// If `is_overwritten`, the elements may change after the call has begun, and are packed before.
  outgoing_view(Transport& net, call_base& owner, const any_view& view, bool is_overwritten = false)
      : view_(view),
        size_(view.size() * view.element_size()),
        is_packed_(is_overwritten || !view.is_contiguous()),
        is_long_(sourcing_transport<Transport> && is_packed_ && !is_overwritten &&
                 size_ > view_piece_bytes),
        packed_(view_scratch(net, owner, scratch_size())),
        source_(copy, &view_, size_, packed_.all()) {
    if (is_packed_ && !is_long_ && !is_phantom(net)) pack(view_, 0, view_.size(), packed_.data());
  }

  const_bytes bytes() const {
    if (is_long_) return {nullptr, size_};
    return is_packed_ ? const_bytes(packed_.all()) : colls::bytes(view_.contiguous());
  }
  /// Must be called before `transfer`, which sends `bytes()`, starts.
  template <class Send>
  void attach_to(Send& transfer) {
    if constexpr (sourcing_transport<Transport>) {
      if (is_long_) transfer.read_from(source_);
    }
  }

 private:
  std::size_t scratch_size() const {
    if (!is_packed_) return 0;
    return is_long_ ? view_piece_bytes : size_;
  }
  static void copy(const void* view, std::size_t offset, std::size_t size, std::byte* dest) {
    pack_bytes(*static_cast<const any_view*>(view), offset, size, dest);
  }

  const any_view& view_;
  std::size_t size_;
  bool is_packed_;
  bool is_long_;
  scratch packed_;
  payload_source source_;
};

/// A message that is received into a view. Elements that are not contiguous are unpacked as they
/// arrive, if the transport can pass a message piece by piece to a function.
template <class Transport>
class incoming_view {
 public:
  incoming_view(Transport& net, call_base& owner, const any_view& view)
      : view_(view),
        size_(view.size() * view.element_size()),
        is_contiguous_(view.is_contiguous()),
        packed_(view_scratch(net, owner, is_unpacked_later() ? size_ : 0)) {}

  mutable_bytes bytes() const {
    if (is_unpacked_later()) return packed_.all();
    return is_contiguous_ ? colls::bytes(view_.contiguous()) : mutable_bytes(nullptr, size_);
  }
  std::size_t element_size() const { return view_.element_size(); }
  /// Must be called before `transfer`, which receives into `bytes()`, starts.
  template <class Receive>
  void attach_to(Receive& transfer) {
    if constexpr (consuming_transport<Transport>) {
      if (!is_contiguous_) transfer.consume_with(copy, this, 1);
    }
  }
  /// Must be called when `count` elements have been received.
  void finish(std::size_t count) const {
    if (is_unpacked_later()) unpack(view_, 0, count, packed_.data());
  }

 private:
  bool is_unpacked_later() const { return !consuming_transport<Transport> && !is_contiguous_; }
  static void copy(void* self, std::size_t offset, const std::byte* piece, std::size_t size) {
    unpack_bytes(static_cast<const incoming_view*>(self)->view_, offset, size, piece);
  }

  const any_view& view_;
  std::size_t size_;
  bool is_contiguous_;
  scratch packed_;
};

/// The coroutines that do the work of the user's sends and receives of views.
template <class Transport>
struct view_message_body {
  using base = point_to_point_body<Transport>;
  using send_operation = typename base::send_operation;
  using recv_operation = typename base::recv_operation;
  using transfer_pair = typename base::transfer_pair;

  static task<> send(Transport& net, call_base& owner, message_key key, any_view data) {
    outgoing_view<Transport> message(net, owner, data);
    send_operation transfer = net.send(key, message.bytes(), owner);
    message.attach_to(transfer);
    base::set_transfer(owner, transfer);
    owner.destination = key.peer;
    owner.bytes_expected = message.bytes().size;
    co_await end_of<send_operation>{&transfer};
    base::check_sent(transfer, owner, key);
  }
  static task<received> recv(Transport& net, call_base& owner, message_key key, any_view data) {
    incoming_view<Transport> message(net, owner, data);
    recv_operation transfer = net.recv(key, message.bytes(), owner);
    message.attach_to(transfer);
    base::set_transfer(owner, transfer);
    co_await end_of<recv_operation>{&transfer};
    co_return finished(message, transfer, owner);
  }
  static task<received> send_recv(Transport& net, call_base& owner, message_key to, any_view out,
                                  message_key from, any_view in) {
    outgoing_view<Transport> sent(net, owner, out, out.may_overlap(in));
    incoming_view<Transport> taken(net, owner, in);
    transfer_pair transfers{net.send(to, sent.bytes(), owner),
                            net.recv(from, taken.bytes(), owner)};
    sent.attach_to(transfers.out);
    taken.attach_to(transfers.in);
    base::set_transfer(owner, transfers);
    co_await when_all(end_of<send_operation>{&transfers.out},
                      end_of<recv_operation>{&transfers.in});
    base::check_sent(transfers.out, owner, to);
    co_return finished(taken, transfers.in, owner);
  }

  /// Returns the result of a receive into `message` that has ended, or throws its error.
  template <class Receive>
  static received finished(const incoming_view<Transport>& message, const Receive& transfer,
                           const call_base& owner) {
    const received result =
        base::received_message(transfer, owner, message.bytes(), message.element_size());
    message.finish(result.count);
    return result;
  }
};

}  // namespace colls::detail
