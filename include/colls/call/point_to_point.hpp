// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// point_to_point: starts the sends and receives of the user. point_to_point_body holds the
// coroutines that do their work.

#include <colls/call/arguments.hpp>
#include <colls/call/call.hpp>
#include <colls/call/communicator_core.hpp>
#include <colls/channel/transport.hpp>
#include <colls/coroutine/when_all.hpp>

namespace colls::detail {

template <transport Transport>
struct point_to_point_body {
  using send_operation = decltype(std::declval<Transport&>().send(
      std::declval<message_key>(), const_bytes{}, std::declval<operation_record&>()));
  using recv_operation = decltype(std::declval<Transport&>().recv(
      std::declval<message_key>(), mutable_bytes{}, std::declval<operation_record&>()));

  template <class Transfer>
  static void set_transfer(call_base& owner, Transfer& transfer) {
    owner.transfer = &transfer;
    owner.can_withdraw = [](const call_base& self) {
      return static_cast<const Transfer*>(self.transfer)->untouched();
    };
  }

  static task<> send(Transport& net, call_base& owner, message_key key, const_bytes data) {
    owner.destination = key.peer;
    owner.bytes_expected = data.size;
    send_operation transfer = net.send(key, data, owner);
    set_transfer(owner, transfer);
    co_await transfer;
  }

  /// Returns the result of a receive that has ended. Throws `error` if the receive has failed, or
  /// if the size of the message is not a multiple of `element_size`.
  static received received_message(const recv_operation& transfer, const call_base& owner,
                                   mutable_bytes buffer, std::size_t element_size) {
    const std::error_code ec = transfer.result();
    failure reason;
    const auto tag = static_cast<unsigned long long>(owner.sequence);
    if (ec == errc::truncated) {
      reason.code = errc::truncated;
      reason.set_detail("the message with tag %llu has %llu bytes, the buffer %zu", tag,
                        static_cast<unsigned long long>(owner.bytes_expected), buffer.size);
    } else if (!ec && transfer.count() % element_size != 0) {
      reason.code = errc::mismatch;
      reason.set_detail("a message of %zu bytes with tag %llu came for elements of %zu bytes",
                        transfer.count(), tag, element_size);
    }
    if (reason.code != errc{}) {
      reason.culprit = transfer.source_rank();
      throw error(reason);
    }
    unwrap(ec);
    return {owner.communicator->rank_of(transfer.source_rank()), transfer.count() / element_size};
  }
  static task<received> recv(Transport& net, call_base& owner, message_key key,
                             mutable_bytes buffer, std::size_t element_size) {
    recv_operation transfer = net.recv(key, buffer, owner);
    set_transfer(owner, transfer);
    co_await end_of<recv_operation>{&transfer};
    co_return received_message(transfer, owner, buffer, element_size);
  }

  struct transfer_pair {
    send_operation out;
    recv_operation in;
    bool untouched() const { return out.untouched() && in.untouched(); }
  };
  static task<received> send_recv(Transport& net, call_base& owner, message_key send_key,
                                  const_bytes data, message_key recv_key, mutable_bytes buffer,
                                  std::size_t element_size) {
    transfer_pair transfers{net.send(send_key, data, owner), net.recv(recv_key, buffer, owner)};
    set_transfer(owner, transfers);
    co_await when_all(reference<send_operation>{&transfers.out},
                      end_of<recv_operation>{&transfers.in});
    co_return received_message(transfers.in, owner, buffer, element_size);
  }

  template <class Transfer>
  struct reference {
    Transfer* transfer;
    bool start(completion& done) { return transfer->start(done); }
    std::error_code result() { return transfer->result(); }
  };
  /// An awaitable that waits until an operation has ended, but does not throw if the operation has
  /// failed. The awaiting coroutine can then inspect the operation.
  template <class Transfer>
  struct end_of {
    Transfer* transfer;
    bool start(completion& done) { return transfer->start(done); }
    void result() {}
  };
};

inline void check_peer(checks& check, int peer, int ranks) {
  check.require(peer >= 0 && peer < ranks, "rank %d is not in 0..%d", peer, ranks - 1);
}

template <class Transport>
operation<> core<Transport>::send(any_buffer data, int dest, int tag, const options& opts) {
  auto* const new_call = make(collective::send);
  checks check(collective::send);
  check_peer(check, dest, state().size());
  check.require(tag >= 0, "tag %d is negative", tag).check_size(data);
  if (check.failed()) return refuse(new_call, check.reason());
  const message_key key{state().world_rank(dest), state().id(), static_cast<std::uint64_t>(tag),
                        message_key::point_to_point};
  return begin_point_to_point(new_call, key.sequence, opts, [&](call_base& call) {
    set_device_options<Transport>(call, opts);
    return point_to_point_body<Transport>::send(net(), call, key, bytes(data));
  });
}

template <class Transport>
operation<received> core<Transport>::recv(any_buffer data, peer source, int tag,
                                          const options& opts) {
  auto* const new_call = make<call<received>>(collective::recv);
  checks check(collective::recv);
  if (!source.is_any()) check_peer(check, source.rank(), state().size());
  check.require(tag >= 0, "tag %d is negative", tag).check_size(data);
  if (check.failed()) return refuse(new_call, check.reason());
  const message_key key{
      source.is_any() ? posted_receive::any_source : state().world_rank(source.rank()),
      state().id(), static_cast<std::uint64_t>(tag), message_key::point_to_point};
  return begin_point_to_point(new_call, key.sequence, opts, [&](call_base& call) {
    set_device_options<Transport>(call, opts);
    return point_to_point_body<Transport>::recv(net(), call, key, bytes(data), data.element_size());
  });
}

template <class Transport>
operation<received> core<Transport>::send_recv(any_buffer outgoing, int dest, any_buffer incoming,
                                               peer source, int tag, const options& opts) {
  auto* const new_call = make<call<received>>(collective::send_recv);
  checks check(collective::send_recv);
  check_peer(check, dest, state().size());
  if (!source.is_any()) check_peer(check, source.rank(), state().size());
  check.require(tag >= 0, "tag %d is negative", tag)
      .check_size(outgoing)
      .check_size(incoming)
      .require(outgoing.data() != incoming.data() || outgoing.size() == 0,
               "what is sent and what is received are one buffer")
      .require(!overlap_partially(outgoing, incoming), "the two buffers overlap in part");
  if (check.failed()) return refuse(new_call, check.reason());
  const message_key to_key{state().world_rank(dest), state().id(), static_cast<std::uint64_t>(tag),
                           message_key::point_to_point};
  message_key from_key = to_key;
  from_key.peer = source.is_any() ? posted_receive::any_source : state().world_rank(source.rank());
  return begin_point_to_point(new_call, to_key.sequence, opts, [&](call_base& call) {
    set_device_options<Transport>(call, opts);
    return point_to_point_body<Transport>::send_recv(net(), call, to_key, bytes(outgoing), from_key,
                                                     bytes(incoming), incoming.element_size());
  });
}

}  // namespace colls::detail
