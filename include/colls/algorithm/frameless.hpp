// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// step: an algorithm that is one operation of the transport and some work after it. Calls run it
// without a coroutine (`step_call`), algorithms with one.

#include <colls/channel/channel.hpp>

namespace colls {

/// Made in its place of the channel and what the algorithm works on. `request(net)` takes what
/// memory it needs and gives what is awaited, once; `finish(net, operation)` does what is left when
/// that has ended.
template <class Step, class Channel>
concept step = requires(Step& one, const Channel& net) { one.request(net); };

/// What a step awaits.
template <class Step, class Channel>
using step_operation =
    detail::awaited<decltype(std::declval<Step&>().request(std::declval<const Channel&>()))>;

template <class Step, channel Channel, class... With>
  requires step<Step, Channel>
task<> in_one_step(Channel net, With... with) {
  Step made(net, with...);
  step_operation<Step, Channel> operation(made.request(net));
  co_await operation;
  made.finish(net, operation);
}

}  // namespace colls
