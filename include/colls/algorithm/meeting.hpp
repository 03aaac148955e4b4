// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// meeting: collectives of ranks that one thread turns: the last to come does the work of all.

#include <colls/algorithm/placed.hpp>
#include <colls/channel.hpp>

namespace colls::at_meeting {

/// Ends on no rank before all ranks have called it, where they run on one thread. No messages.
template <channel Channel>
requires meeting_transport<typename Channel::transport_type> task<> barrier(Channel net) {
  auto all = net.meet(nullptr);
  co_await all;
  if (all.is_last()) all.release();
}

/// Afterwards every rank holds the same sum in `data`, with the bits of the sequential sum, where
/// all ranks run on one thread. The last to come adds up all buffers where they are, piece by piece
/// of the cache's size, and writes each piece to all: every input is read once and every output
/// written once. No messages.
template <channel Channel, buffer Data, class Op>
requires meeting_transport<typename Channel::transport_type> task<> all_reduce(Channel net,
                                                                               Data data, Op op) {
  auto all = net.meet(data.data());
  co_await all;
  if (!all.is_last()) co_return;
  detail::recycled_vector<void*> places(static_cast<std::size_t>(net.size()), data.data());
  all.each_other([&](int rank, void* theirs) { places[static_cast<std::size_t>(rank)] = theirs; });
  detail::recycled_vector<const void*> parts(places.size());
  constexpr std::size_t cached = 16 * 1024;
  const std::size_t step = elements_in(cached, element_size(data));
  for (std::size_t at = 0; at < data.size(); at += step) {
    const std::size_t n = step < data.size() - at ? step : data.size() - at;
    const auto part = [&](std::size_t rank) {
      return placed(data, places[rank], data.size()).subspan(at, n);
    };
    const Data sum = part(0);
    for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank] = part(rank).data();
    if (parts.size() > 1) net.reduce(sum, parts, op, part(1).data());
    for (std::size_t rank = 2; rank < parts.size(); ++rank) net.copy(bytes(part(rank)), bytes(sum));
  }
  all.release();
}

}  // namespace colls::at_meeting
