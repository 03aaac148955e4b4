// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// point_to_point: starts the sends and receives of the user.

#include <colls/call/communicator_core.hpp>
#include <colls/call/point_to_point_body.hpp>

namespace colls::detail {

template <class Transport>
message_key core<Transport>::send_key(checks& check, int dest, int tag) const {
  check_peer(check, dest, state().size());
  check.require(tag >= 0, "tag %d is negative", tag);
  if (check.failed()) return {};
  return {state().world_rank(dest), state().id(), static_cast<std::uint64_t>(tag),
          message_key::point_to_point};
}

template <class Transport>
operation<> core<Transport>::send(any_buffer data, int dest, int tag, const options& opts) {
  auto* const new_call = make(collective::send);
  checks check(collective::send);
  const message_key key = send_key(check, dest, tag);
  check.check_size(data);
  if (check.failed()) return refuse(new_call, check.reason());
  return begin_point_to_point(new_call, key.sequence, opts, [&](call_base& call) {
    set_device_options<Transport>(call, opts);
    return point_to_point_body<Transport>::send(net(), call, key, bytes(data));
  });
}

template <class Transport>
task<> send_owned(Transport& net, call_base& owner, message_key key, std::vector<std::byte> data) {
  auto sending = point_to_point_body<Transport>::send(net, owner, key, {data.data(), data.size()});
  co_await sending;
}

template <class Transport>
operation<> core<Transport>::send_bytes(std::vector<std::byte> data, int dest, int tag,
                                        const options& opts) {
  auto* const new_call = make(collective::send);
  checks check(collective::send);
  const message_key key = send_key(check, dest, tag);
  if (check.failed()) return refuse(new_call, check.reason());
  return begin_point_to_point(new_call, key.sequence, opts, [&](call_base& call) {
    return send_owned(net(), call, key, std::move(data));
  });
}

template <class Transport>
message_key core<Transport>::receive_key(checks& check, peer source, recv_tag tag) const {
  if (!source.is_any()) check_peer(check, source.rank(), state().size());
  check.require(tag.is_any() || tag.value() >= 0, "tag %d is negative", tag.value());
  if (check.failed()) return {};
  return {source.is_any() ? posted_receive::any_source : state().world_rank(source.rank()),
          state().id(),
          tag.is_any() ? posted_receive::any_tag : static_cast<std::uint64_t>(tag.value()),
          message_key::point_to_point};
}

template <class Transport>
operation<received> core<Transport>::recv(any_buffer data, peer source, recv_tag tag,
                                          const options& opts) {
  auto* const new_call = make<call<received>>(collective::recv);
  checks check(collective::recv);
  const message_key key = receive_key(check, source, tag);
  check.check_size(data);
  if (check.failed()) return refuse(new_call, check.reason());
  return begin_point_to_point(new_call, recorded_tag(tag), opts, [&](call_base& call) {
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
