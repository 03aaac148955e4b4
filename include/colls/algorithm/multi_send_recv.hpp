// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// multi_send_recv: exchanges in which a rank sends to many ranks and receives from many ranks at
// once. If the transport can do all this in one operation, an exchange is one such operation.
// Otherwise an exchange consists of one operation per message.

#include <colls/channel/channel.hpp>

namespace colls::multi_send_recv {

/// Returns the range of all ranks, for use as the peers of an exchange. The range includes the
/// calling rank, but an exchange skips that rank.
template <channel Channel>
pattern::rank_range all_ranks(const Channel& net) {
  return {0, net.size()};
}
/// Returns the range that contains only `rank`.
inline pattern::rank_range one_rank(int rank) { return {rank, rank + 1}; }

/// Runs an exchange as one operation per message, for transports that do not satisfy
/// `multi_send_recv_transport`.
template <channel Channel>
task<> exchange_by_messages(Channel net, multi_send_buffers sends, multi_recv_buffers recvs) {
  const auto for_each_peer = [&](const auto& side, const auto& make) {
    using operation = detail::awaited<decltype(make(0))>;
    detail::recycled_vector<operation> operations;
    operations.reserve(static_cast<std::size_t>(side.max_count()));
    side.for_each(net.rank(), [&](int peer) { operations.emplace_back(make(peer)); });
    return when_all(std::move(operations));
  };
  const auto send = [&](int peer) { return net.send(peer, sends.buffer_for(peer)); };
  const auto recv = [&](int peer) { return net.recv(peer, recvs.buffer_for(peer)); };
  co_await when_all(for_each_peer(sends, send), for_each_peer(recvs, recv));
}
/// Returns an operation that sends the messages of `sends` and receives the messages of `recvs`.
/// The operation completes when all messages have been sent and received.
template <channel Channel>
[[gnu::always_inline]] inline auto exchange(Channel net, const multi_send_buffers& sends,
                                            const multi_recv_buffers& recvs) {
  if constexpr (multi_send_recv_transport<typename Channel::transport_type>) {
    return net.multi_send_recv(sends, recvs);
  } else {
    return exchange_by_messages(net, sends, recvs);
  }
}
/// Returns an operation that sends `own` to all other ranks. Afterwards block r of `blocks` holds
/// what rank r sent, for every rank r except this rank.
template <channel Channel>
[[gnu::always_inline]] inline auto exchange_with_all(Channel net, const_bytes own,
                                                     std::byte* blocks) {
  return exchange(net, multi_send_buffers::same(all_ranks(net), own),
                  multi_recv_buffers::blocks(all_ranks(net), {blocks, own.size}));
}
/// Returns an operation that sends `own` to all ranks above this rank. Afterwards block r of
/// `blocks` holds what rank r sent, for every rank r below this rank.
template <channel Channel>
[[gnu::always_inline]] inline auto exchange_upwards(Channel net, const_bytes own,
                                                    std::byte* blocks) {
  return exchange(net, multi_send_buffers::same({net.rank() + 1, net.size()}, own),
                  multi_recv_buffers::blocks({0, net.rank()}, {blocks, own.size}));
}

}  // namespace colls::multi_send_recv
