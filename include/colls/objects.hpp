// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// objects: calls that move one value of any type that can be serialised, such as a string, a map,
// or a class of the program. They need the serialisation library cereal.
//
// Each call has read its value when it returns, so the value need not stay alive. If writing or
// reading an object throws, the operation fails with `errc::user_op_failed`, or with
// `errc::not_enough_memory` after a std::bad_alloc, and the communicator is revoked. If the ranks
// pass objects of different types, they all get `errc::mismatch`.

#include <colls/call/communicator.hpp>
#include <colls/objects/object_call.hpp>

namespace colls {

/// Every rank gets the `value` of the rank `root`. The other ranks pass a value only for its type.
template <class Transport, class T>
operation<T> broadcast(communicator<Transport>& comm, const T& value, int root,
                       const options& opts = {}) {
  return detail::start_object_call<detail::one_object_call<T>>(
      comm.underlying_core(), collective::broadcast, detail::object_type<T>(), root, opts,
      [&](detail::written_objects& own) {
        if (comm.rank() == root) own.write(value);
      });
}

/// Every rank gets the `value` of all ranks, in rank order.
template <class Transport, class T>
operation<std::vector<T>> all_gather(communicator<Transport>& comm, const T& value,
                                     const options& opts = {}) {
  return detail::start_object_call<detail::object_list_call<T>>(
      comm.underlying_core(), collective::all_gather, detail::object_type<T>(), -1, opts,
      [&](detail::written_objects& own) { own.write(value); });
}

/// The rank `root` gets the `value` of all ranks, in rank order. The other ranks get an empty
/// vector.
template <class Transport, class T>
operation<std::vector<T>> gather(communicator<Transport>& comm, const T& value, int root,
                                 const options& opts = {}) {
  using call = detail::object_list_call<T>;
  return detail::start_object_call<call>(
      comm.underlying_core(), collective::gather, detail::object_type<T>(), root, opts,
      [&](detail::written_objects& own) { own.write(value); },
      [&](call& started) { started.is_empty = comm.rank() != root; });
}

/// Rank r gets `values[r]` of the rank `root`, which passes one value for each rank. The `values`
/// of the other ranks are ignored.
template <class Transport, class T>
operation<T> scatter(communicator<Transport>& comm, const std::vector<T>& values, int root,
                     const options& opts = {}) {
  return detail::start_object_call<detail::one_object_call<T>>(
      comm.underlying_core(), collective::scatter, detail::object_type<T>(), root, opts,
      [&](detail::written_objects& own) {
        for (std::size_t i = 0; comm.rank() == root && i < values.size(); ++i) own.write(values[i]);
      });
}

/// Every rank gets `op(op(v0, v1), v2)...`, where v0, v1, v2 are the `value` of ranks 0, 1, 2. Each
/// rank gets all values and combines them itself, so `op` must give the same on all ranks.
template <class Transport, class T, class Op>
  requires std::is_invocable_r_v<T, Op&, T, T>
operation<T> all_reduce(communicator<Transport>& comm, const T& value, Op op,
                        const options& opts = {}) {
  static_assert(std::is_trivially_destructible_v<Op>,
                "colls: g++ 12 destroys an operation twice that is made inside a co_await: let a "
                "lambda capture references, or numbers alone");
  using call = detail::object_reduction_call<T, Op>;
  return detail::start_object_call<call>(
      comm.underlying_core(), collective::all_gather, detail::object_type<T>("reduced object"), -1,
      opts, [&](detail::written_objects& own) { own.write(value); },
      [&](call& started) { started.op.emplace(std::move(op)); });
}

/// Sends `value` to the rank `to`, which receives it by `colls::recv<T>`.
template <class Transport, class T>
operation<> send(communicator<Transport>& comm, const T& value, int to, int tag = 0,
                 const options& opts = {}) {
  auto& core = comm.underlying_core();
  if (!core.accepts_calls()) return core.refuse_unusable(core.make(collective::send));
  std::vector<std::byte> message;
  try {
    message = detail::message_of(value);
  } catch (...) {
    detail::revoke_for_object(core, collective::send);
    return core.refuse_unusable(core.make(collective::send));
  }
  if (message.size() > default_most) {
    failure reason(errc::invalid_argument);
    reason.operation = collective::send;
    reason.set_detail("an object of %zu bytes: no rank receives more than %zu", message.size(),
                      default_most);
    return core.refuse(core.make(collective::send), reason);
  }
  return core.send_bytes(std::move(message), to, tag, opts);
}

/// Receives the next object from the rank `from` with the tag `tag`. The source may be
/// `any_source`, and the tag `any_tag`. If the message is no object of type `T`, the operation
/// fails with `errc::mismatch`, and the communicator stays good. An object has at most 1 GiB.
template <class T, class Transport>
operation<T> recv(communicator<Transport>& comm, peer from, recv_tag tag = 0,
                  const options& opts = {}) {
  auto& core = comm.underlying_core();
  return core.template receive<T>(from, tag, opts,
                                  [&](detail::call_base& call, const message_key& key) {
                                    return detail::recv_object<T>(core, call, key);
                                  });
}

}  // namespace colls
