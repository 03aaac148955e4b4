// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// point_to_point_body: the coroutines that do the work of the user's sends and receives.

#include <colls/call/arguments.hpp>
#include <colls/call/call.hpp>
#include <colls/channel/operations.hpp>
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
    co_await end_of<send_operation>{&transfer};
    check_sent(transfer, owner, key);
  }
  /// Throws `error` if a send that has ended has failed.
  static void check_sent(const send_operation& transfer, const call_base& owner,
                         const message_key& key) {
    const std::error_code ec = transfer.result();
    if (ec == errc::cancelled && !owner.communicator->failed()) {
      failure reason(errc::cancelled);
      reason.culprit = key.peer;
      throw error(reason.set_detail("rank %d has discarded the message with tag %llu", key.peer,
                                    static_cast<unsigned long long>(key.sequence)));
    }
    unwrap(ec);
  }

  /// Returns the failure of a receive of elements of `element_size` bytes, which a message of
  /// `size` bytes does not consist of.
  static failure element_mismatch(std::size_t size, int tag, std::size_t element_size) {
    failure reason(errc::mismatch);
    return reason.set_detail("a message of %zu bytes with tag %d came for elements of %zu bytes",
                             size, tag, element_size);
  }

  /// Returns the result of a receive that has ended. Throws `error` if the receive has failed, or
  /// if the size of the message is not a multiple of `element_size`.
  static received received_message(const recv_operation& transfer, const call_base& owner,
                                   mutable_bytes buffer, std::size_t element_size) {
    const std::error_code ec = transfer.result();
    failure reason;
    if (ec == errc::truncated) {
      reason.code = errc::truncated;
      reason.set_detail("the message with tag %d has %llu bytes, the buffer %zu", transfer.tag(),
                        static_cast<unsigned long long>(owner.bytes_expected), buffer.size);
    } else if (ec == errc::cancelled && !owner.communicator->failed()) {
      reason.code = errc::cancelled;
      reason.set_detail("its sender has withdrawn the message with tag %d", transfer.tag());
    } else if (!ec && transfer.count() % element_size != 0) {
      reason = element_mismatch(transfer.count(), transfer.tag(), element_size);
    }
    if (reason.code != errc{}) {
      reason.culprit = transfer.source_rank();
      throw error(reason);
    }
    unwrap(ec);
    return {owner.communicator->rank_of(transfer.source_rank()), transfer.count() / element_size,
            transfer.tag()};
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
    co_await when_all(end_of<send_operation>{&transfers.out},
                      end_of<recv_operation>{&transfers.in});
    check_sent(transfers.out, owner, send_key);
    co_return received_message(transfers.in, owner, buffer, element_size);
  }
};

}  // namespace colls::detail
