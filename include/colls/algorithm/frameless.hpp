// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// frameless: algorithms that consist of one transport operation with some local work before and
// after it. A call can run such an algorithm without a coroutine frame (see `frameless_call`).
// Other algorithms run such an algorithm as a coroutine (see `run_frameless`).

#include <colls/channel/channel.hpp>

namespace colls {

/// The type of a frameless algorithm. Its constructor takes the channel and the arguments of the
/// algorithm. Its member `request(net)` allocates the memory that the algorithm needs, and returns
/// the operation to await. The caller calls `request` once and awaits the operation. Then the
/// caller calls the member `finish(net, operation)`, which does the remaining work.
template <class Algorithm, class Channel>
concept frameless = requires(Algorithm& algo, const Channel& net) { algo.request(net); };

/// The type of the operation that a caller awaits after it has called `request` of the frameless
/// algorithm `Algorithm`.
template <class Algorithm, class Channel>
using frameless_operation =
    detail::awaited<decltype(std::declval<Algorithm&>().request(std::declval<const Channel&>()))>;

/// Runs a frameless algorithm as a coroutine. `args` are the arguments of the algorithm.
template <class Algorithm, channel Channel, class... Args>
  requires frameless<Algorithm, Channel>
task<> run_frameless(Channel net, Args... args) {
  Algorithm algo(net, args...);
  frameless_operation<Algorithm, Channel> operation(algo.request(net));
  co_await operation;
  algo.finish(net, operation);
}

}  // namespace colls
