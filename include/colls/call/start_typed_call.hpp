// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// start_typed_call: starts the calls whose results have the type of the user's elements. These
// functions are compiled where the user makes the call.

#include <colls/call/communicator_core.hpp>
#include <colls/call/gathered.hpp>

#include <vector>

namespace colls::detail {

/// Starts a call of unknown lengths of the type `Call`, which is derived from
/// `unknown_lengths_call`. `prepare(call)` is called before the call begins.
template <class Call, class Transport, class Prepare>
operation<typename Call::value_type> start_unknown_lengths(core<Transport>& comm,
                                                           unknown_lengths_request request,
                                                           const options& opts,
                                                           const Prepare& prepare) {
  checks check(request.operation);
  const fingerprint agreed = comm.check_unknown_lengths(request, opts, check);
  if (check.failed()) {
    return comm.refuse(comm.template make<Call>(request.operation), check.reason());
  }
  return comm.template begin<Call>(cached_call(agreed), opts, 0, [&](Call& new_call) {
    prepare(new_call);
    (void)(new_call.work = comm.run_unknown_lengths(new_call, std::move(request), new_call, opts));
  });
}

template <class Transport>
template <class Value, class Body>
operation<Value> core<Transport>::receive(peer source, recv_tag tag, const options& opts,
                                          const Body& body) {
  auto* const new_call = make<call<Value>>(collective::recv);
  checks check(collective::recv);
  const message_key key = receive_key(check, source, tag);
  if (check.failed()) return refuse(new_call, check.reason());
  return begin_point_to_point(new_call, recorded_tag(tag), opts,
                              [&](call_base& call) { return body(call, key); });
}

/// Receives a message into a new vector. If `probed` is not null, receives the message that it
/// owns.
template <class T, class Transport>
task<std::vector<T>> recv_vector_body(core<Transport>& comm, call_base& owner, message_key key,
                                      unexpected_message** probed, std::size_t most) {
  unexpected_message* message = nullptr;
  const message_owner discards(comm, message);
  if (probed != nullptr) match_queues::move_ownership(*probed, message);
  std::vector<T> values;
  const auto resize = [&](std::size_t count) {
    values.resize(count);
    return any_buffer(values.data(), count, sizeof(T));
  };
  auto receiving = comm.recv_resized(owner, key, message, sizeof(T), most, resize);
  co_await receiving;
  co_return values;
}

template <class Transport>
template <class T>
operation<std::vector<T>> core<Transport>::recv_vector(peer source, recv_tag tag,
                                                       unexpected_message** probed,
                                                       std::size_t most, const options& opts) {
  const auto body = [&](call_base& call, const message_key& key) {
    return recv_vector_body<T>(*this, call, key, probed, most);
  };
  return receive<std::vector<T>>(source, tag, opts, body);
}

}  // namespace colls::detail
