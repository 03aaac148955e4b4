// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// probe: starts the probes of the user, and the receives of messages whose length this rank does
// not know, which begin with a probe.

#include <colls/call/communicator_core.hpp>
#include <colls/call/point_to_point_body.hpp>
#include <colls/call/view_message.hpp>
#include <colls/call/view_request.hpp>
#include <colls/channel/operations.hpp>

namespace colls::detail {

/// Satisfied by transports whose receives are a `receive_operation`, which can probe.
template <class Transport>
concept probing_transport = requires {
  typename Transport::recv_operation::transport_type;
  requires std::is_same_v<receive_operation<typename Transport::recv_operation::transport_type>,
                          typename Transport::recv_operation>;
};

inline failure cannot_probe() {
  return failure(errc::invalid_argument, "the transport of this communicator cannot probe");
}

/// The coroutines that do the work of these calls.
template <probing_transport Transport>
struct probing_body {
  using base = point_to_point_body<Transport>;
  using receiver = typename Transport::recv_operation::transport_type;

  /// Waits until a message with the key `key` has come, and makes `message` its owner. `message`
  /// may be null afterwards, if the sender has withdrawn the message meanwhile.
  static task<> probe(receiver& net, call_base& owner, message_key key,
                      unexpected_message*& message) {
    probe_operation<receiver> transfer(net, key, owner);
    // No peer is told of a probe: the message that it has matched is discarded if it is not moved.
    owner.can_withdraw = [](const call_base&) { return true; };
    co_await end_of<probe_operation<receiver>>{&transfer};
    unwrap(transfer.result());
    transfer.move_message_to(message);
  }
  static task<received> recv_probed(receiver& net, call_base& owner, unexpected_message*& message,
                                    any_view data) {
    incoming_view<receiver> target(net, owner, data);
    probed_receive_operation<receiver> transfer(net, message, target.bytes(), owner);
    target.attach_to(transfer);
    base::set_transfer(owner, transfer);
    co_await end_of<probed_receive_operation<receiver>>{&transfer};
    co_return view_message_body<receiver>::finished(target, transfer, owner);
  }
  /// See `core::recv_resized`. A message that is too long, or whose size is not a multiple of
  /// `element_size`, is received into an empty buffer: its send completes. If the sender withdraws
  /// a message that the user has not probed, takes the next one.
  static task<received> recv_resized(receiver& net, call_base& owner, message_key key,
                                     unexpected_message*& message, std::size_t element_size,
                                     std::size_t most,
                                     function_ref<any_buffer(std::size_t)> resize) {
    const bool was_probed = message != nullptr;  // by the user, who wants this message and no other
    for (;;) {
      while (message == nullptr) {
        auto probing = probe(net, owner, key, message);
        co_await probing;
      }
      failure reason;
      const std::size_t size = message->size;
      const auto tag = static_cast<int>(message->key.sequence);
      if (size > most) {
        reason = failure(errc::truncated);
        reason.set_detail("the message with tag %d has %zu bytes, this receive takes at most %zu",
                          tag, size, most);
      } else if (size % element_size != 0) {
        reason = base::element_mismatch(size, tag, element_size);
      }
      reason.culprit = message->key.peer;
      const bool fits = reason.code == errc{};
      const mutable_bytes buffer = fits ? bytes(resize(size / element_size)) : mutable_bytes();
      probed_receive_operation<receiver> transfer(net, message, buffer, owner);
      base::set_transfer(owner, transfer);
      co_await end_of<probed_receive_operation<receiver>>{&transfer};
      const bool was_withdrawn =
          transfer.result() == errc::cancelled && !owner.communicator->failed();
      if (was_withdrawn && !was_probed)
        continue;  // by its sender: as `recv`, take the next message
      if (!fits) throw error(reason);
      co_return base::received_message(transfer, owner, buffer, element_size);
    }
  }
};

template <class Transport>
operation<probed_message<Transport>> core<Transport>::probe(peer source, recv_tag tag,
                                                            const options& opts) {
  auto* const new_call = make<call<probed_message<Transport>>>(collective::probe);
  checks check(collective::probe);
  const message_key key = receive_key(check, source, tag);
  if (!probing_transport<Transport>) check.fail(cannot_probe());
  if (check.failed()) return refuse(new_call, check.reason());
  return begin_point_to_point(new_call, recorded_tag(tag), opts,
                              [&](call_base& call) { return probe_body(call, key); });
}

template <class Transport>
task<probed_message<Transport>> core<Transport>::probe_body(call_base& owner, message_key key) {
  unexpected_message* message = nullptr;
  const message_owner discards(*this, message);
  if constexpr (probing_transport<Transport>) {
    while (message == nullptr) {
      auto probing = probing_body<Transport>::probe(net(), owner, key, message);
      co_await probing;
    }
  }
  co_return probed_message<Transport>(*this, message);
}

template <class Transport>
operation<received> core<Transport>::recv_probed(unexpected_message*& probed, const any_view& data,
                                                 const options& opts) {
  auto* const new_call = make<call<received>>(collective::recv);
  checks check(collective::recv);
  check_writable(check, data);
  if (check.failed()) return refuse(new_call, check.reason());
  if constexpr (probing_transport<Transport>) {
    return begin_point_to_point(new_call, probed->key.sequence, opts, [&](call_base& call) {
      return probing_body<Transport>::recv_probed(net(), call, probed, data);
    });
  } else {
    return refuse(new_call, cannot_probe());
  }
}

template <class Transport>
task<received> core<Transport>::recv_resized(call_base& owner, message_key key,
                                             unexpected_message*& probed, std::size_t element_size,
                                             std::size_t most,
                                             function_ref<any_buffer(std::size_t)> resize) {
  if constexpr (probing_transport<Transport>) {
    return probing_body<Transport>::recv_resized(net(), owner, key, probed, element_size, most,
                                                 resize);
  } else {
    throw error(cannot_probe());
  }
}

}  // namespace colls::detail
