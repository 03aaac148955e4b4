// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// one_round: messages from each rank to many and from many to each, all at once.

#include <colls/channel/channel.hpp>

namespace colls::one_round {

/// Every rank, or one: with whom a round is. Nobody sends to itself.
template <channel Channel>
pattern::rank_range all(const Channel& net) {
  return {0, net.size()};
}
inline pattern::rank_range only(int rank) { return {rank, rank + 1}; }

/// What `round` is where the transport has none.
template <channel Channel>
task<> round_by_messages(Channel net, round_gives give, round_takes take) {
  const auto with_each = [&](const auto& side, const auto& make) {
    using operation = detail::awaited<decltype(make(0))>;
    detail::recycled_vector<operation> operations;
    operations.reserve(static_cast<std::size_t>(side.most()));
    side.each(net.rank(), [&](int peer) { operations.emplace_back(make(peer)); });
    return when_all(std::move(operations));
  };
  const auto send = [&](int peer) { return net.send(peer, give.of(peer)); };
  const auto recv = [&](int peer) { return net.recv(peer, take.of(peer)); };
  co_await when_all(with_each(give, send), with_each(take, recv));
}
/// Sends what `give` has, and ends when `take` is filled.
template <channel Channel>
[[gnu::always_inline]] inline auto round(Channel net, const round_gives& give,
                                         const round_takes& take) {
  if constexpr (round_transport<typename Channel::transport_type>) {
    return net.round(give, take);
  } else {
    return round_by_messages(net, give, take);
  }
}
/// `parts` gets what the other ranks give as `mine`, each in the place of its rank.
template <channel Channel>
[[gnu::always_inline]] inline auto share_with_all(Channel net, const_bytes mine, std::byte* parts) {
  return round(net, round_gives::same(all(net), mine),
               round_takes::blocks(all(net), {parts, mine.size}));
}
/// The same to the ranks after this one, from those before it.
template <channel Channel>
[[gnu::always_inline]] inline auto share_upwards(Channel net, const_bytes mine, std::byte* parts) {
  return round(net, round_gives::same({net.rank() + 1, net.size()}, mine),
               round_takes::blocks({0, net.rank()}, {parts, mine.size}));
}

}  // namespace colls::one_round
