// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct: nothing is sent but where the data lies. For ranks that see each other's memory.

#include <colls/algorithm/linear.hpp>

namespace colls::direct {

/// Afterwards every rank holds the same sum in `data`, with the bits of the sequential sum. Rank 0
/// learns where all buffers lie, adds them up where they are, piece by piece of the cache's size,
/// and writes each piece to all: every input is read once and every output written once. 2(p-1)
/// messages, of which none carries data.
template <channel Channel, buffer Data, class Op>
requires addressable_transport<typename Channel::transport_type> task<> all_reduce(Channel net,
                                                                                   Data data,
                                                                                   Op op) {
  void* mine = data.data();
  const any_buffer where(&mine, 1, sizeof mine);
  const mutable_bytes token;
  if (net.rank() != 0) {
    co_await net.send(0, bytes(where));
    co_await net.recv(0, token);
    co_return;
  }
  detail::recycled_vector<void*> places(static_cast<std::size_t>(net.size()), mine);
  const chunks place(any_buffer(places.data(), places.size(), sizeof mine),
                     partition::blocks(1, net.size()));
  const auto learn = [&](int peer) { return net.recv(peer, bytes(place[peer])); };
  co_await linear::with_all_others(net, learn);
  net.require_good();
  detail::recycled_vector<const void*> parts(places.size());
  constexpr std::size_t cached = 16 * 1024;
  const std::size_t step = element_size(data) < cached ? cached / element_size(data) : 1;
  for (std::size_t at = 0; at < data.size(); at += step) {
    const std::size_t n = step < data.size() - at ? step : data.size() - at;
    const auto part = [&](std::size_t rank) {
      return placed(data, places[rank], data.size()).subspan(at, n);
    };
    const Data sum = part(0);
    for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank] = part(rank).data();
    if (parts.size() > 1) net.reduce(sum, parts, op);
    for (std::size_t rank = 1; rank < parts.size(); ++rank) net.copy(bytes(part(rank)), bytes(sum));
  }
  const auto tell = [&](int peer) { return net.send(peer, token); };
  co_await linear::with_all_others(net, tell);
}

}  // namespace colls::direct
